"""The layouts of Swin Transformers: of the authors, of timm and of transformers."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from vitrail.errors import ModelFileError
from vitrail.models.configs.swin import SwinConfig, preset_of
from vitrail.parts.positions.interpolation import Interpolation
from vitrail.weights.keys import Key, Shape, block, ratio_of, weight_and_bias, words
from vitrail.weights.layout import Layout, Reading, Size
from vitrail.weights.layouts.shapes import depths_of, require_shapes
from vitrail.weights.layouts.timm.arguments import Arguments
from vitrail.weights.layouts.timm.description import named, timm_data
from vitrail.weights.normalization import IMAGENET

BLOCK = "stages.{s}.blocks.{j}"
PATCHES = "stages.0.embedding.projection.weight"
TABLE = "stages.{}.blocks.0.attention.layer.relative.table"
TABLE_END = ".relative.table"
EXPAND = "stages.{}.blocks.0.mlp.layer.expand.weight"

TIMM_NAME, AUTHORS_NAME = "timm-swin", "swin-original"
SMALLER = "smaller than a window"


def _fields(shapes: Mapping[str, Shape], known: Mapping[str, Any], image_size: Size | None, layout: Layout) -> dict[str, Any]:
    """Return the configuration fields for parameters of these shapes, which show the images' channels but not their size."""
    depths = depths_of(shapes)
    tables, expand = [TABLE.format(stage) for stage in range(len(depths))], EXPAND.format(len(depths) - 1)
    require_shapes(shapes, {PATCHES: 4, expand: 2, **dict.fromkeys(tables, 2)}, "a Swin Transformer")
    dim, channels, *patch = shapes[PATCHES]
    side = math.isqrt(shapes[tables[0]][0])
    if side * side != shapes[tables[0]][0] or side % 2 == 0 or len({*patch}) > 1:
        what = "the windows or patches are not square"
        raise ModelFileError(what, where="weights")
    window, rows = (side + 1) // 2, [shapes[table][0] for table in tables]
    size = image_size or known.get("image_size")
    if size is None and len({*rows}) > 1:
        size = image_size = _size_of(layout, patch[0], window, depths, rows)
    if size and (unlike := _unlike(layout, size, patch[0], window, depths, rows)):
        what = f"{layout.about} computes another output than Vitrail for {unlike}"
        raise ModelFileError(what, where="weights", hint="give an image size whose grids are multiples of the window")
    head = shapes.get("head.linear.weight")
    return {
        "image_size": image_size or (224, 224),
        **known,
        "channels": channels,
        "patch_size": patch[0],
        "dim": dim,
        "depths": depths,
        "heads": tuple(shapes[table][1] for table in tables),
        "window_size": window,
        "mlp_ratio": ratio_of(shapes[expand][0], shapes[expand][1], known.get("mlp_ratio")),
        "qkv_bias": "stages.0.blocks.0.attention.layer.attention.qkv.bias" in shapes,
        "num_classes": head[0] if head else 0,
    }


def _unlike(layout: Layout, size: Size, patch: int, window: int, depths: tuple[int, ...], rows: Sequence[int]) -> str:
    """Return a grid for which their library computes another output than ours; empty if all outputs are equal.

    The libraries differ in three cases. If windows do not divide a grid, timm shifts the grid and then pads it; Vitrail and
    transformers pad first, which is the same only if half a window is left over. If one side of a grid is as long as a
    window, timm and Vitrail shift along the other side; transformers and the authors do not shift. If a grid is smaller than
    a window, timm and the authors use a smaller window, whose table has fewer ``rows``.
    """
    by_timm = layout.name == TIMM_NAME
    if by_timm and any(side % patch for side in size):
        return f"images of {size[0]}×{size[1]}, which are no multiple of patches of {patch}×{patch}"
    for stage, (grid, depth) in enumerate(zip(_grids(size, patch, len(depths)), depths, strict=True)):
        short, long = sorted(grid)
        text = f"grids of {grid[0]}×{grid[1]}"
        if rows[stage] != _offsets(grid, window) and rows[stage] < rows[0]:
            own = (math.isqrt(rows[stage]) + 1) // 2
            return f"{text} in stage {stage + 1}, which has windows of {own}×{own}"
        if short < window and rows[stage] != _offsets(grid, window):
            return f"{text}, {SMALLER}"
        if short < window and not (by_timm or (layout.name == AUTHORS_NAME and short == long)):
            return f"{text}, {SMALLER}"
        if depth > 1 and by_timm and any(side > window and 2 * (side % window) not in (0, window) for side in grid):
            return f"{text}, which it shifts before the padding"
        if depth > 1 and not by_timm and short == window < long:
            return f"{text}, which it does not shift"
    return ""


