"""Embeddings of image patches as tokens: the ``x_p E`` of equation (1)."""

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
    """Return the rows and columns of patches in an image; raises `ConfigError` if the patch does not divide it."""
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
"""Row and column in pixels; (0, 0) is the centre of the first pixel, and fractions lie between pixels."""


def middle_of(patch_size: Size) -> Point:
    """Return the centre of the patch at the top left of an image."""
    return (patch_size[0] - 1) / 2, (patch_size[1] - 1) / 2


class PatchEmbedding(nn.Module):
    """Project every patch to a token: (B, C, H, W) to (B, N, D).

    ``method`` "conv" is a convolution whose stride is the patch; "linear" flattens each patch and multiplies by E.
    Both have the same parameters and give the same numbers; a checkpoint of one loads into the other.

    ``norm`` "projected" adds a norm on every token, as in AIMv2; "patches" adds another on the flattened patch as well, as in
    vit-pytorch.

    ``padding`` is the number of zero pixels around the image; "conv" only.
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
        """Centre of the first patch, which begins inside the padding. The next centre is one patch side away."""
        row, column = middle_of(self.patch_size)
        return row - self.padding, column - self.padding

    def forward(self, images: Tensor) -> Tensor:
        if not self.flat:
            return self.token_norm(self.projection(images).flatten(2).transpose(1, 2))
        patches = self.patch_norm(patchify(images, self.patch_size))  # (B, N, C·P_h·P_w)
        matrix = self.projection.weight.flatten(1)  # Eᵀ: (D, C·P_h·P_w)
        return self.token_norm(F.linear(patches, matrix, self.projection.bias))


class ConvStem(nn.Module):
    """A convolutional stem instead of one large-stride projection: (B, C, H, W) to (B, N, D).

    After Xiao et al. 2021 (https://arxiv.org/abs/2106.14881): 3×3 convolutions of stride 2, each with norm and ReLU, double
    the channels up to D. A projection covers the rest of the patch (1×1 if the patch is a power of two). GroupNorm with one
    group replaces the paper's BatchNorm, so that an image's tokens never depend on its batch.
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
        """Centre of the first token's receptive field; each 3×3 convolution of stride 2 extends it equally on both sides."""

    def forward(self, images: Tensor) -> Tensor:
        images = images.contiguous(memory_format=torch.channels_last)  # the fastest layout of convolutions, on CPU and GPU
        return self.projection(self.layers(images)).flatten(2).transpose(1, 2)


class PooledStem(nn.Module):
    """A convolutional stem that halves the image by max pooling, for short trainings: (B, C, H, W) to (B, N, D).

    It begins with a 3×3 convolution. Each further step is a 2×2 max pooling, a 3×3 convolution that doubles the channels (up to
    D) and a residual 3×3 convolution, all with BatchNorm and ReLU (as in CCT; Hassani et al. 2021,
    https://arxiv.org/abs/2104.05704). A projection covers the rest of the patch. In training, BatchNorm makes an image's
    tokens depend on its batch.
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
        """Centre of the first patch; pooling windows coincide with patches, and convolutions extend equally on both sides."""

    def forward(self, images: Tensor) -> Tensor:
        x = self.first(images.contiguous(memory_format=torch.channels_last))  # the fastest layout of convolutions
        for widen, refine in zip(self.widen, self.refine, strict=True):
            x = widen(F.max_pool2d(x, 2))
            x = x + refine(x)
        return self.projection(x).flatten(2).transpose(1, 2)


def _convolution(channels: int, width: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(channels, width, 3, padding=1, bias=False), BatchNorm(width), nn.ReLU())


def _halvings(patch_size: Size) -> tuple[int, Size]:
    """Return how often both sides of a patch can be halved, and the remaining patch size."""
    rest, halvings = patch_size, 0
    while all(side % 2 == 0 for side in rest):
        rest, halvings = (rest[0] // 2, rest[1] // 2), halvings + 1
    return halvings, rest


def resize_patches(weight: Tensor, patch_size: Size) -> Tensor:
    """Return the projection (D, C, P_h, P_w) resized to another patch size (FlexiViT; Beyer et al. 2023, section 3.4).

    With B the matrix that resizes a patch x, the new weights are ``w' = (Bᵀ)⁺ w``. For larger patches the tokens do not change:
    ``⟨B x, w'⟩ = ⟨x, w⟩``. For smaller ones they are the best approximation for patches of random pixels.
    https://arxiv.org/abs/2212.08013
    """
    old = (weight.shape[2], weight.shape[3])
    if old == patch_size:
        return weight
    pixels = torch.eye(old[0] * old[1], dtype=torch.float64, device=weight.device)  # one-hot patches, one per pixel
    transposed = resize_grid(pixels.unflatten(1, (1, *old)), patch_size).flatten(1)  # Bᵀ: (old pixels, new pixels)
    inverse = torch.linalg.pinv(transposed)  # (new pixels, old pixels)
    return (weight.double().flatten(2) @ inverse.T).unflatten(2, patch_size).to(weight.dtype)


def adapt_channels(weight: Tensor, channels: int) -> Tensor:
    """Return a convolution's weights (D, C, h, w) for another number of channels.

    Weights are summed for one channel; otherwise they are repeated in turn and scaled by old / new channels. So a grey image
    gives the same tokens as its copy in three channels, from 3 channels to 1 and from 1 to 3 (or 6). This holds for normalised
    pixels that are equal in all channels. If channels are normalised by different means and deviations, it is approximate.
    """
    old = weight.shape[1]
    if channels == old:
        return weight
    if channels == 1:
        return weight.sum(dim=1, keepdim=True)
    return weight[:, torch.arange(channels) % old] * (old / channels)
