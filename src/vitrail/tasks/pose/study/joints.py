"""Attention from the patch in which a model finds a joint."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from vitrail.data.images.box_preparation import SMOOTHING
from vitrail.errors import unknown
from vitrail.parts.vision.heatmap_decoder import pixels_per_place
from vitrail.study.maps.attention import layer_weights, look_of, seeing
from vitrail.study.maps.captures import WEIGHTS, capture, model_in
from vitrail.study.maps.patch_coordinates import Places, patch_places
from vitrail.tasks.pose.heatmaps import decode
from vitrail.tasks.pose.weights import TrainedPose
from vitrail.weights.model_folder.folder import TrainedModel


def joint_map(trained: TrainedPose, images: Tensor, joint: str, *, layer: int = -1, head: int | None = None) -> Tensor:
    """Return the attention from the patch in which the model finds a joint: (B, rows, columns).

    Images are used as they are, even if `predict_poses` would average several turns and sizes of them.

    >>> joint_map(trained, images, "left_wrist")  # doctest: +SKIP

    Args:
        trained: a pose model in evaluation mode, whose layers attend to the whole image.
        images: prepared, (B, C, H, W).
        joint: name of the joint.
        layer: index from 0, or negative from the end.
        head: index of a head; the mean over heads by default.

    Raises:
        ConfigError: there is no such joint, layer or head, or the model's layers do not attend to the whole image.
    """
    number = joint_numbers(trained, [joint])[0]
    maps, _ = joint_maps(trained.model, images, layer=layer, head=head, smoothing=trained.preparation.smoothing)
    return maps[:, number]


def joint_numbers(trained: TrainedPose, names: list[str]) -> list[int]:
    """Return the indices of joints; raises `ConfigError` for a name that is not one of the model's joints."""
    known = list(trained.skeleton.joints)
    for name in names:
        if name not in known:
            raise unknown("joint", name, known, where="--joint")
    return [known.index(name) for name in names]


@torch.no_grad()
def layer_maps(model: nn.Module, images: Tensor, *, smoothing: float = SMOOTHING) -> Tensor:
    """Return the `joint_map` of every layer and joint, averaged over heads: (B, layers, K, rows, columns)."""
    vit = seeing(model, images)
    weights = list[Tensor]()
    with capture(vit, f"blocks.*.attention.{WEIGHTS}", each=lambda name, found: weights.append(found.float().mean(dim=1))):
        query = _patches_in(vit, vit(images), smoothing)
    return torch.stack([maps_from(vit, layer, query) for layer in weights], dim=1)


def look_of_joints(trained: TrainedModel) -> tuple[Callable[[Tensor], Tensor] | None, str]:
    """Return `look_of` a pose model, with `layer_maps`."""
    assert isinstance(trained, TrainedPose)
    return look_of(trained, partial(layer_maps, smoothing=trained.preparation.smoothing))


def joint_maps(
    model: nn.Module, images: Tensor, *, layer: int = -1, head: int | None = None, smoothing: float = SMOOTHING
) -> tuple[Tensor, Tensor]:
    """Return the `joint_map` of every joint (B, K, rows, columns), and the heatmaps (B, K, h, w).

    ``smoothing`` should be that of the model's preparation.
    """
    weights, heatmaps = weights_and_heatmaps(model, images, layer=layer, head=head)
    vit = model_in(model)
    return maps_from(vit, weights, _patches_in(vit, heatmaps, smoothing)), heatmaps


@torch.no_grad()
def weights_and_heatmaps(model: nn.Module, images: Tensor, *, layer: int, head: int | None) -> tuple[Tensor, Tensor]:
    """Return a layer's attention, of one head or averaged over heads, (B, N, N), and the heatmaps (B, K, h, w)."""
    vit = seeing(model, images)
    with layer_weights(vit, layer, head) as weights_of:
        heatmaps = vit(images)
    return weights_of(), heatmaps


def maps_from(vit: Any, weights: Tensor, patches: Tensor) -> Tensor:
    """Return the maps (B, K, rows, columns) of query patches (B, K), from a layer's attention (B, N, N)."""
    c = vit.config
    rows = weights.gather(1, (c.prefix + patches)[..., None].expand(-1, -1, weights.shape[-1]))
    return rows[..., c.prefix :].unflatten(-1, c.grid)


def _patches_in(vit: Any, heatmaps: Tensor, smoothing: float = SMOOTHING) -> Tensor:
    """Return the `patches_of` the joints in heatmaps (B, K, h, w)."""
    joints, _ = decode(heatmaps.float(), sigma=smoothing)
    scale = pixels_per_place(vit.config.image_size, (heatmaps.shape[-2], heatmaps.shape[-1]))
    return patches_of(joints * scale.to(joints), patch_places(vit))


def patches_of(joints: Tensor, places: Places) -> Tensor:
    """Return the index of each joint's patch, row by row, from positions in the model's input (…, 2): int64 (…)."""
    x, y = joints.unbind(-1)
    row, column = places.nearest(y, x)
    return row * len(places.columns) + column


def between_joints(maps: Tensor, patches: Tensor) -> Tensor:
    """Return the attention from each joint's query (rows) to each joint's patch (columns), relative to the mean: (B, K, K).

    Args:
        maps: maps of all joints, (B, K, rows, columns).
        patches: patches of the joints, (B, K).
    """
    flat = maps.flatten(2)
    looked = flat.gather(2, patches[:, None].expand(-1, flat.shape[1], -1))
    return looked / flat.mean(dim=-1, keepdim=True)
