"""The layouts of Pyramid Vision Transformers v2: of the authors, of timm and of transformers."""

from collections.abc import Mapping
from typing import Any

from vitrail.models.configs.pvt import PyramidConfig
from vitrail.models.configs.pvt_v2 import PRESETS, PVTv2Config
from vitrail.weights.keys import Shape, weight_and_bias, words
from vitrail.weights.layout import Layout, Reading, Size
from vitrail.weights.layouts.relatives import pvt_reading as common
from vitrail.weights.layouts.timm.arguments import Arguments
from vitrail.weights.layouts.timm.description import named, timm_data
from vitrail.weights.normalization import IMAGENET, Colours

EMBEDDING = "stages.{s}.embedding"


def _fields(shapes: Mapping[str, Shape], known: Mapping[str, Any], image_size: Size | None, layout: Layout) -> dict[str, Any]:
    """Return the configuration fields for parameters of these shapes, which show the images' channels but not their size."""
    fields = common.stages_in(shapes, known)
    pooled = common.REDUCTION.format(0) in shapes and fields["reductions"][0] == 1  # a reducing convolution has a larger kernel
    if pooled:
        fields["reductions"] = known.get("reductions", fields["reductions"])
    strides = tuple((side + 1) // 2 for side in fields["patch_sizes"])
    return {"image_size": image_size or (224, 224), "strides": strides, **fields, "pooled": pooled}


def _canonical(config: PVTv2Config) -> PyramidConfig:
    config = config.changed(reductions=(1,) * len(config.depths)) if config.pooled else config
    return common.same_widths(config)


READING = Reading(
    architecture="PVTv2", fields=_fields, any_size=True, canonical=_canonical, not_in_file=(*common.NOT_IN_FILE, "strides")
)


def _other_patches(config: PVTv2Config) -> str:
    usual = (7, *(3,) * (len(config.depths) - 1))
    return "" if config.patch_sizes == usual else f"patches of {'-'.join(map(str, config.patch_sizes))}"


ORIGINAL = Layout(
    name="pvt-v2-original",
    written=False,
    about="the authors' PVT v2",
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
        **common.blocks("block{S}.{j}", **common.AUTHORS, dwconv="mlp.dwconv.dwconv"),
    },
    fields=common.EPSILONS,
    lacks=_other_patches,
    colours=IMAGENET,
)

NAMED = ("dims", "depths", "heads", "reductions", "mlp_ratios", "pooled")
"""Fields that follow from timm's name of a model."""
MODELS: dict[str, dict[str, Any]] = {
    name.lower().replace("pvtv2-", "pvt_v2_").replace("-", "_"): {
        field: getattr(config, field) for config in [PVTv2Config(**preset)] for field in NAMED
    }
    for name, preset in PRESETS.items()
}
ARGUMENTS = Arguments(
    PVTv2Config,
    same={
        "img_size": "image_size", "in_chans": "channels", "num_classes": "num_classes", "depths": "depths", "embed_dims": "dims",
        "num_heads": "heads", "sr_ratios": "reductions", "mlp_ratios": "mlp_ratios", "qkv_bias": "qkv_bias", "linear": "pooled",
    },
    harmless=words("drop_rate proj_drop_rate attn_drop_rate drop_path_rate"),
    fixed={"global_pool": ("avg",)},
)  # fmt: skip


def _describe_timm(config: PVTv2Config) -> dict[str, Any]:
    """Return timm's ``config.json`` for the model: a name and arguments."""
    fields = {field: getattr(config, field) for field in NAMED}
    name = next((name for name, usual in MODELS.items() if usual == fields), next(iter(MODELS)))
    arguments = ARGUMENTS.describe(config, "img_size", "num_classes")
    return named(name, config, arguments, config.dims[-1], global_pool="avg")


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
        **common.blocks("stages.{s}.blocks.{j}", **common.AUTHORS, dwconv="mlp.dwconv"),
    },
    fields=common.EPSILONS,
    lacks=_other_patches,
    colours=Colours(IMAGENET.mean, IMAGENET.std, crop_ratio=0.9),
    read=ARGUMENTS.of_presets(MODELS),
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
        **common.blocks(
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
    defaults={**common.DEFAULTS, "patch_sizes": [7, 3, 3, 3], "strides": [4, 2, 2, 2]},
    described={**common.DESCRIBED, "reductions": "sr_ratios", "strides": "strides", "pooled": "linear_attention"},
    harmless=common.HARMLESS,
    fixed={"hidden_act": ("gelu",)},
    extra=common.for_transformers,
    model_types=("pvt_v2",),
    classes=("PvtV2ForImageClassification", "PvtV2Model"),
    colours=Colours(IMAGENET.mean, IMAGENET.std, fit="squash"),
)
