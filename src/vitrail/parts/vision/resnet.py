"""Convolutional residual networks (He et al. 2016, https://arxiv.org/abs/1512.03385), alone and as a hybrid's embedding."""

import math
from collections.abc import Iterator
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.checks import require_divisible
from vitrail.parts.normalization import BatchNorm
from vitrail.parts.vision.patches import Point, middle_of
from vitrail.parts.vision.standardized import StandardizedConv2d, pad_same
from vitrail.parts.vision.whitening import Whitening

Kind = Literal["hybrid", "bit", "resnet"]
"""Convolutions, norms and padding. ``bit``: weight-standardised convolutions and GroupNorm (Kolesnikov et al. 2020,
https://arxiv.org/abs/1912.11370), symmetric padding, zero padding in max pooling; ``hybrid``: as ``bit``, but with TensorFlow's
padding and another epsilon; ``resnet``: plain convolutions and BatchNorm, symmetric padding."""
Root = Literal["imagenet", "cifar", "whitened", "whitened-valid"]
"""First layers. ``imagenet``: 7×7 convolution and 3×3 max pooling, each of stride 2; ``cifar``: 3×3 convolution of stride 1;
``whitened``: `Whitening` and GELU, then a 3×3 convolution and 2×2 max pooling; ``whitened-valid``: the same without padding of
whitening and pooling, so that 32 pixels become 15, 7 and 3 rows instead of 16, 8 and 4."""
STRIDES: dict[Root, int] = {"imagenet": 4, "cifar": 1, "whitened": 2, "whitened-valid": 2}
BlockKind = Literal["basic", "bottleneck", "pre-activation", "pooled"]


