"""Attention distances in pixels, and receptive fields of a convolutional network for comparison."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from vitrail.study.maps.captures import WEIGHTS, capture, model_in, require_own_size

Pair = tuple[int, int]

PLACES = 24
RESNET50 = (3, 4, 6, 3)
"""Blocks of the stages of ResNet-50 (He et al. 2016, https://arxiv.org/abs/1512.03385)."""


def patch_distances(grid: Pair, patch_size: Pair) -> Tensor:
    """Return the distance in pixels between the centres of any two patches: (N, N)."""
    rows, columns = torch.meshgrid(*(torch.arange(side, dtype=torch.float32) for side in grid), indexing="ij")
    centres = torch.stack([rows.flatten() * patch_size[0], columns.flatten() * patch_size[1]], dim=1)
    return torch.cdist(centres, centres)


def attention_distances(weights: Tensor, distances: Tensor) -> Tensor:
    """Return the mean distance in pixels between a patch and those it attends to (Dosovitskiy et al. 2021, figure 7, right).

    Args:
        weights: A, (B, k, prefix + N_Q, prefix + N_X), or of windows (B, windows, k, n, n). Attention from and to tokens that
            are not patches is dropped.
        distances: (N_Q, N_X), as from `patch_distances`, or (windows, n, n); NaN for tokens that are not patches.

    Returns:
        (B, k): the mean over query patches of their distance to all patches, weighted by attention.
    """
    there, (queries, keys) = ~distances.isnan(), distances.shape[-2:]
    among = weights[..., -queries:, -keys:].float()
    given = torch.einsum("...kqx,...qx->...kq", among, there.to(among))
    reach = torch.einsum("...kqx,...qx->...kq", among, distances.nan_to_num().to(among))
    mean = reach / given.clamp(min=torch.finfo(torch.float32).tiny)  # (B, …, k, N_Q), zero for tokens that are not patches
    return mean.movedim(-2, 1).flatten(2).sum(dim=-1) / there.any(dim=-1).sum().to(mean)


@torch.no_grad()
def mean_attention_distances(model: nn.Module, images: Tensor) -> Tensor:
    """Return the `attention_distances` of every layer, averaged over images: (layers, k)."""
    found_in = model_in(model)
    require_own_size(found_in, images)
    c: Any = found_in.config
    distances, found = patch_distances(c.grid, c.patch_size), []

    def each(name: str, weights: Tensor) -> None:
        found.append(attention_distances(weights, distances).mean(dim=0))

    with capture(model, f"blocks.*.attention.{WEIGHTS}", each=each):
        model(images)
    return torch.stack(found)


def uniform_distance(image_size: Pair, field: float = math.inf) -> float:
    """Return the mean distance of uniform attention to ``field`` pixels around each pixel, or to the whole image.

    It is averaged over `PLACES` positions per side of the image, and as many positions in the part of the field inside it.
    """
    down, across = (_offsets(side, field) for side in image_size)  # (places, points) each
    return float(torch.hypot(down[:, None, :, None], across[None, :, None, :]).mean())


def _offsets(side: int, field: float) -> Tensor:
    """Return the offsets from positions along a side to points in their field: (positions, points)."""
    middles = (torch.arange(PLACES, dtype=torch.float64) + 0.5) / PLACES
    places = side * middles[:, None]
    low, high = (places - field / 2).clamp(min=0), (places + field / 2).clamp(max=side)
    return low + (high - low) * middles - places


def receptive_fields(blocks: tuple[int, ...] = RESNET50) -> list[int]:
    """Return the receptive field after each block of a ResNet, in pixels per side; the root comes first.

    A kernel of k pixels at a total stride s widens the field by (k − 1) · s (Araujo et al. 2019,
    https://distill.pub/2019/computing-receptive-fields). The root is a 7×7 convolution and 3×3 max pooling, both of stride 2.
    A block has one 3×3 kernel; from the second stage on, the first block of a stage has stride 2, as in He et al. 2016.
    """
    field, stride = 7 + (3 - 1) * 2, 4
    fields = [field]
    for stage, count in enumerate(blocks):
        for block in range(count):
            stride *= 2 if stage and not block else 1
            field += (3 - 1) * stride
            fields.append(field)
    return fields
