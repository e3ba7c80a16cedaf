"""Images to tokens: the ``x_p E`` of equation (1)."""

from itertools import pairwise
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.checks import require_divisible
from vitrail.parts.normalization import BatchNorm, NormKind, norm_layer
from vitrail.parts.positions.interpolation import resize_grid

Size = tuple[int, int]


def grid_size(image_size: Size, patch_size: Size) -> Size:
    """Return rows and columns of patches in an image; raises `ConfigError` if the patch does not divide it."""
    for side, image, patch in zip(("height", "width"), image_size, patch_size, strict=True):
        require_divisible(f"image {side}", image, f"patch {side}", patch)
    return image_size[0] // patch_size[0], image_size[1] // patch_size[1]


def patchify(images: Tensor, patch_size: Size, *, channels_last: bool = False) -> Tensor:
    """Cut images into flattened patches: (B, C, H, W) to (B, N, C·P_h·P_w), or (B, N, P_h·P_w·C), patches row by row."""
    rows, columns = grid_size((images.shape[-2], images.shape[-1]), patch_size)
    x = images.unflatten(3, (columns, patch_size[1])).unflatten(2, (rows, patch_size[0]))  # (B, C, rows, P_h, columns, P_w)
    if channels_last:
        return x.permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2)
    return x.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)


def unpatchify(patches: Tensor, patch_size: Size, grid: Size, *, channels_last: bool = False) -> Tensor:
    """Return the inverse of `patchify`: (B, N, C·P_h·P_w), or (B, N, P_h·P_w·C), to (B, C, H, W)."""
    if channels_last:
        patches = patches.unflatten(2, (patch_size[0] * patch_size[1], -1)).transpose(2, 3).flatten(2)
    x = patches.unflatten(2, (-1, *patch_size)).unflatten(1, grid)  # (B, rows, columns, C, P_h, P_w)
    return x.permute(0, 3, 1, 4, 2, 5).flatten(4).flatten(2, 3)


Point = tuple[float, float]
"""Row and column in pixels, from the middle of the first one; it may lie between pixels."""


def middle_of(patch_size: Size) -> Point:
    """Return the middle of a patch that begins with the first pixel."""
    return (patch_size[0] - 1) / 2, (patch_size[1] - 1) / 2


class PatchEmbedding(nn.Module):
    """Project every patch to a token: (B, C, H, W) to (B, N, D).

    ``method`` "conv" is a convolution whose stride is the patch; "linear" flattens each patch and multiplies by E.
    Both hold the same parameters and give the same numbers; a checkpoint of one loads into the other.

    ``norm`` "projected" puts a norm on every token, as AIMv2 has it; "patches" puts another on the flattened patch as well,
    as vit-pytorch has them.

    ``padding`` is of zeros around the image, in pixels; it goes with "conv".
    """

    def __init__(
        self,
        channels: int,
        dim: int,
        patch_size: Size,
        *,
        method: Literal["conv", "linear"] = "conv",
        norm: Literal["none", "projected", "patches"] = "none",
        norm_kind: NormKind = "layer",
        norm_eps: float = 1e-6,
        padding: int = 0,
    ):
        super().__init__()
        self.patch_size, self.padding = patch_size, padding
        self.flat = norm == "patches" or method == "linear"
        options: dict[str, Any] = {"kind": norm_kind, "eps": norm_eps}
        values = channels * patch_size[0] * patch_size[1]
        self.patch_norm = norm_layer(values, **options) if norm == "patches" else nn.Identity()
        self.projection = nn.Conv2d(channels, dim, kernel_size=patch_size, stride=patch_size, padding=padding)
        self.token_norm = nn.Identity() if norm == "none" else norm_layer(dim, **options)

    @property
    def first_middle(self) -> Point:
        """The middle of the first patch, which begins within the padding; the next one lies a side of the patch further on."""
        row, column = middle_of(self.patch_size)
        return row - self.padding, column - self.padding

    def forward(self, images: Tensor) -> Tensor:
        if not self.flat:
            return self.token_norm(self.projection(images).flatten(2).transpose(1, 2))
        patches = self.patch_norm(patchify(images, self.patch_size))  # (B, N, C·P_h·P_w)
        matrix = self.projection.weight.flatten(1)  # Eᵀ: (D, C·P_h·P_w)
        return self.token_norm(F.linear(patches, matrix, self.projection.bias))


