"""The layouts of Pyramid Vision Transformers: of the authors and of transformers."""

from collections.abc import Mapping
from typing import Any

from vitrail.errors import ModelFileError
from vitrail.models.configs.pvt import PVTConfig
from vitrail.models.vision.pvt import BILINEAR
from vitrail.weights.keys import Key, Shape, weight_and_bias
from vitrail.weights.layout import Layout, Reading, Size
from vitrail.weights.layouts.relatives import pvt_reading as common
from vitrail.weights.layouts.shapes import image_size_of
from vitrail.weights.normalization import IMAGENET, Colours

EMBEDDING = "stages.{s}.embedding"
FIRST_TABLE = "stages.0.embedding.position.embedding"


def _fields(shapes: Mapping[str, Shape], known: Mapping[str, Any], image_size: Size | None, layout: Layout) -> dict[str, Any]:
    """Return the configuration fields for parameters of these shapes; images are square unless another size is given."""
    fields, table = common.stages_in(shapes, known), shapes.get(FIRST_TABLE, ())
    if len(table) < 2:
        raise ModelFileError(f"no {FIRST_TABLE} of a Pyramid Vision Transformer", where="weights")
    tokens = table[-2] - (len(fields["depths"]) == 1)  # the last stage has a class token
    patch = fields["patch_sizes"][0]
    return {**fields, "image_size": image_size_of(tokens, (patch, patch), (known.get("image_size"), image_size))}


READING = Reading(architecture="PVT", fields=_fields, canonical=common.same_widths, not_in_file=common.NOT_IN_FILE)


def _other_positions(config: PVTConfig) -> str:
    """Return a few words for position tables of other sizes than the authors' and transformers' (patches of 4, then 2)."""
    side = config.image_size[0]
    sides = [side, *(side // 2 ** (stage + 1) for stage in range(1, len(config.depths)))]
    if len(set(config.image_size)) != 1:
        return "images that are not square"
    if config.grids() == [(side // patch,) * 2 for side, patch in zip(sides, config.patch_sizes, strict=True)]:
        return ""
    return f"positions for patches of {'-'.join(map(str, config.patch_sizes))} in images of {side} pixels"


def _extra(config: PVTConfig) -> dict[str, Any]:
    """Return further entries of ``config.json``, including ``num_labels``: transformers' default of 1000 overrides the names."""
    classes = {"num_labels": config.num_classes} if config.num_classes else {}
    return common.for_transformers(config, strides=list(config.patch_sizes), **classes)


ORIGINAL = Layout(
    name="pvt-original",
    written=False,
    about="the authors' PVT",
    reading=READING,
    keys={
        **weight_and_bias({f"{EMBEDDING}.projection": "patch_embed{S}.proj", f"{EMBEDDING}.norm": "patch_embed{S}.norm"}),
        f"{EMBEDDING}.position.embedding": Key("pos_embed{S}", ndim=3),
        "stages.3.embedding.class_token": Key("cls_token", ndim=3),  # the authors' models have four stages
        **common.blocks("block{S}.{j}", **common.AUTHORS),
        **weight_and_bias({"norm": "norm", "head.linear": "head"}),
    },
    fields=common.EPSILONS,
    lacks=_other_positions,
    colours=IMAGENET,
    interpolation=BILINEAR,
)

TRANSFORMERS = Layout(
    name="pvt",
    about="transformers' PVT",
    prefix="pvt.",
    reading=READING,
    keys={
        **weight_and_bias(
            {
                f"{EMBEDDING}.projection": "encoder.patch_embeddings.{s}.projection",
                f"{EMBEDDING}.norm": "encoder.patch_embeddings.{s}.layer_norm",
            }
        ),
        f"{EMBEDDING}.position.embedding": Key("encoder.patch_embeddings.{s}.position_embeddings", ndim=3),
        f"{EMBEDDING}.class_token": Key("encoder.patch_embeddings.{s}.cls_token", ndim=3),
        **common.blocks(
            "encoder.block.{s}.{j}",
            norm1="layer_norm_1",
            q="attention.self.query",
            kv=("attention.self.key", "attention.self.value"),
            proj="attention.output.dense",
            sr="attention.self.sequence_reduction",
            sr_norm="attention.self.layer_norm",
            norm2="layer_norm_2",
            fc1="mlp.dense1",
            fc2="mlp.dense2",
        ),
        **weight_and_bias({"norm": "encoder.layer_norm"}),
    },
    heads=weight_and_bias({"head.linear": "classifier"}),
    fields={"norm_eps": 1e-6, "grid_norm_eps": 1e-6},
    defaults={**common.DEFAULTS, "patch_sizes": [4, 2, 2, 2]},
    described={**common.DESCRIBED, "reductions": "sequence_reduction_ratios"},
    harmless=common.HARMLESS | {"strides"},  # in transformers' PVT they are the sides of patches
    fixed={"hidden_act": ("gelu",)},
    lacks=_other_positions,
    extra=_extra,
    model_types=("pvt",),
    classes=("PvtForImageClassification", "PvtModel"),
    colours=Colours(IMAGENET.mean, IMAGENET.std, fit="squash"),
    interpolation=BILINEAR,
)
