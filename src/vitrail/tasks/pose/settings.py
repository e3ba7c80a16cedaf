"""Settings of a run of pose estimation. Imports no torch."""

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
    """Limbs, pairs and sigmas to use instead of the data's, or of those that follow from the joints' names."""
    boxes: Boxes = "annotations"
    """Boxes to crop people by: annotations, the data's own; joints, the smallest around the joints; image, the full image; or a
    JSON file of a detector's boxes in COCO's format. With a file each person, also in validation, gets the box that overlaps the
    annotated one the most, and keeps the annotated one if none overlaps it by half."""
    upright: Literal["auto", "always", "never"] = "auto"
    """Turn people upright by shoulders and hips for training, for people in every direction: standing, lying, falling. Boxes are
    then evaluated in eight turns, in eight times the time. It needs a square input. auto: with a square input, if a fifth of the
    people lean by more than 45 degrees; a model already trained on people keeps its choice."""
    box_scale: BoxScale | None = None
    """Size of the crop that the model sees, in sizes of the box. By default as in the model to start from, else 1.25. It is saved
    with the model."""
    smaller_sizes: SmallerSizes | None = None
    """Smaller sizes in which a box is evaluated as well, as fractions of the model's size. 0.9 and 0.8 take two and a half times
    the time; they improve a model that was trained on smaller images than its own size (``schedule.last_image_size``). Epochs are
    compared without them. By default as in the model to start from, else none. It is saved with the model."""
    sigma: Annotated[float, Field(gt=0, le=100)] = 2.0
    """Standard deviation of the target heatmaps' bells, in heatmap cells; a patch has four cells along each side."""
    smoothing: Smoothing | None = None
    """Standard deviation of the heatmaps' smoothing before joints are read, in heatmap cells; 0 for none. By default as in the
    model to start from, else 2. It is saved with the model."""
    mirror: bool = True
    """Evaluate the mean of an image and its mirror image, which takes twice the time. It is ignored if boxes are evaluated in
    eight turns, where it improves nothing."""

    @classmethod
    def model_from(cls, start: ModelConfig, fields: Mapping[str, Any]) -> ModelConfig:
        return for_heatmaps(start, fields)


SETTINGS = PoseSettings
