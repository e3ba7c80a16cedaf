"""Rules to read the weights of ViTPose and ViTPose+ from any library."""

import math
import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from vitrail.errors import ModelFileError
from vitrail.models.configs.vitpose import DECODER_DIM, PRESETS, ViTPoseConfig
from vitrail.weights.keys import Key, Shape, count_of, weight_and_bias
from vitrail.weights.layout import Layout, Reading, Size
from vitrail.weights.layouts.vit.shapes import fields_of

TABLE, SHARED = "position.embedding", "position.shared"
HEATMAPS, FIRST = "decoder.heatmaps.weight", "decoder.enlarge.0.convolution.weight"
CONTRACT = "blocks.0.mlp.layer.contract.weight"
EXPERT = re.compile(r"blocks\.\d+\.mlp\.layer\.experts\.(\d+)\.(weight|bias)")
HEADS = {fields["dim"]: fields["heads"] for fields in PRESETS.values()}
"""Attention heads by the published widths, as no shape shows them."""
PUBLISHED = (256, 192)


def _fields(shapes: Mapping[str, Shape], known: Mapping[str, Any], image_size: Size | None, layout: Layout) -> dict[str, Any]:
    if len(shapes.get(HEATMAPS, ())) != 4:
        raise ModelFileError(f"no {HEATMAPS}", where="weights", hint="give the weights of a complete ViTPose, with its decoder")
    if TABLE not in shapes:
        raise ModelFileError(f"no {TABLE}", where="weights")
    backbone = {name: shape for name, shape in shapes.items() if not EXPERT.fullmatch(name)}
    if len(backbone.get(TABLE, ())) > 1 and known.get("shared_position"):  # its first row is added to all patches
        *before, rows, dim = backbone[TABLE]
        backbone[TABLE] = (*before, rows - 1, dim)
    width = shapes["blocks.0.attention.norm.weight"][0] if shapes.get("blocks.0.attention.norm.weight") else 0
    stated = {"heads": HEADS[width], **known} if width in HEADS else known
    return {
        **fields_of(backbone, stated, image_size=image_size or PUBLISHED),
        "num_classes": shapes[HEATMAPS][0],
        **({"decoder": "classic", "decoder_dim": shapes[FIRST][1]} if len(shapes.get(FIRST, ())) == 4 else {"decoder": "simple"}),
        **_experts(shapes, width),
    }


def _experts(shapes: Mapping[str, Shape], dim: int) -> dict[str, int]:
    """Return the number of experts, and how many of a token's values they compute; 0 experts if the MLP computes all."""
    numbers = [int(found[1]) for name in shapes if (found := EXPERT.fullmatch(name))]
    shared = shapes.get(CONTRACT, (0,))[0]
    return {"experts": count_of(numbers, "expert"), "expert_dim": dim - shared} if numbers and shared < dim else {"experts": 0}


def _holds(name: str, shape: Shape, config: ViTPoseConfig) -> bool | None:
    """Accept position tables with an extra row for all patches, and experts of a model that already has one merged in."""
    if name == TABLE and config.shared_position:
        return shape[-2:] == (math.prod(config.grid) + 1, config.dim) and math.prod(shape[:-2]) == 1
    return True if EXPERT.fullmatch(name) and not config.experts else None


def _settle(ours: dict[str, Tensor], config: ViTPoseConfig) -> None:
    """Move the row for all patches to a parameter of its own, and remove experts that the model does not use."""
    if config.shared_position:
        table = ours[TABLE].reshape(-1, config.dim)
        ours[SHARED], ours[TABLE] = table[0].clone(), table[1:].clone()
    for name in [name for name in ours if EXPERT.fullmatch(name) and not config.experts]:
        del ours[name]


def _share_out(state: Mapping[str, Tensor], config: ViTPoseConfig, layout: Layout) -> dict[str, Tensor]:
    """Return the position table in the layout's form: with a first row for all patches, or with this row added to the others."""
    ours = dict(state)
    shared, table = ours.pop(SHARED, None), ours.get(TABLE)
    if table is None:
        return ours
    if not layout.fields.get("shared_position"):
        return ours if shared is None else {**ours, TABLE: table + shared}
    first = table.new_zeros(config.dim) if shared is None else shared
    return {**ours, TABLE: torch.cat([first[None], table])}


def _canonical(config: ViTPoseConfig) -> ViTPoseConfig:
    fields: dict[str, Any] = {"embedding": "conv"} if config.embedding == "linear" else {}
    if config.position == "learned-1d" and not config.has_class_token:
        fields["shared_position"] = True  # a zero row gives the same output as no row
    if config.head_dim and config.head_dim * config.heads == config.dim:
        fields["head_dim"] = None
    if config.decoder == "simple":
        fields["decoder_dim"] = DECODER_DIM  # a simple decoder does not use it
    return config.changed(**fields)


def _guesses(config: ViTPoseConfig, stated: Mapping[str, Any]) -> list[str]:
    of_many = f"keypoints and expert of the first of {config.experts} data sets" if config.experts else ""
    found = [f"{name} {getattr(config, name)}" for name in ("heads", "norm_eps", "patch_padding") if name not in stated]
    return [*found, config.mlp, *([of_many] if of_many else [])]


READING = Reading(
    architecture="ViTPose",
    fields=_fields,
    choices=frozenset(("image_size", "layer_scale", "shared_position")),
    optional=re.escape(SHARED),
    holds=_holds,
    settle=_settle,
    share_out=_share_out,
    canonical=_canonical,
    guesses=_guesses,
)


def decoder_keys(theirs: str, convolutions: tuple[str, str], norms: tuple[str, str], last: str) -> dict[str, Key]:
    """Return the rows of the decoder, classic or simple."""
    keys = weight_and_bias({"decoder.heatmaps": f"{theirs}.{last}"})
    for number, (convolution, norm) in enumerate(zip(convolutions, norms, strict=True)):
        ours = f"decoder.enlarge.{number}"
        keys[f"{ours}.convolution.weight"] = Key(f"{theirs}.{convolution}.weight")
        for part in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
            keys[f"{ours}.norm.{part}"] = Key(f"{theirs}.{norm}.{part}")
    return keys
