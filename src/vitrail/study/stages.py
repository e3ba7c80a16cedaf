"""Where and how far a model of stages looks, whose attention stays within windows or has its keys on a coarser grid."""

from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from vitrail.errors import ConfigError
from vitrail.study.attention import in_evaluation
from vitrail.study.captures import WEIGHTS, attends, capture, sight_of
from vitrail.study.distance import attention_distances

Attention = tuple[str, Tensor, Tensor]
"""Its name, and in pixels where its queries and its keys stand: (N_Q, 2) and (N_X, 2), of windows (windows, n, 2) both."""


@torch.no_grad()
def stage_maps(model: nn.Module, images: Tensor) -> list[Tensor]:
    """How much every place is looked at in the last block of every stage, by `looked_at`: (B, rows, columns) each.

    By the class token in the last stage of a model that reads its answer from one, else by all places.

    Args:
        model: a model of stages that attends, or what has one inside, in evaluation mode.
        images: prepared, (B, C, H, W).
    """
    pyramid = _pyramid(model)
    last = list({_stage(found[0]): found for found in attentions(pyramid, images)}.values())
    found: list[Tensor] = []

    def each(name: str, weights: Tensor) -> None:
        _, queries, keys = last[len(found)]
        by_class_token = pyramid.reads_class_token and len(found) == len(last) - 1
        found.append(looked_at(weights, queries, keys, by_class_token=by_class_token))

    with capture(pyramid, *(f"{name}.**{WEIGHTS}" for name, *_ in last), each=each):
        pyramid.features(images)
    return found


def looked_at(weights: Tensor, queries: Tensor, keys: Tensor, *, by_class_token: bool = False) -> Tensor:
    """How much every place is looked at, where 1 is what it would get if each were looked at alike: (B, rows, columns).

    The mean over heads and the sum over queries of A, put where the keys stand; what is no place of the image is left out.

    Args:
        weights: A, (B, k, prefix + N_Q, prefix + N_X), of windows (B, windows, k, n, n).
        queries: where they stand, (N_Q, 2) or (windows, n, 2); NaN where there is nothing.
        keys: where they stand, (N_X, 2) or (windows, n, 2).
        by_class_token: whether the first query, which stands nowhere, is the one that counts.
    """
    mean = weights.float().mean(dim=-3)[..., -keys.shape[-2] :]  # (B, …, prefix + N_Q, N_X)
    looking, there = (~places.isnan().any(dim=-1) for places in (queries, keys))
    if by_class_token:
        given, count = mean[..., 0, :], 1
    else:
        given = torch.einsum("...qx,...q->...x", mean[..., -queries.shape[-2] :, :], looking.to(mean))
        count = int(looking.sum())
    (rows, row), (columns, column) = (side.unique(return_inverse=True) for side in keys[there].unbind(dim=1))
    received = given.flatten(1)[:, there.flatten().to(given.device)]  # (B, keys)
    place = (row * len(columns) + column).to(given.device)
    keys_there = torch.bincount(place, minlength=len(rows) * len(columns))  # several where a small grid is pooled to a larger one
    summed = received.new_zeros(len(received), len(keys_there)).index_add_(1, place, received)
    return (summed / keys_there).unflatten(1, (len(rows), len(columns))) * (received.shape[1] / count)


@torch.no_grad()
def stage_distances(model: nn.Module, images: Tensor) -> list[Tensor]:
    """`vitrail.study.attention_distances` of every block, from the first stage's on, the mean over some images: (k,) each."""
    pyramid = _pyramid(model)
    every, found = attentions(pyramid, images), list[Tensor]()

    def each(name: str, weights: Tensor) -> None:
        _, queries, keys = every[len(found)]
        distances = torch.cdist(queries, keys, compute_mode="donot_use_mm_for_euclid_dist")
        found.append(attention_distances(weights, distances.to(weights.device)).mean(dim=0))

    with capture(pyramid, f"stages.*.blocks.*.attention.**{WEIGHTS}", each=each):
        pyramid.features(images)
    return found


def attentions(pyramid: Any, images: Tensor) -> list[Attention]:
    """Every attention to images of this size, the first stage's first."""
    grids, found = [tuple(level.shape[2:]) for level in pyramid.features(images[:1])], []
    for number, (stage, grid, stride) in enumerate(zip(pyramid.stages, grids, pyramid.strides, strict=True)):
        for place, block in enumerate(stage.blocks):
            queries, keys = block.attention.layer.places(grid)
            found.append((f"stages.{number}.blocks.{place}.attention", stride * queries, stride * keys))
    return found


@torch.no_grad()
def most_weights(pyramid: Any, image: Tensor) -> int:
    """How many weights the largest attention to one image (1, C, H, W) has, of all its heads."""
    every, heads = attentions(pyramid, image), pyramid.config.heads
    return max(heads[_stage(name)] * prod(queries.shape[:-1]) * keys.shape[-2] for name, queries, keys in every)


def _stage(name: str) -> int:
    return int(name.split(".")[1])


def _pyramid(model: nn.Module) -> Any:
    """The model itself, with stages that attend and in evaluation mode."""
    pyramid = in_evaluation(model)
    if sight_of(model) is None or attends(model):
        what = f"a {type(pyramid).__name__} has no stages that attend"
        raise ConfigError(what, where="model", hint="give a model of windows, or of keys on a coarser grid")
    return pyramid
