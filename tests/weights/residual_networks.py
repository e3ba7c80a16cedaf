"""Residual networks with random weights, and what it takes to agree with them."""

from copy import deepcopy
from pathlib import Path

import torch
from safetensors.torch import save_file
from sweep.judging import randomized
from torch import nn

import vitrail
from vitrail.models.configs.resnet import ResNetConfig
from vitrail.models.vision.resnet import ResNet
from vitrail.weights.layouts import LAYOUTS
from vitrail.weights.model_folder.folder import TrainedModel

NARROW = {"stem_chs": 32, "channels": (128, 256, 512, 1024)}
"""Arguments of timm's that make a BiT narrow."""


@torch.no_grad()
def random_weights(model: nn.Module) -> nn.Module:
    """Every weight and every running statistic where a trained model might have it."""
    for name, value in model.named_buffers():
        if name.endswith("num_batches_tracked"):
            value.fill_(2**24 + 1)  # more than a float holds exactly
    return randomized(model)


def alike(ours, theirs, images) -> bool:
    """Whether they tell images apart. They must agree in double precision: in single, 50 layers of BiT round by 2e-5."""
    with torch.no_grad():
        found, expected = (deepcopy(model).double()(images.double()) for model in (ours, theirs))
        largest = expected.abs().max().item()
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-9 * largest)
    return bool((expected[0] - expected[1]).abs().max() > 1e-3 * largest)


def authors_file(trained: TrainedModel, layout: str, file: Path) -> dict[str, torch.Tensor]:
    """Write a file that holds a model's weights under the keys of a layout and says nothing else; gives them."""
    chosen, state = LAYOUTS[layout], trained.model.state_dict()
    theirs = chosen.write(chosen.reading.share_out(state, trained.config, chosen), trained.config)
    theirs = {name: tensor.detach().clone().contiguous() for name, tensor in theirs.items()}
    save_file(theirs, file)
    return theirs


def batches(state) -> list[int]:
    return [int(tensor) for name, tensor in state.items() if name.endswith("num_batches_tracked")]


def images(channels: int = 3, size: tuple[int, int] = (64, 80)) -> torch.Tensor:
    return torch.randn(2, channels, *size, generator=torch.Generator().manual_seed(1))


def small(**fields) -> TrainedModel:
    config = ResNetConfig(**{"depths": (1, 1), "width": 32, "image_size": 32, "num_classes": 3, **fields})
    labels = ["ant", "bee", "cat"][: config.num_classes]
    return TrainedModel(random_weights(ResNet(config)), labels, vitrail.Preparation.standard((32, 32), config.channels))