class ConvStem(nn.Module):
    """A convolutional stem in place of one large-stride projection: (B, C, H, W) to (B, N, D).

    After Xiao et al. 2021 (https://arxiv.org/abs/2106.14881): 3×3 convolutions of stride 2, each with norm and ReLU,
    doubling the channels up to D, then a projection that takes what is left of the patch (1×1 when it is a power of
    two). GroupNorm with one group stands for the paper's BatchNorm, so an image's tokens never depend on its batch.
    """

    def __init__(self, channels: int, dim: int, patch_size: Size):
        super().__init__()
        halvings, rest = _halvings(patch_size)
        layers: list[nn.Module] = []
        for i in reversed(range(halvings)):
            width = max(dim // 2**i, 8)
            layers += [nn.Conv2d(channels, width, 3, stride=2, padding=1, bias=False), nn.GroupNorm(1, width), nn.ReLU()]
            channels = width
        self.layers = nn.Sequential(*layers)
        self.projection = nn.Conv2d(channels, dim, kernel_size=rest, stride=rest)
        self.first_middle: Point = (2**halvings * (rest[0] - 1) / 2, 2**halvings * (rest[1] - 1) / 2)
        """The middle of what the first token is made of: every 3×3 convolution of stride 2 sees as much above as below."""

    def forward(self, images: Tensor) -> Tensor:
        images = images.contiguous(memory_format=torch.channels_last)  # how convolutions run fastest, on CPU and GPU
        return self.projection(self.layers(images)).flatten(2).transpose(1, 2)


class PooledStem(nn.Module):
    """A convolutional stem that halves by maxima, for training in little time: (B, C, H, W) to (B, N, D).

    3×3 convolutions with BatchNorm and ReLU: one at every size, the channels doubling up to D, with a 2×2 maximum between two
    of them (as in CCT; Hassani et al. 2021, https://arxiv.org/abs/2104.05704), and behind every maximum a second, residual one.
    A projection takes what is left of the patch. In training an image's tokens depend on its batch, as ever with BatchNorm.
    """

    def __init__(self, channels: int, dim: int, patch_size: Size):
        super().__init__()
        halvings, rest = _halvings(patch_size)
        widths = [max(dim // 2**i, 8) for i in reversed(range(halvings + 1))]
        self.first = _convolution(channels, widths[0])
        self.widen = nn.ModuleList(_convolution(a, b) for a, b in pairwise(widths))
        self.refine = nn.ModuleList(_convolution(width, width) for width in widths[1:])
        self.projection = nn.Conv2d(widths[-1], dim, kernel_size=rest, stride=rest)
        self.first_middle = middle_of(patch_size)
        """The middle of the first patch: maxima cut as patches do, and convolutions see as much on either side."""

    def forward(self, images: Tensor) -> Tensor:
        x = self.first(images.contiguous(memory_format=torch.channels_last))  # how convolutions run fastest
        for widen, refine in zip(self.widen, self.refine, strict=True):
            x = widen(F.max_pool2d(x, 2))
            x = x + refine(x)
        return self.projection(x).flatten(2).transpose(1, 2)


def _convolution(channels: int, width: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(channels, width, 3, padding=1, bias=False), BatchNorm(width), nn.ReLU())


def _halvings(patch_size: Size) -> tuple[int, Size]:
    """Return how often both sides of a patch can be halved, and the size that is left."""
    rest, halvings = patch_size, 0
    while all(side % 2 == 0 for side in rest):
        rest, halvings = (rest[0] // 2, rest[1] // 2), halvings + 1
    return halvings, rest


def resize_patches(weight: Tensor, patch_size: Size) -> Tensor:
    """Return the projection (D, C, P_h, P_w) for patches of another size (FlexiViT; Beyer et al. 2023, section 3.4).

    With B the matrix that resizes a patch x, the new weights are ``w' = (Bᵀ)⁺ w``. When patches become larger, the tokens
    of enlarged patches are those of the patches themselves: ``⟨B x, w'⟩ = ⟨x, w⟩``; when smaller, as near as can be for
    patches of random pixels. https://arxiv.org/abs/2212.08013
    """
    old = (weight.shape[2], weight.shape[3])
    if old == patch_size:
        return weight
    pixels = torch.eye(old[0] * old[1], dtype=torch.float64, device=weight.device)  # a patch for each pixel, which is 1 in it
    transposed = resize_grid(pixels.unflatten(1, (1, *old)), patch_size).flatten(1)  # Bᵀ: (old pixels, new pixels)
    inverse = torch.linalg.pinv(transposed)  # (new pixels, old pixels)
    return (weight.double().flatten(2) @ inverse.T).unflatten(2, patch_size).to(weight.dtype)


def adapt_channels(weight: Tensor, channels: int) -> Tensor:
    """Return a convolution's weights (D, C, h, w) for other channels: summed to one, else repeated in turn and scaled.

    From 3 to 1, a picture gives the tokens that it gave when repeated in three channels; from 1 to 3 (or 6) the picture
    repeated gives what it gave before. This is said of pixels as the model sees them: if each channel is normalised by a
    mean and standard deviation of its own, the channels of a grey picture differ, and the tokens are only close.
    """
    old = weight.shape[1]
    if channels == old:
        return weight
    if channels == 1:
        return weight.sum(dim=1, keepdim=True)
    return weight[:, torch.arange(channels) % old] * (old / channels)