def _convolution(kind: Kind, channels: int, width: int, kernel: int, stride: int = 1) -> nn.Module:
    if kind == "resnet":
        return nn.Conv2d(channels, width, kernel, stride, padding=kernel // 2, bias=False)
    return StandardizedConv2d(channels, width, kernel, stride, same=kind == "hybrid")


class GroupNorm(nn.GroupNorm):
    """torch's GroupNorm that also accepts one value per group: (B, C, H, W) to (B, C, H, W)."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)  # nn.GroupNorm raises for a single value


def _norm(kind: Kind, width: int, *, scale: float = 1.0) -> nn.Module:
    norm: BatchNorm | nn.GroupNorm
    if kind == "resnet":
        norm = BatchNorm(width)
    else:
        norm = GroupNorm(math.gcd(32, width), width, eps=1e-6 if kind == "hybrid" else 1e-5)
    nn.init.constant_(norm.weight, scale)
    return norm


def _shortcut(kind: Kind, channels: int, width: int, stride: int) -> nn.Module:
    """Return the identity, or a 1×1 convolution where the shape changes."""
    if channels == width and stride == 1:
        return nn.Identity()
    return nn.Sequential(_convolution(kind, channels, width, 1, stride), _norm(kind, width))


class BasicBlock(nn.Module):
    """``ReLU(shortcut(x) + f(x))``, f two 3×3 convolutions: (B, C, H, W) to (B, width, H/stride, W/stride).

    The first convolution has the stride. The last norm of f starts at zero, so that at first the block is its shortcut.
    """

    expansion = 1

    def __init__(self, channels: int, width: int, stride: int = 1, *, kind: Kind = "resnet"):
        super().__init__()
        self.shortcut = _shortcut(kind, channels, width, stride)
        self.first = nn.Sequential(_convolution(kind, channels, width, 3, stride), _norm(kind, width), nn.ReLU())
        self.second = nn.Sequential(_convolution(kind, width, width, 3), _norm(kind, width, scale=0.0))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.shortcut(x) + self.second(self.first(x)))


class PooledBlock(nn.Module):
    """``y + f(y)``, f one 3×3 convolution: (B, C, H, W) to (B, width, H/stride, W/stride).

    If the shape stays, y is x; otherwise y is ``ReLU(norm(maxpool(conv(x))))``, with a 3×3 convolution of stride 1. With
    ``whole``, max pooling drops an incomplete window at the border. After the ResNet-9 of Page 2018
    (https://github.com/davidcpage/cifar10-fast), for short trainings.
    """

    expansion = 1

    def __init__(self, channels: int, width: int, stride: int = 1, *, kind: Kind = "resnet", whole: bool = False):
        super().__init__()
        changes = channels != width or stride > 1
        self.widen = _pooled(kind, channels, width, stride, whole=whole) if changes else nn.Identity()
        self.refine = nn.Sequential(_convolution(kind, width, width, 3), _norm(kind, width), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        y = self.widen(x)
        return y + self.refine(y)


def _pooled(kind: Kind, channels: int, width: int, stride: int, *, whole: bool) -> nn.Sequential:
    """Return 3×3 convolution, ``stride`` × ``stride`` max pooling, norm and ReLU."""
    return nn.Sequential(
        _convolution(kind, channels, width, 3), nn.MaxPool2d(stride, ceil_mode=not whole), _norm(kind, width), nn.ReLU()
    )


class Bottleneck(nn.Module):
    """``ReLU(shortcut(x) + f(x))``, f 1×1, 3×3 and 1×1 convolutions: (B, C, H, W) to (B, 4·width, H/stride, W/stride).

    The 3×3 convolution has the stride. The shortcut is a 1×1 convolution where the shape changes. The last norm of f starts
    at zero, so that at first the block is its shortcut.
    """

    expansion = 4

    def __init__(self, channels: int, width: int, stride: int = 1, *, kind: Kind = "hybrid"):
        super().__init__()
        self.shortcut = _shortcut(kind, channels, 4 * width, stride)
        self.reduce = nn.Sequential(_convolution(kind, channels, width, 1), _norm(kind, width), nn.ReLU())
        self.spread = nn.Sequential(_convolution(kind, width, width, 3, stride), _norm(kind, width), nn.ReLU())
        self.expand = nn.Sequential(_convolution(kind, width, 4 * width, 1), _norm(kind, 4 * width, scale=0.0))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.shortcut(x) + self.expand(self.spread(self.reduce(x))))


class PreActivationBottleneck(nn.Module):
    """``x + f(ReLU(norm(x)))``, f as in `Bottleneck`: (B, C, H, W) to (B, 4·width, H/stride, W/stride).

    Norm and ReLU come before each convolution, and nothing follows the sum (He et al. 2016,
    https://arxiv.org/abs/1603.05027). Where the shape changes, a 1×1 convolution of ``ReLU(norm(x))`` replaces x.
    """

    expansion = 4

    def __init__(self, channels: int, width: int, stride: int = 1, *, kind: Kind = "bit"):
        super().__init__()
        changes = channels != 4 * width or stride > 1
        self.activate = nn.Sequential(_norm(kind, channels), nn.ReLU())
        self.shortcut = _convolution(kind, channels, 4 * width, 1, stride) if changes else None
        self.reduce = _convolution(kind, channels, width, 1)
        self.spread = nn.Sequential(_norm(kind, width), nn.ReLU(), _convolution(kind, width, width, 3, stride))
        self.expand = nn.Sequential(_norm(kind, width), nn.ReLU(), _convolution(kind, width, 4 * width, 1))

    def forward(self, x: Tensor) -> Tensor:
        active = self.activate(x)  # (B, C, H, W)
        shortcut = x if self.shortcut is None else self.shortcut(active)
        return shortcut + self.expand(self.spread(self.reduce(active)))


BLOCKS: dict[BlockKind, type[BasicBlock | PooledBlock | Bottleneck | PreActivationBottleneck]] = {
    "basic": BasicBlock,
    "pooled": PooledBlock,
    "bottleneck": Bottleneck,
    "pre-activation": PreActivationBottleneck,
}


def _root(kind: Kind, root: Root, channels: int, width: int) -> list[nn.Module]:
    """Return the layers of the root, without the ImageNet root's max pooling; norm and ReLU are the last two."""
    if root in ("whitened", "whitened-valid"):
        whole = root == "whitened-valid"
        first = Whitening(channels, whole=whole)
        return [first, nn.GELU(), *_pooled(kind, first.out_channels, width, 2, whole=whole)]
    side, stride = (7, 2) if root == "imagenet" else (3, 1)
    return [_convolution(kind, channels, width, side, stride), _norm(kind, width), nn.ReLU()]


class ResNetFeatures(nn.Module):
    """Root and stages, without pooling and head: (B, C, H, W) to (B, `channels`, H / `stride`, W / `stride`).

    Args:
        channels: channels of the images.
        depths: blocks in every stage; (3, 4, 6, 3) is ResNet-50, and () the root alone.
        width: channels of the root; stage i has 2^i times as many, and bottlenecks output 4 times that.
        root: first layers, for large or for small images; see `Root`.
        kind: convolutions and norms; see `Kind`.
        block: kind of blocks. With pre-activation blocks, norm and ReLU follow the last stage instead of the root.
    """

    def __init__(
        self,
        channels: int,
        depths: tuple[int, ...],
        *,
        width: int = 64,
        root: Root = "imagenet",
        kind: Kind = "hybrid",
        block: BlockKind = "bottleneck",
    ):
        super().__init__()
        self.kind, late = kind, block == "pre-activation"
        self.pool = root == "imagenet"
        layers = _root(kind, root, channels, width)
        self.root = nn.Sequential(*(layers[:-2] if late else layers))
        self.stages = nn.ModuleList()
        windows = {"whole": root == "whitened-valid"} if block == "pooled" else {}
        self.channels, self.stride = width, resnet_stride(root, len(depths))
        for i, depth in enumerate(depths):
            blocks = []
            for j in range(depth):
                stride = 2 if i and not j else 1
                blocks.append(BLOCKS[block](self.channels, width * 2**i, stride, kind=kind, **windows))
                self.channels = BLOCKS[block].expansion * width * 2**i
            self.stages.append(nn.Sequential(*blocks))
        self.norm = nn.Sequential(_norm(kind, self.channels), nn.ReLU()) if late else nn.Identity()

    def forward(self, images: Tensor) -> Tensor:
        *_, last = self.pyramid(images)
        return last

    def pyramid(self, images: Tensor) -> Iterator[Tensor]:
        """Yield the feature map of every stage, or of the root if there are no stages: (B, width, H / stride, W / stride)."""
        x = self.root(images)
        if self.pool:
            x = _maximum(self.kind, x)
        *stages, last = self.stages or [nn.Identity()]
        for stage in stages:
            x = stage(x)
            yield x
        yield self.norm(last(x))


class ResNetPyramid(ResNetFeatures):
    """`ResNetFeatures` that give the map of every stage: (B, C, H, W) to a list of (B, width, H / stride, W / stride)."""

    def forward(self, images: Tensor) -> list[Tensor]:  # type: ignore[override]
        return list(self.pyramid(images))


def _maximum(kind: Kind, x: Tensor) -> Tensor:
    """Return 3×3 max pooling of stride 2: (B, C, H, W) to (B, C, H/2, W/2)."""
    if kind == "resnet":
        return F.max_pool2d(x, 3, 2, padding=1)
    if kind == "bit":  # zero padding, which exceeds negative values at the border
        zeros = F.pad(x.neg(), (1, 1, 1, 1)).neg()  # the negations keep ONNX Runtime from merging it into a padding with −∞
        return F.max_pool2d(zeros, 3, 2)
    return F.max_pool2d(pad_same(x, 3, 2, value=-math.inf), 3, 2)


def resnet_stride(root: Root, stages: int) -> int:
    """Return the image pixels per pixel of the feature map, along one side."""
    return STRIDES[root] * 2 ** max(0, stages - 1)


class HybridEmbedding(nn.Module):
    """A projection of a ResNet's feature map to tokens, (B, C, H, W) to (B, N, D); ``patch_size`` is in image pixels."""

    def __init__(self, resnet: ResNetFeatures, dim: int, patch_size: tuple[int, int]):
        super().__init__()
        for side, patch in zip(("height", "width"), patch_size, strict=True):
            require_divisible(f"patch {side}", patch, "stride of the ResNet", resnet.stride)
        kernel = (patch_size[0] // resnet.stride, patch_size[1] // resnet.stride)
        self.resnet = resnet
        self.projection = nn.Conv2d(resnet.channels, dim, kernel, stride=kernel)
        self.patch_size = patch_size

    @property
    def first_middle(self) -> Point:
        """Centre of the first patch. With whitening it is shifted by half a whitening patch.

        Bottlenecks of stride 2 extend the receptive field to one side, their shortcuts to the other.
        """
        (row, column), first = middle_of(self.patch_size), self.resnet.root[0]
        down, across = middle_of((first.kernel_size[0], first.kernel_size[1])) if isinstance(first, Whitening) else (0.0, 0.0)
        return row + down, column + across

    def forward(self, images: Tensor) -> Tensor:
        if self.resnet.kind == "resnet":  # the fastest layout of convolutions, but not of GroupNorm in half precision
            images = images.contiguous(memory_format=torch.channels_last)
        return self.projection(self.resnet(images)).flatten(2).transpose(1, 2)
