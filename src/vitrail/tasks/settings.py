"""The settings of what is learned: those that all tasks share. Imports no torch."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from vitrail.data.readers import sources
from vitrail.models.configs.base import ModelConfig
from vitrail.settings import Settings


class TaskSettings(Settings):
    """Settings of a task. A task with fields of its own has a subclass, `SETTINGS` in the ``settings`` of its room."""

    name: str = "classification"
    """A name of `vitrail.task_registry`; whether an image may have several labels is for the data to say."""

    @classmethod
    def model_from(cls, start: ModelConfig, fields: Mapping[str, Any]) -> ModelConfig:
        """Return the configuration of the model to train, given that of the model to start from.

        Args:
            start: the configuration of the model to start from.
            fields: what recipe, file and flags say of the model.

        Raises:
            ConfigError: no such model can start from it.
        """
        return start

    def require_consistent(self) -> None:
        """Raise `ConfigError` where one setting contradicts another."""

    def require_possible(self, run: Any, *, starts: bool) -> None:
        """Raise `ConfigError` where the settings of a run cannot be trained with; called before anything is opened.

        Args:
            run: the `vitrail.config.settings.RunSettings`; of a run that starts from another model, with some model in its place.
            starts: whether it starts from another model.
        """

    def require_data(self, source: str) -> None:
        """Raise `DataError` where there is no data at ``source``; opens nothing."""
        sources.require_there(source)


class DistillationSettings(Settings):
    """Learning from a teacher's answers as well (Touvron et al. 2021, https://arxiv.org/abs/2012.12877)."""

    teacher: str | None = None
    """A trained model of the same classes (``--teacher``); a student with a class token gets one that learns from it."""
    given: str = ""
    """A teacher that was given in Python, in a few words; settings cannot hold it, and who resumes the run gives it again."""
    kind: Literal["hard", "soft"] = "hard"
    """Learn the class that the teacher is surest of, or all its probabilities."""
    weight: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Share of the loss that is the teacher's."""
    temperature: Annotated[float, Field(gt=0, le=1e3)] = 3.0
    """What both models' logits are divided by where probabilities are learned."""
    once: bool = False
    """Whether the teacher answers once for every training image as it is, before the first step, and not for every view of it:
    much cheaper where it is large, or epochs are many. Needs memory for its logits; images cannot be mixed."""

    @property
    def has_teacher(self) -> bool:
        """Whether there is one at all."""
        return bool(self.teacher or self.given)
