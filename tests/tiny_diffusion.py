"""A small model that makes images, of random weights."""

import torch

import vitrail
from vitrail.tasks.diffusion.weights import TrainedDiffusion

FIELDS = {"dim": 32, "depth": 2, "heads": 4, "mlp_dim": 64, "image_size": 8, "channels": 1, "num_classes": 3}
CLASSES = ["ant", "bee", "cat"]


def tiny_diffusion(**fields):
    """Return a DiT whose weights are none of them zero."""
    torch.manual_seed(0)
    network = vitrail.create_model("DiT-S/2", **{**FIELDS, "learned_variance": False, **fields})
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.05)
    preparation = vitrail.Preparation.standard(network.config.image_size, network.config.channels)
    return TrainedDiffusion(network.eval(), CLASSES[: network.config.num_classes], preparation)
