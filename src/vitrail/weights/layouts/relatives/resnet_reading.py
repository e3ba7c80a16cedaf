"""Rules to read the weights of ResNet and BiT, whatever library wrote them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from vitrail.errors import ModelFileError
from vitrail.models.configs.resnet import ResNetConfig
from vitrail.weights.keys import Key, Shape
from vitrail.weights.layout import Layout, Reading, Size
from vitrail.weights.layouts.shapes import depths_of

BLOCK = "features.stages.{s}.{j}"
ROOT = "features.root.0.weight"
GROUPS = 32
"""Groups of every GroupNorm of other libraries' BiT; ours are as many where the width divides by them."""

Kind = Literal["basic", "bottleneck", "pre-activation"]
PARTS: Mapping[Kind, tuple[str, ...]] = {"basic": ("first", "second"), "bottleneck": ("reduce", "spread", "expand")}
"""The convolutions of a block, each with its norm, which timm and transformers number."""
KINDS: Mapping[Kind, str] = {"basic": " of basic blocks", "bottleneck": ""}
"""Words that tell the two layouts of a library's ResNets apart."""


def _fields(shapes: Mapping[str, Shape], known: Mapping[str, Any], image_size: Size | None, layout: Layout) -> dict[str, Any]:
    """Return the configuration that parameters of these shapes belong to; of the images they tell the channels alone."""
    root, head = shapes.get(ROOT, ()), shapes.get("head.linear.weight")
    if len(root) != 4:
        raise ModelFileError("no root of a residual network", where="weights")
    return {
        "image_size": image_size or (224, 224),
        **known,
        "channels": root[1],
        "width": root[0],
        "root": "cifar" if root[2:] == (3, 3) else "imagenet",
        "depths": depths_of(shapes, r"features\.stages\.(\d+)\.(\d+)\."),
        "num_classes": head[0] if head else 0,
    }


NOT_IN_FILE: Mapping[Kind, tuple[str, ...]] = {
    "basic": ("ReLU", "strides without blurring"),
    "bottleneck": ("ReLU", "strides without blurring, on the 3×3 convolutions"),
    "pre-activation": ("ReLU", "padding by half a kernel on every side"),
}
"""Traits that no key and no shape shows: timm's resnetblur50 and transformers' ``downsample_in_bottleneck`` have the same."""


def reading(kind: Kind) -> Reading:
    """Return the reading of residual networks with blocks of one kind."""
    return Reading(
        architecture="ResNet",
        fields=lambda *stated: {**_fields(*stated), "block": kind},
        covers=lambda config: config.block == kind,
        any_size=True,
        optional=r".*\.num_batches_tracked",  # which files from before torch 0.4.1 have not, and no answer needs
        not_in_file=NOT_IN_FILE[kind],
    )


READINGS: Mapping[Kind, Reading] = {kind: reading(kind) for kind in NOT_IN_FILE}


def batch_norms(rows: Mapping[str, str]) -> dict[str, Key]:
    """Return the rows of BatchNorms, running statistics included."""
    leaves = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    return {f"{ours}.{leaf}": Key(f"{theirs}.{leaf}") for ours, theirs in rows.items() for leaf in leaves}


def convolutions(rows: Mapping[str, str]) -> dict[str, Key]:
    """Return the rows of convolutions, which have no bias."""
    return {f"{ours}.weight": Key(f"{theirs}.weight") for ours, theirs in rows.items()}


BIT_NORMS = {"activate.0": "norm1", "spread.0": "norm2", "expand.0": "norm3"}
BIT_CONVOLUTIONS = {"shortcut": "downsample.conv", "reduce": "conv1", "spread.2": "conv2", "expand.2": "conv3"}
"""The names of the parts of BiT's blocks in timm and transformers."""


def below(rows: Mapping[str, str], theirs: str) -> dict[str, str]:
    """Return the rows of the parts of a block, whose keys begin with ``theirs``."""
    return {f"{BLOCK}.{our}": f"{theirs}{their}" for our, their in rows.items()}


@dataclass(frozen=True)
class Pointwise(Key):
    """A linear layer of ours that is a 1×1 convolution of theirs: (out, in, 1, 1), or ``turned`` (1, 1, in, out)."""

    turned: bool = False

    def shape(self, shapes: list[Shape]) -> Shape:
        rows, columns, inputs, outputs = shapes[0] if self.turned else (*shapes[0][2:], *reversed(shapes[0][:2]))
        if (rows, columns) != (1, 1):
            raise ValueError("no 1×1 convolution")
        return outputs, inputs

    def read(self, tensors: list[Tensor], config: ResNetConfig) -> Tensor:
        return tensors[0][0, 0].T.contiguous() if self.turned else tensors[0].flatten(1)

    def write(self, tensor: Tensor, config: ResNetConfig) -> list[Tensor]:
        return [tensor.T[None, None] if self.turned else tensor[..., None, None]]


def widths(config: ResNetConfig) -> list[int]:
    """Return the channels of the feature map behind every stage."""
    expansion = 1 if config.block == "basic" else 4
    return [expansion * config.width * 2**stage for stage in range(len(config.depths))]


def unusual_root(config: ResNetConfig) -> str:
    """Return words for a root for small images, which is ours alone."""
    roots = {"cifar": "root of one 3×3 convolution without a maximum", "whitened": "root of whitened patches"}
    return roots.get(config.root, "")


def odd_groups(config: ResNetConfig) -> str:
    """Return words for that, and where a norm would have fewer groups than other libraries give it."""
    return unusual_root(config) or (f"width {config.width}, which {GROUPS} groups do not divide" if config.width % GROUPS else "")