def _grids(size: Size, patch: int, stages: int) -> list[Size]:
    """Return rows and columns of the grids of all stages."""
    return [(math.ceil(size[0] / (patch * 2**stage)), math.ceil(size[1] / (patch * 2**stage))) for stage in range(stages)]


def _offsets(grid: Size, window: int) -> int:
    """Return the number of rows (offsets) in the table of a window that is cut to the grid's size."""
    return math.prod(2 * min(side, window) - 1 for side in grid)


def _size_of(layout: Layout, patch: int, window: int, depths: tuple[int, ...], rows: Sequence[int]) -> Size:
    """Return the size of square images for which the last stages have windows as small as in ``rows``."""
    stage = next(stage for stage, count in enumerate(rows) if count != rows[0])
    step, own = patch * 2**stage, (math.isqrt(rows[stage]) + 1) // 2
    for side in range(step * own, step * (own - 1), -patch):
        if side // patch % window == 0 and not _unlike(layout, (side, side), patch, window, depths, rows):
            return side, side
    what = f"stage {stage + 1} has windows of {own}×{own}, smaller than the {window}×{window} of the others"
    raise ModelFileError(what, where="weights", hint="give the image size of the model: image_size=(height, width)")


def _small_tables(names: Iterable[str], config: Any) -> dict[str, Size]:
    """Return the window of each table whose grid, for images of this size, is smaller than ``window_size``."""
    grids = _grids(config.image_size, config.patch_size, len(config.depths))
    tables = {name: grids[int(name.split(".")[1])] for name in names if name.endswith(TABLE_END)}
    windows = {name: (min(grid[0], config.window_size), min(grid[1], config.window_size)) for name, grid in tables.items()}
    return {name: window for name, window in windows.items() if min(window) < config.window_size}


def _holds(name: str, shape: Shape, config: Any) -> bool | None:
    small = _small_tables([name], config)
    return True if name in small and shape[0] == math.prod(2 * side - 1 for side in small[name]) else None


def _settle(ours: dict[str, Tensor], config: Any) -> None:
    """Enlarge tables of smaller windows to ``window_size``. Larger offsets, which no two tokens have, get the nearest value."""
    for name, window in _small_tables(ours, config).items():
        table = ours[name].unflatten(0, [2 * side - 1 for side in window])
        places = [
            torch.arange(1 - config.window_size, config.window_size).clamp(1 - side, side - 1) + side - 1 for side in window
        ]
        ours[name] = table[places[0][:, None], places[1]].flatten(0, 1)


def _share_out(ours: Mapping[str, Tensor], config: Any, layout: Layout) -> dict[str, Tensor]:
    """For timm, which has smaller windows, cut the offsets of such windows out of the middle of the tables."""
    whole, cut = 2 * config.window_size - 1, dict(ours)
    for name, window in _small_tables(ours, config).items() if layout.name == TIMM_NAME else ():
        rows, columns = (slice(config.window_size - side, config.window_size + side - 1) for side in window)
        cut[name] = ours[name].unflatten(0, (whole, whole))[rows, columns].flatten(0, 1)
    return cut


READING = Reading(
    architecture="Swin",
    fields=_fields,
    any_size=True,
    holds=_holds,
    settle=_settle,
    share_out=_share_out,
    not_in_file=("GELU", "norm_eps"),
)
ATTENTION = f"{BLOCK}.attention.layer.attention"
OUTER = {"stages.0.embedding.projection": "patch_embed.proj", "stages.0.embedding.norm": "patch_embed.norm", "norm": "norm"}
BICUBIC = Interpolation(antialias=False)
"""The authors' method to resize tables for larger windows."""
REBUILT = (r"layers\.\d+\.blocks\.\d+\.(attn_mask|attn\.relative_position_index)",)
"""Buffers in older files that can be computed."""


def _authors(merging: str, head: str) -> dict[str, Key]:
    """Return the authors' keys; ``merging`` is our stage whose patch merging they store in ``layers.{s}``.

    The merging before our stage S is part of stage S - 1 in the authors' files, and of stage S in timm's.
    """
    theirs = "layers.{s}.blocks.{j}"
    return {
        **block(theirs, "norm1", "", "", "norm2", "mlp.fc1", "mlp.fc2", ours=BLOCK),
        **weight_and_bias({f"{ATTENTION}.qkv": f"{theirs}.attn.qkv", f"{ATTENTION}.output": f"{theirs}.attn.proj"}),
        **weight_and_bias({**OUTER, f"{merging}.embedding.norm": "layers.{s}.downsample.norm", "head.linear": head}),
        f"{merging}.embedding.reduction.weight": Key("layers.{s}.downsample.reduction.weight"),
        f"{BLOCK}.attention.layer.relative.table": Key("layers.{s}.blocks.{j}.attn.relative_position_bias_table"),
    }


