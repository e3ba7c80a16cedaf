"""A tiny segmenter of the shapes of `masked`, which knows nothing."""

from typing import Any

import torch

import vitrail
from masked import CLASSES, COLORS, drawn, picture_of
from vitrail.data.images.preparation import Preparation
from vitrail.tasks.segmentation.weights import TrainedSegmenter

SIZE = 32
BACKBONE = {"architecture": "ViT", "image_size": SIZE, "patch_size": 8, "dim": 16, "depth": 4, "heads": 2, "mlp_dim": 16}
FIELDS: dict[str, Any] = {"image_size": SIZE, "backbone": BACKBONE, "deformable_heads": 2, "head_dim": 16, "auxiliary_dim": 8}
LINEAR: dict[str, Any] = {**FIELDS, "maps": "last", "head": "linear", "auxiliary": False}
TINY_SEGMENTER: dict[str, Any] = {
    "task": "segment", "model.name": "ViT-Adapter-Ti", **{f"model.{name}": value for name, value in LINEAR.items()},
    "augmentation.crop": "scaled", "training.batch_size": 4, "training.epochs": 1, "schedule.warmup_epochs": 0,
    "training.average": 0, "training.precision": "fp32", "optimizer.layer_decay": 1.0,
}  # fmt: skip
"""Settings of a run of segmentation that takes no time."""


def tiny_segmenter(**fields: Any) -> TrainedSegmenter:
    """With masks that differ from place to place, and from picture to picture."""
    torch.manual_seed(0)
    model = vitrail.create_model("ViT-Adapter-Ti", num_classes=len(CLASSES), **{**LINEAR, **fields}).eval()
    torch.nn.init.normal_(model.classifier.weight)
    preparation = Preparation.standard(model.config.image_size)
    with torch.no_grad():  # or one class would be everywhere
        model.classifier.bias -= model(preparation([picture_of(drawn(number)) for number in range(4)])).mean(dim=(0, 2, 3))
    return TrainedSegmenter(model, CLASSES, COLORS, preparation)
