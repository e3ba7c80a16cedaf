"""Settings of a run of segmentation. Imports no torch."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from vitrail.errors import ConfigError
from vitrail.models.configs.base import ModelConfig, Size
from vitrail.models.registry import for_masks
from vitrail.tasks.segmentation.files.sources import require_there
from vitrail.tasks.settings import TaskSettings


def names(value: Any) -> Any:
    """Split ``sky,7,#00ff00``, as the command line gives it, into its parts."""
    return tuple(part.strip() for part in value.split(",")) if isinstance(value, str) else value


def numbers(value: Any) -> Any:
    """Split ``1,0.5,2`` into its parts; other words stay as they are."""
    return names(value) if isinstance(value, str) and "," in value else value


LossWeight = Annotated[float, Field(ge=0, le=1e3)]
Overlap = Annotated[float, Field(ge=0, le=0.9)]
OVERLAP = 0.25
"""Default fraction of a window's side that the next window shows, too."""


class SegmentationSettings(TaskSettings):
    """Settings of segmentation: a class for every pixel."""

    name: str = "segment"
    void: Annotated[tuple[str, ...], BeforeValidator(names)] = ()
    """Classes that are neither learned nor scored, beside those called void, unlabeled or ignore: names, values in the masks, or
    colours such as #000000."""
    cross_entropy: LossWeight = 1.0
    """Weight of the cross-entropy of all pixels but void."""
    dice: LossWeight = 0.0
    """Weight of the Dice loss, for which a small class counts as much as a large one."""
    auxiliary: LossWeight = 0.4
    """Weight of the loss of the auxiliary head, if the model has one."""
    class_weights: Annotated[Literal["none", "balanced"] | tuple[LossWeight, ...], BeforeValidator(numbers)] = "none"
    """Weight of each class in the cross-entropy: none for equal weights; balanced, the root of the median of the classes'
    frequencies in the training masks over the class's own; or a number for each class, in order."""
    window: Size | None = None
    """Height and width of the windows in which an image is evaluated. Default: the whole image at once, or the model's size if it
    takes only that."""
    overlap: Overlap = OVERLAP
    """Fraction of a window's side that the next window shows, too; where windows overlap, their logits are averaged."""
    mirror: bool = False
    """Evaluate the mean of an image and its mirror image, which takes twice the time."""

    @classmethod
    def model_from(cls, start: ModelConfig, fields: Mapping[str, Any]) -> ModelConfig:
        return for_masks(start, fields)

    def require_data(self, source: str) -> None:
        require_there(source)

    def require_consistent(self) -> None:
        if not self.cross_entropy and not self.dice:
            hint = "give at least one of them a weight: --task.dice 1"
            raise ConfigError("task.cross_entropy and task.dice are both 0: there is no loss", where="task", hint=hint)
        if self.weights is not None and not any(self.weights):
            raise ConfigError(
                "all class weights are 0", where="task.class_weights", hint="give one class a weight, or leave it out"
            )

    @property
    def weights(self) -> tuple[float, ...] | None:
        """The weight of each class; None for equal weights."""
        return None if isinstance(self.class_weights, str) else self.class_weights


SETTINGS = SegmentationSettings
