"""Settings that all tasks share. Imports no torch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from vitrail.data.readers import sources
from vitrail.models.configs.base import ModelConfig, height_and_width
from vitrail.settings import Settings


class TaskSettings(Settings):
    """Settings of a task. A task with fields of its own has a subclass, `SETTINGS` in the ``settings`` of its room."""

    name: str = "classification"
    """A name of `vitrail.task_registry`; whether an image may have several labels is for the data to say."""

    places: ClassVar[tuple[str, ...]] = ()
    """Settings that say where something lies, and may change when a run goes on."""

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
        """Raise `ConfigError` where a run of these settings cannot be trained; called before anything is opened.

        Args:
            run: the `vitrail.config.settings.RunSettings`, with some model in place of one to start from.
            starts: whether it starts from another model.
        """

    def require_places(self, run: str | Path) -> None:
        """Raise an error where something is not at its `places` any more, and the folder ``run`` is to go on."""

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
        """True where there is a teacher."""
        return bool(self.teacher or self.given)


PixelsOrShare = Annotated[float, Field(gt=0, le=2**16)]
ImageSize = Annotated[tuple[PixelsOrShare, PixelsOrShare], BeforeValidator(height_and_width)]


class ScheduleSettings(Settings):
    """The schedule of the learning rate, patch dropout and image size, step by step."""

    name: Literal["constant", "linear", "cosine", "inverse-sqrt"] = "cosine"
    """What follows the warm-up: no change, a straight line down, half a cosine down, or one over the root of the steps."""
    warmup_epochs: Annotated[float, Field(ge=0, le=1e6)] = 5
    """Epochs of linear growth from 0."""
    warmup_share: Annotated[float, Field(ge=0, le=0.5)] = 0.0
    """Least share of the run with linear growth from 0, for runs of few steps; the whole warm-up is never more than half."""
    final: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Where linear and cosine end, as a share of ``lr``."""
    patch_dropout: Literal["constant", "falling"] = "constant"
    """Whether ``model.patch_dropout`` stays, or falls along a line to 0 at the end of the run."""
    extended_at: tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)]] = (0, 0)
    """Epoch and step at which a finished run was extended: the schedule of the others begins there."""
    first_image_size: ImageSize | None = None
    """Height and width that images are shrunk to at first, in pixels, or up to 1 as a share of the model's own. They grow to
    ``last_image_size``, which the last fifth of the run has; 1 is for the model's own. By default they do not grow."""
    last_image_size: ImageSize | None = None
    """Height and width that images are shrunk to at the end, said in the same way; by default they are not. A model may answer
    better to images larger than those it has learned from, which is also cheaper (Touvron et al. 2019,
    https://arxiv.org/abs/1906.06423)."""

    @property
    def shrinks_images(self) -> bool:
        """True where images are shrunk in some steps."""
        return self.first_image_size is not None or self.last_image_size is not None
