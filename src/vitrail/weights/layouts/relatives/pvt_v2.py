"""The layouts of Pyramid Vision Transformers v2: their authors', timm's and transformers'."""

from collections.abc import Mapping
from typing import Any

from vitrail.models.configs.pvt import PyramidConfig
from vitrail.models.configs.pvt_v2 import PRESETS, PVTv2Config
from vitrail.weights.keys import Shape, weight_and_bias, words
from vitrail.weights.layout import Layout, Reading, Size
from vitrail.weights.layouts.relatives.pvt_reading import (
    AUTHORS,
    DEFAULTS,
    DESCRIBED,
    EPSILONS,
    HARMLESS,
    REDUCTION,
    blocks,
    for_transformers,
    guessed,
    same_widths,
    stages_in,
)
from vitrail.weights.layouts.timm.arguments import known_name, told_by
from vitrail.weights.layouts.timm.description import timm_data
from vitrail.weights.normalization import IMAGENET, Colours

EMBEDDING = "stages.{s}.embedding"


def _fields(shapes: Mapping[str, Shape], known: Mapping[str, Any], image_size: Size | None, layout: Layout) -> dict[str, Any]:
    """The configuration that parameters of these shapes belong to; of the images they tell the channels alone."""
    fields = stages_in(shapes, known)
    pooled = REDUCTION.format(0) in shapes and fields["reductions"][0] == 1  # a convolution that reduces is wider
    if pooled:
        fields["reductions"] = known.get("reductions", fields["reductions"])
    strides = tuple((side + 1) // 2 for side in fields["patch_sizes"])
    return {"image_size": image_size or (224, 224), "strides": strides, **fields, "pooled": pooled}


def _canonical(config: PVTv2Config) -> PyramidConfig:
    """Where keys and values are pooled, nothing is computed of the reductions."""
    config = config.changed(reductions=(1,) * len(config.depths)) if config.pooled else config
    return same_widths(config)


def _guesses(config: PVTv2Config, told: Mapping[str, Any]) -> list[str]:
    strides = [] if "strides" in told else [f"strides {'-'.join(map(str, config.strides))}"]
    return [*guessed(config, told), *strides]


READING = Reading(architecture="PVTv2", fields=_fields, any_size=True, canonical=_canonical, guesses=_guesses)


def _other_patches(config: PVTv2Config) -> str:
    """Says so of patches that neither timm nor the authors have."""
    usual = (7, *(3,) * (len(config.depths) - 1))
    return "" if config.patch_sizes == usual else f"patches of {'-'.join(map(str, config.patch_sizes))}"


def _unlike_the_authors(config: PVTv2Config) -> str:
    """What their constructor cannot build."""
    stages = len(config.depths)
    return _other_patches(config) or ("" if stages == 4 else f"{stages} stages, in place of 4")


ORIGINAL = Layout(
    name="pvt-v2-original",
    about="its authors' PVT v2",
    reading=READING,
    keys={
        **weight_and_bias(
            {
                f"{EMBEDDING}.projection": "patch_embed{S}.proj",
                f"{EMBEDDING}.norm": "patch_embed{S}.norm",
                "stages.{s}.norm": "norm{S}",
                "head.linear": "head",
            }
        ),
        **blocks("block{S}.{j}", **AUTHORS, dwconv="mlp.dwconv.dwconv"),
    },
    fields=EPSILONS,
    lacks=_unlike_the_authors,
    colours=IMAGENET,
)

MODELS = {name.lower().replace("pvtv2-", "pvt_v2_").replace("-", "_"): fields for name, fields in PRESETS.items()}
"""timm's names, and the fields that they fix."""
NAMED = ("dims", "depths", "heads", "reductions", "mlp_ratios", "pooled")
SAME = {
    "img_size": "image_size", "in_chans": "channels", "num_classes": "num_classes", "depths": "depths", "embed_dims": "dims",
    "num_heads": "heads", "sr_ratios": "reductions", "mlp_ratios": "mlp_ratios", "qkv_bias": "qkv_bias", "linear": "pooled",
}  # fmt: skip
"""timm's arguments that mean the same as fields of ours."""
WITHOUT_EFFECT = words("drop_rate proj_drop_rate attn_drop_rate drop_path_rate")
"""Those of training."""


def _read_timm(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that timm's ``config.json`` tells; refuses what is not understood."""
    name = known_name(values, MODELS)
    if name is None:
        return {}
    usual = PVTv2Config(**MODELS[name])
    told = told_by(values, PVTv2Config, same=SAME, harmless=WITHOUT_EFFECT, fixed={"global_pool": ("avg",)})
    return {**{field: getattr(usual, field) for field in NAMED}, **told}


def _describe_timm(config: PVTv2Config) -> dict[str, Any]:
    """What timm builds the same model of: a name, and all that makes it this model."""
    named = {name: PVTv2Config(**preset) for name, preset in MODELS.items()}
    fitting = [name for name, usual in named.items() if all(getattr(usual, f) == getattr(config, f) for f in NAMED)]
    arguments = {theirs: getattr(config, ours) for theirs, ours in SAME.items() if theirs not in ("img_size", "num_classes")}
    return {
        "architecture": fitting[0] if fitting else next(iter(MODELS)),
        "num_classes": config.num_classes,
        "num_features": config.dims[-1],
        "global_pool": "avg",
        "model_args": arguments,
    }


TIMM = Layout(
    name="timm-pvt-v2",
    about="timm's PVT v2",
    family="timm",
    reading=READING,
    keys={
        **weight_and_bias(
            {
                "stages.0.embedding.projection": "patch_embed.proj",
                "stages.0.embedding.norm": "patch_embed.norm",
                f"{EMBEDDING}.projection": "stages.{s}.downsample.proj",
                f"{EMBEDDING}.norm": "stages.{s}.downsample.norm",
                "stages.{s}.norm": "stages.{s}.norm",
                "head.linear": "head",
            }
        ),
        **blocks("stages.{s}.blocks.{j}", **AUTHORS, dwconv="mlp.dwconv"),
    },
    fields=EPSILONS,
    lacks=_other_patches,
    colours=Colours(IMAGENET.mean, IMAGENET.std, crop_ratio=0.9),
    read=_read_timm,
    describe=_describe_timm,
    describe_data=timm_data,
)

TRANSFORMERS = Layout(
    name="pvt-v2",
    about="transformers' PVT v2",
    prefix="pvt_v2.",
    reading=READING,
    keys={
        **weight_and_bias(
            {
                f"{EMBEDDING}.projection": "encoder.layers.{s}.patch_embedding.proj",
                f"{EMBEDDING}.norm": "encoder.layers.{s}.patch_embedding.layer_norm",
                "stages.{s}.norm": "encoder.layers.{s}.layer_norm",
            }
        ),
        **blocks(
            "encoder.layers.{s}.blocks.{j}",
            norm1="layer_norm_1",
            q="attention.query",
            kv=("attention.key", "attention.value"),
            proj="attention.proj",
            sr="attention.spatial_reduction",
            sr_norm="attention.layer_norm",
            norm2="layer_norm_2",
            fc1="mlp.dense1",
            dwconv="mlp.dwconv.dwconv",
            fc2="mlp.dense2",
        ),
    },
    heads=weight_and_bias({"head.linear": "classifier"}),
    fields={"norm_eps": 1e-6, "grid_norm_eps": 1e-6},
    defaults={**DEFAULTS, "patch_sizes": [7, 3, 3, 3], "strides": [4, 2, 2, 2]},
    described={**DESCRIBED, "reductions": "sr_ratios", "strides": "strides", "pooled": "linear_attention"},
    harmless=HARMLESS,
    fixed={"hidden_act": ("gelu",)},
    extra=for_transformers,
    model_types=("pvt_v2",),
    classes=("PvtV2ForImageClassification", "PvtV2Model"),
    colours=Colours(IMAGENET.mean, IMAGENET.std, fit="squash"),
)
