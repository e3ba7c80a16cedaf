"""The layouts of the authors' MDT and MDTv2 (https://github.com/sail-sg/MDT)."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from vitrail import parts
from vitrail.models.configs.mdt import MDTConfig
from vitrail.weights.keys import Key, Shape, block, count_of, weight_and_bias
from vitrail.weights.layout import Layout, Reading, Size
from vitrail.weights.layouts.relatives import dit
from vitrail.weights.layouts.shapes import require_shapes

TABLE, INDEX = ".relative.table", ".relative.index"
"""Ends of names: a block's biases, and the index by which they are looked up, which is computed and no parameter of ours."""


def _fields(shapes: Mapping[str, Shape], known: Mapping[str, Any], image_size: Size | None, layout: Layout) -> dict[str, Any]:
    """Return the configuration that parameters of these shapes belong to; images are square unless somebody says otherwise."""
    require_shapes(shapes, {f"blocks.0{TABLE}": 2}, "an MDT")
    stated = {**known, "heads": shapes[f"blocks.0{TABLE}"][1]}
    fields = dit.READING.fields(shapes, stated, image_size, layout)
    later, decoder = (_count(shapes, name) for name in ("later_blocks", "decoder_blocks"))
    return {**fields, "depth": fields["depth"] + later + decoder, **({"decoder_depth": decoder} if decoder else {})}


def _count(shapes: Mapping[str, Shape], blocks: str) -> int:
    return count_of((int(name.split(".")[1]) for name in shapes if name.startswith(f"{blocks}.")), "block")


def _holds(name: str, shape: Shape, config: MDTConfig) -> bool | None:
    patches = config.grid[0] * config.grid[1]
    return True if name.endswith(INDEX) and shape == (patches, patches) else None


def _settle(ours: dict[str, Tensor], config: MDTConfig) -> None:
    for name in [name for name in ours if name.endswith(INDEX)]:
        del ours[name]


def _share_out(state: Mapping[str, Tensor], config: MDTConfig, layout: Layout) -> dict[str, Tensor]:
    index = parts.RelativePositionBias(config.grid, 1, prefix=0).index
    tables = {name.removesuffix(TABLE): tensor for name, tensor in state.items() if name.endswith(TABLE)}
    return {**state, **{name + INDEX: index.clone().to(table.device) for name, table in tables.items()}}


def _reading(architecture: str, *untold: str) -> Reading:
    return Reading(
        architecture, _fields, holds=_holds, settle=_settle, share_out=_share_out, canonical=dit.READING.canonical, untold=untold
    )


def _block(ours: str, theirs: str) -> dict[str, Key]:
    bias = f"{theirs}.attn.rel_pos_bias.relative_position"
    return {
        **block(theirs, "", "attn.qkv", "attn.proj", "", "mlp.fc1", "mlp.fc2", ours=ours),
        **dit.modulations(f"{theirs}.adaLN_modulation.1", ours),
        **weight_and_bias({f"{ours}.join": f"{theirs}.skip_linear"}),
        f"{ours}{TABLE}": Key(f"{bias}_bias_table"),
        f"{ours}{INDEX}": Key(f"{bias}_index"),
    }


SHARED = {
    **{ours: key for ours, key in dit.ORIGINAL.keys.items() if not ours.startswith("blocks.")},
    "decoder_position.embedding": Key("decoder_pos_embed", ndim=3),
    "mask_token": Key("mask_token"),
    **_block("side", "sideblocks.0"),
}
"""Rows of both versions."""
NEEDS = ("mask_token", dit.LABELS)

MDT = Layout(
    name="mdt",
    about="its authors' MDT",
    reading=_reading("MDT", "decoder_depth"),
    keys={**SHARED, **_block("blocks.{i}", "blocks.{i}")},
    needs=NEEDS,
    fields=dit.ORIGINAL.fields,
)

MDT_V2 = Layout(
    name="mdt-v2",
    about="its authors' MDTv2",
    reading=_reading("MDTv2"),
    keys={
        **SHARED,
        **_block("blocks.{i}", "en_inblocks.{i}"),
        **_block("later_blocks.{i}", "en_outblocks.{i}"),
        **_block("decoder_blocks.{i}", "de_blocks.{i}"),
    },
    needs=NEEDS,
    fields=dit.ORIGINAL.fields,
)
