"""A small model that makes images, and the settings of a run of seconds."""

import torch

import vitrail
from vitrail.tasks.diffusion.weights import TrainedDiffusion

TINY = {
    "model.name": "DiT-S/2", "model.image_size": 8, "model.channels": 3, "model.patch_size": 4, "model.dim": 16, "model.depth": 1,
    "model.heads": 2, "model.mlp_dim": 32, "model.learned_variance": False, "model.objective": "flow", "training.epochs": 2,
    "training.batch_size": 8, "augmentation.crop": "none", "augmentation.horizontal_flip": 0, "optimizer.lr": 0.01,
}  # fmt: skip
SIZES = {"dim": 32, "depth": 2, "heads": 4, "mlp_dim": 64, "image_size": 8, "channels": 1, "num_classes": 3}
CLASSES = ["ant", "bee", "cat"]


def model(**fields):
    """Return a DiT whose weights are none of them zero."""
    torch.manual_seed(0)
    network = vitrail.create_model("DiT-S/2", **{**SIZES, "learned_variance": False, **fields})
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.05)
    names = CLASSES[: network.config.num_classes]
    colors = network.config.channels if network.config.channels in (1, 3) else 1
    return TrainedDiffusion(network.eval(), names, vitrail.Preparation.standard(network.config.image_size, colors))
