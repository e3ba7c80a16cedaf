"""Settings of a run on people. Imports no torch."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from vitrail.data.images.box_preparation import BoxScale, SmallerSizes, Smoothing
from vitrail.models.configs.base import ModelConfig
from vitrail.models.registry import for_heatmaps
from vitrail.tasks.pose.people.skeleton import Boxes, Skeleton
from vitrail.tasks.settings import TaskSettings


class PoseSettings(TaskSettings):
    """Settings of pose estimation."""

    name: str = "pose"
    skeleton: Skeleton | None = None
    """Limbs, pairs and sigmas in place of the data's, or of those that follow from the joints' names."""
    boxes: Boxes = "annotations"
    """Boxes by which people are cut out: the data's own (annotations), the smallest around the joints (joints), the whole picture
    (image), or a file of a detector's boxes in COCO's format. Of a file each person, in validation, too, takes the box that
    overlaps the own one the most, and keeps the own one where none does by half."""
    upright: Literal["auto", "always", "never"] = "auto"
    """Turn people upright by their shoulders and hips before they are learned from, where people stand, lie and fall in every
    direction. A box is then looked at in eight turns, which takes eight times the time. It needs a square input. ``auto`` does it
    with one where a fifth of the people lean by more than 45 degrees, and goes on as before with a model trained on people."""
    box_scale: BoxScale | None = None
    """Size of the part that the model sees, in sizes of the box. By default as in the model to start from, else 1.25. The model
    keeps it."""
    smaller_sizes: SmallerSizes | None = None
    """Shares of the model's size in which a box is looked at as well. With 0.9 and 0.8 it takes two and a half times the time,
    and finds more with a model that has learned from smaller images than its own size (``schedule.last_image_size``). Epochs are
    compared without. By default as in the model to start from, else none. The model keeps it."""
    sigma: Annotated[float, Field(gt=0, le=100)] = 2.0
    """Deviation of the bells to learn, in places of the heatmap, of which a patch has four along each side."""
    smoothing: Smoothing | None = None
    """Deviation by which heatmaps are smoothed before a joint is read from them, in places; 0 for none. By default as in the
    model to start from, else 2. The model keeps it."""
    mirror: bool = True
    """Evaluate the mean of an image and its mirror image, which takes twice the time. Where a box is looked at in eight turns,
    mirror images add nothing and are left out."""

    @classmethod
    def model_from(cls, start: ModelConfig, fields: Mapping[str, Any]) -> ModelConfig:
        return for_heatmaps(start, fields)


SETTINGS = PoseSettings
