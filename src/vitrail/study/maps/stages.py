"""Attention maps and distances of models with stages, whose attention is in windows or to a coarser grid."""

from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from vitrail.errors import ConfigError
from vitrail.study.maps.attention import in_evaluation
from vitrail.study.maps.captures import WEIGHTS, attends, capture, sight_of
from vitrail.study.maps.distance import attention_distances
from vitrail.study.maps.patch_coordinates import Places

Attention = tuple[str, Tensor, Tensor]
"""Name, and centres in pixels of queries (N_Q, 2) and keys (N_X, 2), or in windows (windows, n, 2)."""


@torch.no_grad()
def stage_maps(model: nn.Module, images: Tensor) -> list[Tensor]:
    """Return the attention that each position receives in the last block of every stage, by `looked_at`: (B, rows, columns) each.

    In the last stage of a model that reads a class token it is the class token's attention, otherwise that of all positions.

    Args:
        model: a model of stages with attention, or a module that contains one, in evaluation mode.
        images: prepared, (B, C, H, W).
    """
    pyramid = _pyramid(model)
    last, found = _last_attentions(pyramid, images), list[Tensor]()

    def each(name: str, weights: Tensor) -> None:
        _, queries, keys = last[len(found)]
        by_class_token = pyramid.reads_class_token and len(found) == len(last) - 1
        found.append(looked_at(weights, queries, keys, by_class_token=by_class_token))

    with capture(pyramid, *(f"{name}.**{WEIGHTS}" for name, *_ in last), each=each):
        pyramid.feature_maps(images)
    return found


@torch.no_grad()
def stage_places(model: nn.Module, images: Tensor) -> list[Places]:
    """Return the coordinates of the `stage_maps` of these images, for every stage."""
    found, size = [], (images.shape[2], images.shape[3])
    for _, _, keys in _last_attentions(_pyramid(model), images):
        there = keys[~keys.isnan().any(dim=-1)]  # (N_X, 2)
        found.append(Places(there[:, 0].unique(), there[:, 1].unique(), size, size))
    return found


def _last_attentions(pyramid: Any, images: Tensor) -> list[Attention]:
    return list({_stage(found[0]): found for found in attentions(pyramid, images)}.values())


def looked_at(weights: Tensor, queries: Tensor, keys: Tensor, *, by_class_token: bool = False) -> Tensor:
    """Return the attention that each position receives, relative to uniform attention: (B, rows, columns).

    A is averaged over heads and summed over queries, and placed at the keys' positions; padding is dropped.

    Args:
        weights: A, (B, k, prefix + N_Q, prefix + N_X), or of windows (B, windows, k, n, n).
        queries: positions of the queries, (N_Q, 2) or (windows, n, 2); NaN for padding.
        keys: positions of the keys, (N_X, 2) or (windows, n, 2).
        by_class_token: use only the first query, a class token without position.
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
    keys_there = torch.bincount(place, minlength=len(rows) * len(columns))  # above 1 if a small grid is pooled to a larger one
    summed = received.new_zeros(len(received), len(keys_there)).index_add_(1, place, received)
    return (summed / keys_there).unflatten(1, (len(rows), len(columns))) * (received.shape[1] / count)


@torch.no_grad()
def stage_distances(model: nn.Module, images: Tensor) -> list[Tensor]:
    """Return the `vitrail.study.attention_distances` of every block, averaged over images: (k,) each."""
    pyramid = _pyramid(model)
    every, found = attentions(pyramid, images), list[Tensor]()

    def each(name: str, weights: Tensor) -> None:
        _, queries, keys = every[len(found)]
        distances = torch.cdist(queries, keys, compute_mode="donot_use_mm_for_euclid_dist")
        found.append(attention_distances(weights, distances.to(weights.device)).mean(dim=0))

    with capture(pyramid, f"stages.*.blocks.*.attention.**{WEIGHTS}", each=each):
        pyramid.feature_maps(images)
    return found


def attentions(pyramid: Any, images: Tensor) -> list[Attention]:
    """Return all attention layers for images of this size, from the first stage on."""
    grids = [tuple(level.shape[2:]) for level in (images, *pyramid.feature_maps(images[:1]))]
    strides, found = (1, *pyramid.strides), list[Attention]()
    first = torch.zeros(2)  # centre of the first token, in pixels
    for number, stage in enumerate(pyramid.stages, 1):
        middles = [float(stage.embedding.middles(side)[0]) for side in grids[number - 1]]
        first = first + strides[number - 1] * torch.tensor(middles)
        for place, block in enumerate(stage.blocks):
            queries, keys = (first + strides[number] * places for places in block.attention.layer.places(grids[number]))
            found.append((f"stages.{number - 1}.blocks.{place}.attention", queries, keys))
    return found


@torch.no_grad()
def most_weights(pyramid: Any, image: Tensor) -> int:
    """Return the number of weights in the largest attention layer, over all heads, for one image (1, C, H, W)."""
    every, heads = attentions(pyramid, image), pyramid.config.heads
    return max(heads[_stage(name)] * prod(queries.shape[:-1]) * keys.shape[-2] for name, queries, keys in every)


def _stage(name: str) -> int:
    return int(name.split(".")[1])


def _pyramid(model: nn.Module) -> Any:
    """Return the model inside; raises `ConfigError` if it has no stages with attention, or is in training mode."""
    pyramid = in_evaluation(model)
    if sight_of(model) is None or attends(model):
        what = f"a {type(pyramid).__name__} has no stages with attention"
        raise ConfigError(what, where="model", hint="give a model with windows, or with keys on a coarser grid")
    return pyramid
