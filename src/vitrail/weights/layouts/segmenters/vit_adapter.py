"""The authors' ViT-Adapter with UPerNet (https://github.com/czczup/ViT-Adapter), in MMSegmentation's checkpoints.

Their blocks see the patches alone. A file does not show whether blocks attend within windows, as some of their detectors do, nor
the normalization of images, which is that of the ViT's own training: ImageNet's for DeiT, 0.5 for AugReg.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from vitrail.models.configs.segmenter import SegmenterConfig
from vitrail.models.configs.vit_names import SIZES
from vitrail.parts.attention.deformable import POINTS
from vitrail.parts.positions.interpolation import Interpolation, resize_positions
from vitrail.weights.keys import Key, Shape, block, ratio_of, weight_and_bias, within
from vitrail.weights.layout import Layout, Reading, Size
from vitrail.weights.layouts.relatives.resnet_reading import batch_norms, convolutions
from vitrail.weights.layouts.segmenters import segmenter_reading as common
from vitrail.weights.layouts.shapes import require_shapes
from vitrail.weights.layouts.vit import reading as vit
from vitrail.weights.normalization import HALF

TABLE = "backbone.position.embedding"
INJECTOR, EXTRACTOR = "neck.interactions.{s}.injector", "neck.interactions.{s}.extractors"
THEIRS = "backbone.interactions.{s}"
SAMPLED = {"value": "value_proj", "offsets": "sampling_offsets", "weights": "attention_weights", "output": "output_proj"}
"""Layers of the deformable attention."""
STEM = {f"neck.prior.stem.{number}": ("backbone.spm.stem", 3 * number) for number in range(3)}
PRIOR = STEM | {f"neck.prior.coarser.{number}": (f"backbone.spm.conv{number + 2}", 0) for number in range(3)}
"""Convolutions of the spatial prior, to their sequence and the place in it; the norm has the next place."""
BICUBIC = Interpolation(antialias=False)
"""The authors' method to resize positions to the patches of an image."""


def _fields(shapes: Mapping[str, Shape], known: Mapping[str, Any], image_size: Size | None, layout: Layout) -> dict[str, Any]:
    decoder, size = common.decoder_fields(shapes, "upernet"), common.size_of(known, image_size, layout)
    sampled = {part: f"neck.interactions.0.injector.layer.{part}.weight" for part in ("value", "weights")}
    require_shapes(shapes, dict.fromkeys(sampled.values(), 2), "a ViT-Adapter")
    width, dim = shapes[sampled["value"]]
    vit_shapes = {name: shape for name, shape in common.inside(shapes).items() if name != "position.embedding"}
    stated = {"norm_eps": 1e-6, "image_size": size, "position": "learned-1d"}
    own = {**common.backbone_fields(vit.READING, vit_shapes, stated, layout), "position": "learned-1d", "class_token": True}
    levels = 3
    return {
        **known,
        **decoder,
        "maps": "adapter",
        "tokens": "drop",
        "image_size": size,
        "channels": own["channels"],
        "deformable_heads": shapes[sampled["weights"]][0] // (levels * POINTS),
        "deformable_ratio": ratio_of(width, dim),
        "backbone": {"architecture": "ViT", **own},
    }


def _side(shape: Shape) -> int:
    """Return the side of the square grid of a position table, whose first row is the class token's; 0 if it is no square."""
    patches = shape[-2] - 1 if len(shape) > 1 else 0
    return math.isqrt(max(0, patches)) if math.isqrt(max(0, patches)) ** 2 == patches else 0


def _holds(name: str, shape: Shape, config: SegmenterConfig) -> bool | None:
    """Accept the position table of any square grid: `_settle` resizes it."""
    if name != TABLE:
        return None
    own: Any = config.backbone
    return shape[-1] == own.dim and _side(shape) > 0


def _settle(ours: dict[str, Tensor], config: SegmenterConfig) -> None:
    """Resize the positions from the grid of the ViT's own training to that of the images, as the authors' code does."""
    own: Any = config.backbone
    table = ours[TABLE].reshape(-1, own.dim)
    side = _side(tuple(table.shape))
    ours[TABLE] = resize_positions(table, (side, side), own.grid, prefix=1, interpolation=BICUBIC)


