"""How far attention reaches, in pixels, beside what a convolutional network can see at the same depth."""

import math

import torch
from torch import Tensor

from vitrail.models.vit import ViT
from vitrail.study.captures import WEIGHTS, capture

Pair = tuple[int, int]

CELLS = 48
RESNET50 = (3, 4, 6, 3)
"""Blocks of the stages of ResNet-50 (He et al. 2016, https://arxiv.org/abs/1512.03385)."""


def patch_distances(grid: Pair, patch_size: Pair) -> Tensor:
    """Pixels between the centres of any two patches: (N, N)."""
    places = _places(grid, patch_size)
    return torch.cdist(places, places)


def _places(grid: Pair, cell: tuple[float, float]) -> Tensor:
    """Where the cells of a grid stand, row by row: (N, 2)."""
    rows, columns = torch.meshgrid(*(torch.arange(side, dtype=torch.float64) for side in grid), indexing="ij")
    return torch.stack([rows.flatten() * cell[0], columns.flatten() * cell[1]], dim=1)


def attention_distances(weights: Tensor, distances: Tensor) -> Tensor:
    """Mean pixels between a patch and where it looks, by image and head (Dosovitskiy et al. 2021, figure 7, right).

    Args:
        weights: A, (B, k, prefix + N, prefix + N); what goes to or comes from other tokens than patches is left out.
        distances: (N, N) of `patch_distances`.

    Returns:
        (B, k): the mean over all patches of their mean distance, weighted by what they give to each patch.
    """
    n = len(distances)
    among = weights[..., -n:, -n:].double()
    reach = (among * distances.to(among.device)).sum(dim=-1) / among.sum(dim=-1).clamp(min=torch.finfo(torch.float32).tiny)
    return reach.mean(dim=-1)


@torch.no_grad()
def mean_attention_distances(model: ViT, images: Tensor) -> Tensor:
    """`attention_distances` of every layer, the mean over some images: (layers, k)."""
    c = model.config
    distances, found = patch_distances(c.grid, c.patch_size), []

    def each(name: str, weights: Tensor) -> None:
        found.append(attention_distances(weights, distances).mean(dim=0))

    with capture(model, f"blocks.*.attention.{WEIGHTS}", each=each):
        model(images)
    return torch.stack(found)


def uniform_distance(image_size: Pair, field: float = math.inf) -> float:
    """The distance of one that looks alike at every pixel in a square of ``field`` pixels around it, or everywhere in the image.

    Counted in cells of a forty-eighth of the image.
    """
    places = _places((CELLS, CELLS), (image_size[0] / CELLS, image_size[1] / CELLS))
    seen = torch.cdist(places, places, p=math.inf) <= field / 2
    return float((seen * torch.cdist(places, places)).sum(dim=1).div(seen.sum(dim=1)).mean())


def receptive_fields(blocks: tuple[int, ...] = RESNET50) -> list[int]:
    """The side of the square of pixels that each block of a ResNet sees, the root first.

    A kernel of k pixels at a stride of s in all widens the field by (k − 1) · s (Araujo et al. 2019,
    https://distill.pub/2019/computing-receptive-fields). The root is 7×7 and a maximum of 3×3, of stride 2 both; a block has
    one kernel of 3×3, and from the second stage on the first block of a stage begins with the stride 2, as in He et al. 2016.
    """
    field, stride = 7 + (3 - 1) * 2, 4
    fields = [field]
    for stage, count in enumerate(blocks):
        for block in range(count):
            stride *= 2 if stage and not block else 1
            field += (3 - 1) * stride
            fields.append(field)
    return fields
