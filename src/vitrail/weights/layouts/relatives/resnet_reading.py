"""Rules to read the weights of ResNet and BiT from any library."""

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
"""Number of groups in every GroupNorm of other libraries' BiT; ours is the same if it divides the width."""

Kind = Literal["basic", "bottleneck", "pre-activation"]
PARTS: Mapping[Kind, tuple[str, ...]] = {"basic": ("first", "second"), "bottleneck": ("reduce", "spread", "expand")}
"""Our names of a block's convolutions, each with a norm; timm and transformers number them."""
KINDS: Mapping[Kind, str] = {"basic": " of basic blocks", "bottleneck": ""}
"""Words in messages for the two layouts of a library's ResNets."""


def _fields(shapes: Mapping[str, Shape], known: Mapping[str, Any], image_size: Size | None, layout: Layout) -> dict[str, Any]:
    """Return the configuration fields for parameters of these shapes, which show the images' channels but not their size."""
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
"""Properties that neither keys nor shapes show. They are guessed: timm's resnetblur50, for example, has the same keys."""


def reading(kind: Kind) -> Reading:
    """Return the rules for residual networks with one kind of blocks."""
    return Reading(
        architecture="ResNet",
        fields=lambda *stated: {**_fields(*stated), "block": kind},
        covers=lambda config: config.block == kind,
        any_size=True,
        optional=r".*\.num_batches_tracked",  # absent before torch 0.4.1; it does not change the output
        not_in_file=NOT_IN_FILE[kind],
    )


READINGS: Mapping[Kind, Reading] = {kind: reading(kind) for kind in NOT_IN_FILE}


def batch_norms(rows: Mapping[str, str]) -> dict[str, Key]:
    """Return the rows of BatchNorms, including running statistics."""
    leaves = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    return {f"{ours}.{leaf}": Key(f"{theirs}.{leaf}") for ours, theirs in rows.items() for leaf in leaves}


def convolutions(rows: Mapping[str, str]) -> dict[str, Key]:
    """Return the rows of convolutions, which have no bias."""
    return {f"{ours}.weight": Key(f"{theirs}.weight") for ours, theirs in rows.items()}


BIT_NORMS = {"activate.0": "norm1", "spread.0": "norm2", "expand.0": "norm3"}
BIT_CONVOLUTIONS = {"shortcut": "downsample.conv", "reduce": "conv1", "spread.2": "conv2", "expand.2": "conv3"}
"""Our parts of BiT's blocks to their names in timm and transformers."""


def below(rows: Mapping[str, str], theirs: str) -> dict[str, str]:
    """Return the rows of the parts of a block, whose keys begin with ``theirs``."""
    return {f"{BLOCK}.{our}": f"{theirs}{their}" for our, their in rows.items()}


@dataclass(frozen=True)
class Pointwise(Key):
    """One of our linear layers that they store as a 1×1 convolution: (out, in, 1, 1), or (1, 1, in, out) if ``turned``."""

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
    """Return the number of channels after each stage."""
    expansion = 1 if config.block == "basic" else 4
    return [expansion * config.width * 2**stage for stage in range(len(config.depths))]


def unusual_root(config: ResNetConfig) -> str:
    """Return a few words for a stem for small images, which only Vitrail has; else an empty text."""
    roots = {"cifar": "root of one 3×3 convolution without a maximum", "whitened": "root of whitened patches"}
    return roots.get(config.root, "")


def odd_groups(config: ResNetConfig) -> str:
    """Return the result of `unusual_root`, otherwise a few words if `GROUPS` does not divide the width."""
    return unusual_root(config) or (f"width {config.width}, which {GROUPS} groups do not divide" if config.width % GROUPS else "")
