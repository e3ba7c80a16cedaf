"""A tiny model that finds the joints of stick figures, and knows nothing."""

from typing import Any

import torch

import vitrail
from stick_figures import JOINTS, LIMBS
from vitrail.data.images.box_preparation import BoxPreparation
from vitrail.tasks.pose.people.skeleton import Skeleton
from vitrail.tasks.pose.weights import TrainedPose

SIZE, HEATMAP = (64, 48), (32, 24)
SKELETON = Skeleton.of(JOINTS, LIMBS).complete
FIELDS = {"image_size": SIZE, "patch_size": 8, "patch_padding": 0, "dim": 16, "depth": 1, "heads": 2, "mlp_dim": 16}
TINY_POSE: dict[str, Any] = {
    "task": "pose", "model.name": "ViTPose-Ti-simple", **{f"model.{name}": value for name, value in FIELDS.items()},
    "training.batch_size": 8, "training.epochs": 1, "task.smoothing": 1.0, "task.boxes": "joints",
}  # fmt: skip
"""Settings of a run of poses that takes no time."""


def tiny_pose(*, upright: bool = False, smaller_sizes: tuple[float, ...] = (), **fields: Any) -> TrainedPose:
    """With heatmaps that differ from place to place, and from picture to picture; ``upright`` for square images."""
    torch.manual_seed(0)
    model = vitrail.create_model("ViTPose-Ti-simple", num_classes=len(JOINTS), **{**FIELDS, **fields}).eval()
    torch.nn.init.normal_(model.decoder.heatmaps.weight)
    return TrainedPose(
        model, SKELETON, BoxPreparation.of_size(model.config.image_size, upright=upright, smaller_sizes=smaller_sizes)
    )
