"""Where a joint's query looks: attention from the patch in which a model finds a joint."""

from typing import Any

import torch
from torch import Tensor, nn

from vitrail.errors import unknown
from vitrail.study.attention import answering, heads_among, place_among
from vitrail.study.captures import WEIGHTS, capture
from vitrail.tasks.heatmaps import decode
from vitrail.weights.poses import TrainedPose


def joint_map(trained: TrainedPose, images: Tensor, joint: str, *, layer: int = -1, head: int | None = None) -> Tensor:
    """Where a joint's query looks: attention from the patch in which the model finds the joint, (B, rows, columns).

    >>> joint_map(trained, images, "left_wrist")  # doctest: +SKIP

    Args:
        trained: a model that finds joints, in evaluation mode, whose layers attend to the whole image.
        images: prepared, (B, C, H, W).
        joint: its name.
        layer: from 0; from the end below.
        head: one of them; the mean over all by default.

    Raises:
        ConfigError: no such joint, layer or head, or a model whose layers do not attend to the whole image.
    """
    number = joint_numbers(trained, [joint])[0]
    maps, _ = joint_maps(trained.model, images, layer=layer, head=head)
    return maps[:, number]


def joint_numbers(trained: TrainedPose, names: list[str]) -> list[int]:
    """The numbers of joints; raises `ConfigError` for a name that is none of the model's joints."""
    known = list(trained.skeleton.joints)
    for name in names:
        if name not in known:
            raise unknown("joint", name, known, where="--joint")
    return [known.index(name) for name in names]


@torch.no_grad()
def layer_maps(model: nn.Module, images: Tensor) -> Tensor:
    """`joint_map` of every layer and joint, the mean of the heads: (B, layers, K, rows, columns)."""
    vit: Any = answering(model)
    weights = list[Tensor]()
    with capture(vit, f"blocks.*.attention.{WEIGHTS}", each=lambda name, found: weights.append(found.float().mean(dim=1))):
        query = patches_of(vit(images), vit.config.grid)
    return torch.stack([_of_queries(vit, layer, query) for layer in weights], dim=1)


def _of_queries(vit: Any, weights: Tensor, query: Tensor) -> Tensor:
    """Of weights (B, N, N) the rows of some patches (B, K), as maps (B, K, rows, columns)."""
    c = vit.config
    rows = weights.gather(1, (c.prefix + query)[..., None].expand(-1, -1, weights.shape[-1]))
    return rows[..., c.prefix :].unflatten(-1, c.grid)


@torch.no_grad()
def joint_maps(model: nn.Module, images: Tensor, *, layer: int = -1, head: int | None = None) -> tuple[Tensor, Tensor]:
    """`joint_map` of every joint (B, K, rows, columns), and the heatmaps (B, K, h, w), of a model that gives heatmaps."""
    vit: Any = answering(model)
    c = vit.config
    number = place_among("layer", layer, c.depth)
    heads = heads_among(head, c.heads)
    name = f"blocks.{number}.attention.{WEIGHTS}"
    with capture(vit, name) as seen:
        heatmaps = vit(images)
    weights = seen[name][:, heads].float().mean(dim=1)  # (B, N, N)
    return _of_queries(vit, weights, patches_of(heatmaps, c.grid)), heatmaps


def patches_of(heatmaps: Tensor, grid: tuple[int, int]) -> Tensor:
    """The patch, counted row by row, in which each joint of heatmaps (B, K, h, w) is found: int64 (B, K)."""
    (rows, columns), (height, width) = grid, heatmaps.shape[-2:]
    x, y = decode(heatmaps.float())[0].unbind(-1)
    row = ((y + 0.5) * rows / height).long().clamp(0, rows - 1)
    column = ((x + 0.5) * columns / width).long().clamp(0, columns - 1)
    return row * columns + column


def between_joints(maps: Tensor, heatmaps: Tensor) -> Tensor:
    """How much more than any patch on average each joint's query (down) looks at the patch of each joint (across): (B, K, K).

    Args:
        maps: of all joints, (B, K, rows, columns).
        heatmaps: (B, K, h, w).
    """
    patches = patches_of(heatmaps, (maps.shape[-2], maps.shape[-1]))  # (B, K)
    flat = maps.flatten(2)
    looked = flat.gather(2, patches[:, None].expand(-1, flat.shape[1], -1))
    return looked / flat.mean(dim=-1, keepdim=True)
