"""Settings that all tasks share. This module imports no torch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from vitrail.data.readers import sources
from vitrail.models.configs.base import ModelConfig, height_and_width
from vitrail.settings import Settings


class TaskSettings(Settings):
    """Settings of a task. A task with more fields has a subclass, named ``SETTINGS`` in the module ``settings`` of its room."""

    name: str = "classification"
    """A name of `vitrail.task_registry`. The data, not the task, decides whether images have several labels."""

    places: ClassVar[tuple[str, ...]] = ()
    """Settings that say where something lies, and may change when a run goes on."""

    @classmethod
    def model_from(cls, start: ModelConfig, fields: Mapping[str, Any]) -> ModelConfig:
        """Return the configuration of the model to train, derived from that of the model to start from.

        Args:
            start: the configuration of the model to start from.
            fields: fields of the model that recipe, file and flags set.

        Raises:
            ConfigError: the task cannot start from this model.
        """
        return start

    def require_consistent(self) -> None:
        """Raise `ConfigError` if two settings contradict each other."""

    def require_possible(self, run: Any, *, starts: bool) -> None:
        """Raise `ConfigError` if a run with these settings cannot be trained; called before data or a model is opened.

        Args:
            run: the `vitrail.config.settings.RunSettings`; a usual ViT stands for a model to start from.
            starts: whether the run starts from a trained model.
        """

    def require_places(self, run: str | Path) -> None:
        """Raise an error where something is not at its `places` any more, and the folder ``run`` is to go on."""

    def require_data(self, source: str) -> None:
        """Raise `DataError` if the data ``source`` does not exist; no file is opened."""
        sources.require_there(source)


class FeatureSettings(TaskSettings):
    """Settings of tasks that learn features without labels."""

    places: ClassVar[tuple[str, ...]] = ("probe",)

    probe: str | None = None
    """Labelled images, in any form that ``--data`` takes: epochs are compared by how well their neighbours are found. Default:
    the data's own labels, where it has some."""


class DistillationSettings(Settings):
    """Distillation: training on a teacher's predictions, too (Touvron et al. 2021, https://arxiv.org/abs/2012.12877)."""

    teacher: str | None = None
    """A trained model of the same classes to distil from (``--teacher``). A student with a class token gets one to distil."""
    given: str = ""
    """A short description of a teacher that was passed in Python. Settings cannot store it: pass it again to resume the run."""
    kind: Literal["hard", "soft"] = "hard"
    """hard: learn the teacher's most probable class; soft: learn all its probabilities."""
    weight: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Weight of the distillation loss, in 0…1; the rest is the weight of the loss on the labels."""
    temperature: Annotated[float, Field(gt=0, le=1e3)] = 3.0
    """Temperature that divides the logits of both models in soft distillation."""
    once: bool = False
    """Whether to compute the teacher's logits once for each unaugmented training image, before the first step, and not for each
    augmented image. This is much cheaper for a large teacher or many epochs. It needs memory for the logits, and images cannot
    be mixed."""

    @property
    def has_teacher(self) -> bool:
        """True if there is a teacher."""
        return bool(self.teacher or self.given)


PixelsOrShare = Annotated[float, Field(gt=0, le=2**16)]
ImageSize = Annotated[tuple[PixelsOrShare, PixelsOrShare], BeforeValidator(height_and_width)]


class ScheduleSettings(Settings):
    """The schedules of the learning rate, patch dropout and image size."""

    name: Literal["constant", "linear", "cosine", "inverse-sqrt"] = "cosine"
    """The learning rate after the warm-up: constant, a linear decrease, half a cosine, or proportional to 1 / √step."""
    warmup_epochs: Annotated[float, Field(ge=0, le=1e6)] = 5
    """Epochs of warm-up, in which the learning rate grows linearly from 0."""
    warmup_share: Annotated[float, Field(ge=0, le=0.5)] = 0.0
    """Least fraction of the run for the warm-up, for short runs. The warm-up is never more than half of the run."""
    final: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Final learning rate of linear and cosine, as a fraction of ``lr``."""
    final_weight_decay: Annotated[float, Field(ge=0, le=1e3)] = 1.0
    """Final weight decay, as a multiple of the optimizer's; it is approached along half a cosine."""
    patch_dropout: Literal["constant", "falling"] = "constant"
    """Whether ``model.patch_dropout`` is constant, or decreases linearly to 0 at the end of the run."""
    extended_at: tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)]] = (0, 0)
    """Epoch and step at which a finished run was extended: the schedule of the added epochs begins there."""
    first_image_size: ImageSize | None = None
    """Height and width of the images in the first step, in pixels, or as a fraction up to 1 of the model's image size. Images
    grow to ``last_image_size``, which the last fifth of the run has. Default: images do not grow."""
    last_image_size: ImageSize | None = None
    """Height and width of the images in the last step, in the same form. Default: the model's image size. A model may predict
    better on images larger than in training, and training on smaller images is cheaper (Touvron et al. 2019,
    https://arxiv.org/abs/1906.06423)."""

    @property
    def shrinks_images(self) -> bool:
        """True if images are resized in some steps."""
        return self.first_image_size is not None or self.last_image_size is not None