def _guesses(config: SegmenterConfig, stated: Mapping[str, Any]) -> list[str]:
    own: Any = config.backbone
    return [f"heads {own.heads}", f"norm_eps {own.norm_eps}", own.mlp, "attention among all patches"]


def _extractor(ours: str, theirs: str) -> dict[str, str]:
    """Return the layers of an extractor."""
    return {
        f"{ours}.attention.norm": f"{theirs}.query_norm",
        f"{ours}.attention.layer.norm": f"{theirs}.feat_norm",
        **{f"{ours}.attention.layer.{part}": f"{theirs}.attn.{layer}" for part, layer in SAMPLED.items()},
        f"{ours}.mlp.norm": f"{theirs}.ffn_norm",
        f"{ours}.mlp.layer.expand": f"{theirs}.ffn.fc1",
        f"{ours}.mlp.layer.depthwise": f"{theirs}.ffn.dwconv.dwconv",
        f"{ours}.mlp.layer.contract": f"{theirs}.ffn.fc2",
    }


VIT = {
    "position.embedding": Key("pos_embed", ndim=3),
    **block("blocks.{i}", "norm1", "attn.qkv", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2"),
    **weight_and_bias({"embedding.projection": "patch_embed.proj"}),
    "blocks.{i}.attention.scale.gamma": Key("blocks.{i}.gamma1"),
    "blocks.{i}.mlp.scale.gamma": Key("blocks.{i}.gamma2"),
}
KEYS = {
    **within(VIT, common.BACKBONE, common.BACKBONE),
    **convolutions({f"{ours}.convolution": f"{theirs}.{place}" for ours, (theirs, place) in PRIOR.items()}),
    **batch_norms({f"{ours}.norm": f"{theirs}.{place + 1}" for ours, (theirs, place) in PRIOR.items()}),
    **weight_and_bias(
        {
            "neck.prior.projections.{s}": "backbone.spm.fc{S}",
            f"{INJECTOR}.norm": f"{THEIRS}.injector.query_norm",
            f"{INJECTOR}.layer.norm": f"{THEIRS}.injector.feat_norm",
            **{f"{INJECTOR}.layer.{part}": f"{THEIRS}.injector.attn.{layer}" for part, layer in SAMPLED.items()},
            **_extractor(f"{EXTRACTOR}.0", f"{THEIRS}.extractor"),
            **_extractor(f"{EXTRACTOR}.{{J}}", f"{THEIRS}.extra_extractors.{{j}}"),
            "neck.up": "backbone.up",
        }
    ),
    "neck.level": Key("backbone.level_embed"),
    f"{INJECTOR}.scale.gamma": Key(f"{THEIRS}.injector.gamma"),
    **batch_norms({"neck.norms.{s}": "backbone.norm{S}"}),
    **common.upernet_keys("bn", "conv_seg"),
}


def _of_augreg(config: SegmenterConfig) -> str:
    """Return a few words for a width that the authors trained from AugReg's ViT alone."""
    dim = config.backbone.dim  # type: ignore[attr-defined]
    return f"width of {dim}: its authors start from AugReg's ViT" if dim == SIZES["L"]["dim"] else ""


DEIT = Layout(
    name="vit-adapter",
    about="the authors' ViT-Adapter from DeiT",
    written=False,
    twin="vit-adapter-augreg",
    reading=Reading(
        architecture="Segmenter",
        fields=_fields,
        covers=lambda config: config.maps == "adapter",
        any_size=True,
        holds=_holds,
        settle=_settle,
        guesses=_guesses,
    ),
    keys=KEYS,
    needs=(TABLE, "neck.level"),
    lacks=_of_augreg,
    colours=common.COLOURS,
    interpolation=BICUBIC,
)
AUGREG = replace(
    DEIT,
    name="vit-adapter-augreg",
    about="the authors' ViT-Adapter from AugReg",
    twin="vit-adapter",
    lacks=lambda config: "",
    colours=replace(common.COLOURS, mean=HALF.mean, std=HALF.std),
)
