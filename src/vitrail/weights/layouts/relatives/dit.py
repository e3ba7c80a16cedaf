"""The layout of DiT's authors (https://github.com/facebookresearch/DiT), and rules to read DiT whatever library wrote it."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from vitrail import parts
from vitrail.errors import ModelFileError
from vitrail.models.configs.dit import SIZES, DiTConfig
from vitrail.weights.keys import Key, Part, Shape, weight_and_bias
from vitrail.weights.layout import Layout, Reading, Size
from vitrail.weights.layouts.shapes import depth_of, image_size_of, require_shapes, usual_heads

BLOCK = "blocks.{i}"
POSITIONS, LABELS, PATCHES, HEAD = "position.embedding", "label.weight", "embedding.projection.weight", "head.linear.weight"
NEEDED = {PATCHES: 4, "blocks.0.mlp.layer.expand.weight": 2, "time.expand.weight": 2, HEAD: 2}
"""Parameters that all else follows from, with their numbers of dimensions."""
HEADS = {fields["dim"]: fields["heads"] for fields in SIZES.values()}
"""Attention heads of the widths of the paper, which no shape shows."""


def modulations(theirs: str, ours: str = BLOCK) -> dict[str, Key]:
    """Return the rows of a layer that has shift, scale and gate of the attention, and behind them those of the MLP."""
    return {
        f"{ours}.{branch}.modulation.{end}": Part(f"{theirs}.{end}", first=half, last=half + 1, parts=2)
        for half, branch in enumerate(("attention", "mlp"))
        for end in ("weight", "bias")
    }


def _fields(shapes: Mapping[str, Shape], known: Mapping[str, Any], image_size: Size | None, layout: Layout) -> dict[str, Any]:
    require_shapes(shapes, NEEDED | {name: 2 for name in (LABELS,) if name in shapes}, "a DiT")
    dim, channels, height, width = shapes[PATCHES]
    null_class = known.get("null_class", True)
    return {
        "num_classes": max(0, shapes.get(LABELS, (1,))[0] - null_class),
        "heads": known.get("heads") or HEADS.get(dim) or usual_heads(dim),
        **known,
        "null_class": null_class,
        "image_size": _image_size(shapes, (height, width), (known.get("image_size"), image_size), layout),
        "channels": channels,
        "patch_size": (height, width),
        "dim": dim,
        "depth": depth_of(shapes),
        "mlp_dim": shapes["blocks.0.mlp.layer.expand.weight"][0],
        "time_dim": shapes["time.expand.weight"][1],
        "learned_variance": shapes[HEAD][0] == 2 * channels * height * width,
    }


def _image_size(shapes: Mapping[str, Shape], patch: Size, tried: tuple[Size | None, Size | None], layout: Layout) -> Size:
    if POSITIONS in layout.keys:
        rows = shapes.get(POSITIONS, ())[-2:]
        if not rows or shapes[POSITIONS] not in (rows, (1, *rows)) or rows[-1] != shapes[PATCHES][0]:
            what = f"{POSITIONS} of the shape {shapes[POSITIONS]} is none" if rows else f"no {POSITIONS}"
            raise ModelFileError(f"{what} of a DiT", where="weights")
        return image_size_of(rows[0], patch, tried)
    if (size := tried[0] or tried[1]) is None:
        hint = "give the config.json that belongs to them, or the size: image_size=32, --image-size 32"
        raise ModelFileError("the weights do not show the size of the images", where="weights", hint=hint)
    return size


def _holds(name: str, shape: Shape, config: DiTConfig) -> bool | None:
    """Accept positions, and rows for no class beyond those of ours; `_settle` compares them."""
    further = name == LABELS and shape[0] >= config.labels and shape[1] == config.dim
    return True if further or name == POSITIONS else None


def _settle(ours: dict[str, Tensor], config: DiTConfig) -> None:
    """Leave out positions, which are computed here, and further rows for no class.

    A table with nothing but such a row is added to the time's vector, as it is to every image's.

    Raises:
        ModelFileError: other positions, or further rows that differ.
    """
    if (positions := ours.pop(POSITIONS, None)) is not None:
        expected = parts.sincos_position_2d(config.grid, config.dim, prefix=0).embedding
        rounding = max(1e-5, torch.finfo(positions.dtype).eps)
        if not torch.allclose(positions.reshape(expected.shape).float(), expected, rtol=0, atol=rounding):
            what = "the positions are not the fixed cosines and sines of DiT"
            raise ModelFileError(what, where="weights", hint="give a model whose positions were not trained")
    if (labels := ours.pop(LABELS, None)) is None:
        return
    none = labels[config.num_classes :]
    if not torch.equal(none, none[:1].expand_as(none)):
        what = f"the table of labels has {len(labels)} different rows, and the files name {config.num_classes} classes"
        raise ModelFileError(what, where="weights", hint="give a name for each class")
    if config.num_classes:
        ours[LABELS] = labels[: config.labels]
    else:
        ours["time.contract.bias"] = ours["time.contract.bias"] + none[0]


def labelled(state: Mapping[str, Tensor], config: DiTConfig) -> dict[str, Tensor]:
    """Return parameters with a table of labels; in a model without classes it is a row of zeros, for none."""
    return {LABELS: state["time.contract.bias"].new_zeros(1, config.dim), **state}


def _share_out(state: Mapping[str, Tensor], config: DiTConfig, layout: Layout) -> dict[str, Tensor]:
    positions = parts.sincos_position_2d(config.grid, config.dim, prefix=0).embedding
    return {POSITIONS: positions.to(state[HEAD].device), **labelled(state, config)}


def _canonical(config: DiTConfig) -> DiTConfig:
    row = {} if config.num_classes else {"null_class": True}
    return config.changed(mlp_norm_eps=config.mlp_norm_eps or config.norm_eps, **row)


def _guesses(config: DiTConfig, stated: Mapping[str, Any]) -> list[str]:
    return [f"{name} {getattr(config, name)}" for name in ("heads", "time_shift") if name not in stated]


READING = Reading(
    architecture="DiT",
    fields=_fields,
    holds=_holds,
    settle=_settle,
    share_out=_share_out,
    canonical=_canonical,
    guesses=_guesses,
)

ORIGINAL = Layout(
    name="dit",
    about="its authors' DiT",
    reading=READING,
    keys={
        POSITIONS: Key("pos_embed", ndim=3),
        LABELS: Key("y_embedder.embedding_table.weight"),
        **weight_and_bias(
            {
                "embedding.projection": "x_embedder.proj",
                "time.expand": "t_embedder.mlp.0",
                "time.contract": "t_embedder.mlp.2",
                f"{BLOCK}.attention.layer.qkv": f"{BLOCK}.attn.qkv",
                f"{BLOCK}.attention.layer.output": f"{BLOCK}.attn.proj",
                f"{BLOCK}.mlp.layer.expand": f"{BLOCK}.mlp.fc1",
                f"{BLOCK}.mlp.layer.contract": f"{BLOCK}.mlp.fc2",
                "head.modulation": "final_layer.adaLN_modulation.1",
                "head.linear": "final_layer.linear",
            }
        ),
        **modulations(f"{BLOCK}.adaLN_modulation.1"),
    },
    fields={"norm_eps": 1e-6, "time_shift": 0},
)