ARGUMENTS = Arguments(
    SwinConfig,
    same={
        "patch_size": "patch_size", "in_chans": "channels", "num_classes": "num_classes", "embed_dim": "dim", "depths": "depths",
        "num_heads": "heads", "window_size": "window_size", "mlp_ratio": "mlp_ratio", "qkv_bias": "qkv_bias",
        "img_size": "image_size",
    },
    harmless=words("drop_rate proj_drop_rate attn_drop_rate drop_path_rate strict_img_size dynamic_img_size weight_init"),
    fixed={"global_pool": ("avg",), "head_dim": (None,), "always_partition": (False,)},
)  # fmt: skip
SIZES = ("tiny_patch4_window7_224", "small_patch4_window7_224", "base_patch4_window7_224", "base_patch4_window12_384",
         "large_patch4_window7_224", "large_patch4_window12_384")  # fmt: skip
MODELS = {f"swin_{size}": preset_of(f"swin_{size}") or {} for size in SIZES}


def _describe_timm(config: SwinConfig) -> dict[str, Any]:
    """Return timm's ``config.json`` for the model: always the first name, with all arguments."""
    arguments = {**ARGUMENTS.describe(config, "num_classes"), "strict_img_size": False}
    return named(next(iter(MODELS)), config, arguments, config.widths[-1], global_pool="avg")


TIMM = Layout(
    name=TIMM_NAME,
    about="timm's Swin Transformer",
    family="timm",
    reading=READING,
    keys=_authors("stages.{s}", "head.fc"),
    ignored=REBUILT,
    colours=replace(IMAGENET, crop_ratio=0.9),
    interpolation=BICUBIC,
    read=ARGUMENTS.of_presets(MODELS),
    describe=_describe_timm,
    describe_data=timm_data,
)
ORIGINAL = Layout(
    name=AUTHORS_NAME,
    written=False,
    about="the authors' Swin Transformer",
    reading=READING,
    keys=_authors("stages.{S}", "head"),
    ignored=REBUILT,
    colours=IMAGENET,
    interpolation=BICUBIC,
)

THEIRS = "encoder.layers.{s}.blocks.{j}"
TRANSFORMERS = Layout(
    name="swin",
    about="transformers' Swin Transformer",
    prefix="swin.",
    reading=READING,
    keys={
        **block(THEIRS, "layernorm_before", "", "", "layernorm_after", "intermediate.dense", "output.dense", ours=BLOCK),
        **weight_and_bias(
            {
                "stages.0.embedding.projection": "embeddings.patch_embeddings.projection",
                "stages.0.embedding.norm": "embeddings.norm",
                f"{ATTENTION}.qkv": tuple(f"{THEIRS}.attention.self.{part}" for part in ("query", "key", "value")),
                f"{ATTENTION}.output": f"{THEIRS}.attention.output.dense",
                "stages.{S}.embedding.norm": "encoder.layers.{s}.downsample.norm",
                "norm": "layernorm",
            }
        ),
        "stages.{S}.embedding.reduction.weight": Key("encoder.layers.{s}.downsample.reduction.weight"),
        f"{BLOCK}.attention.layer.relative.table": Key(f"{THEIRS}.attention.self.relative_position_bias_table"),
    },
    heads=weight_and_bias({"head.linear": "classifier"}),
    ignored=(r"encoder\.layers\.\d+\.blocks\.\d+\.attention\.self\.relative_position_index",),
    described={"image_size": "image_size", "patch_size": "patch_size", "channels": "num_channels", "dim": "embed_dim",
               "depths": "depths", "heads": "num_heads", "window_size": "window_size", "mlp_ratio": "mlp_ratio",
               "qkv_bias": "qkv_bias"},
    harmless=words("hidden_dropout_prob attention_probs_dropout_prob drop_path_rate hidden_size num_layers path_norm"),
    fixed={"hidden_act": ("gelu",), "use_absolute_embeddings": (False,), "layer_norm_eps": (1e-5,)},
    extra=lambda config: {"hidden_act": "gelu", "layer_norm_eps": 1e-5},
    model_types=("swin",),
    classes=("SwinForImageClassification", "SwinModel"),
    colours=IMAGENET,
    interpolation=BICUBIC,
)  # fmt: skip
