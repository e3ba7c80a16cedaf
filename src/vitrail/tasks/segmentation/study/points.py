"""Relevance from a point: the parts of an image that the class of one pixel depends on."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.study.maps.attention import in_evaluation, relevance_of
from vitrail.study.maps.captures import WEIGHTS, capture

CELL = 8
"""Side in pixels of the cells in which gradients are averaged."""


class Point(NamedTuple):
    """A pixel with its predicted class."""

    row: int
    column: int
    label: int
    fraction: float
    """Fraction of the image with this class."""


def largest_areas(mask: np.ndarray, count: int) -> list[Point]:
    """Return a point in each of the ``count`` most frequent classes of a mask (H, W), the pixel farthest from other classes."""
    from scipy.ndimage import distance_transform_edt

    labels, pixels = np.unique(mask, return_counts=True)
    points = []
    for place in np.argsort(-pixels, kind="stable")[:count].tolist():
        inside = np.pad(mask == labels[place], 1)  # the image's border is a border, too
        row, column = np.unravel_index(distance_transform_edt(inside).argmax(), inside.shape)
        points.append(Point(int(row) - 1, int(column) - 1, int(labels[place]), float(pixels[place] / mask.size)))
    return points


def point_maps(model: Any, image: Tensor, points: Sequence[Point]) -> Tensor:
    """Return a map for each point, of the logit of its class at its pixel: (points, rows, columns).

    Of a plain ViT it is the relevance of the patches as in `relevance_map`, read at the last tokens by the size of gradient times
    value. Of any other model it is the gradient at the image: the mean over a cell of `CELL` × `CELL` pixels of its absolute
    value, summed over channels.

    Args:
        model: a segmenter in evaluation mode.
        image: prepared, (1, C, H, W).
        points: pixels of the image.
    """
    in_evaluation(model)
    if not model.sees_by_attention:
        return _gradients_at(model, image, points)
    return _relevances_at(model, image, points)


def _logits(model: Any, image: Tensor) -> Tensor:
    """Return the logits of every pixel, (classes, H, W)."""
    logits: Tensor = model.enlarged(model(image), image.shape[2], image.shape[3])[0]
    return logits


def _gradients_at(model: Any, image: Tensor, points: Sequence[Point]) -> Tensor:
    with torch.inference_mode(False), torch.enable_grad():
        image = image.detach().clone().requires_grad_()
        logits = _logits(model, image)
        found = [torch.autograd.grad(logits[p.label, p.row, p.column], image, retain_graph=True)[0] for p in points]
    sizes = torch.cat(found).abs().sum(dim=1, keepdim=True)
    return F.avg_pool2d(sizes, CELL, ceil_mode=True)[:, 0]


def _relevances_at(model: Any, image: Tensor, points: Sequence[Point]) -> Tensor:
    vit: Any = model.backbone
    last = f"backbone.blocks.{len(vit.blocks) - 1}.output"
    names = "backbone.blocks.*.attention.heads", last
    with torch.inference_mode(False), torch.enable_grad(), capture(model, *names) as seen:
        logits = _logits(model, image.detach().clone().requires_grad_())
        parts = dict(seen)
        found = [torch.autograd.grad(logits[p.label, p.row, p.column], list(parts.values()), retain_graph=True) for p in points]
    gradients = [dict(zip(parts, each, strict=True)) for each in found]
    relevances: list[Tensor | None] = [None] * len(points)
    values = torch.empty(0)

    def each(name: str, value: Tensor) -> None:
        nonlocal values
        if name.endswith("values"):
            values = value
            return
        for number, own in enumerate(gradients):
            of_heads = own[name.removesuffix(WEIGHTS) + "heads"].unflatten(-1, (values.shape[1], -1)).transpose(1, 2)
            relevances[number] = relevance_of(relevances[number], value, of_heads @ values.mT)

    with (
        torch.no_grad(),
        capture(model, "backbone.blocks.*.attention.values", f"backbone.blocks.*.attention.{WEIGHTS}", each=each),
    ):
        model(image)
    grid = vit.config.grid_of(
        *(-(-side // each) * each for side, each in zip(image.shape[2:], model.config.multiple, strict=True))
    )
    maps = [_read(own[last] * parts[last].detach(), relevance) for own, relevance in zip(gradients, relevances, strict=True)]
    return torch.stack([map_[-grid[0] * grid[1] :].unflatten(0, grid) for map_ in maps])


def _read(effects: Tensor, relevance: Tensor | None) -> Tensor:
    """Return the relevance of each token (N,), from R (1, N, N) and the effects of the last tokens' values (1, N, D)."""
    assert relevance is not None, "a ViT has blocks"
    effect = effects.abs().sum(dim=-1)  # the signed sum of gradient times value vanishes before a LayerNorm
    return (effect @ relevance[0])[0] / effect.sum().clamp(min=torch.finfo(effect.dtype).tiny)
