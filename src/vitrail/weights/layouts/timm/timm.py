"""timm's Vision Transformers (https://github.com/huggingface/pytorch-image-models), including BEiT, EVA and DINOv3."""

from collections.abc import Callable
from dataclasses import replace

from vitrail.models.configs.vit import ViTConfig
from vitrail.parts.positions.interpolation import Interpolation
from vitrail.weights.keys import Joined, Key, block, weight_and_bias
from vitrail.weights.layout import Layout
from vitrail.weights.layouts.timm.arguments import ACTIVATIONS, reader
from vitrail.weights.layouts.timm.description import describe_beit, describe_eva, describe_vit, timm_data
from vitrail.weights.layouts.vit.keys import Turned, WithoutKeyBias, not_plain_or_no_bias
from vitrail.weights.layouts.vit.reading import ViTLayout
from vitrail.weights.normalization import CLIP_COLOURS, IMAGENET, Colours

STAGE = "patch_embed.backbone.stages.{s}.blocks.{j}"

LAST_NORM = {
    f"norm.{part}": (
        Key(f"norm.{part}", when=lambda config: config.final_norm != "pooled", tells={"final_norm": "tokens"}),
        Key(f"fc_norm.{part}", when=lambda config: config.final_norm == "pooled", tells={"final_norm": "pooled"}),
    )
    for part in ("weight", "bias")
}
"""The last norm, before or after the pooling."""


def _expand(apart: Callable[[ViTConfig], bool]) -> dict[str, tuple[Key, ...]]:
    gate, gated = ("blocks.{i}.mlp.fc1_g", "blocks.{i}.mlp.fc1_x")
    return {
        f"blocks.{{i}}.mlp.layer.expand.{part}": (
            Key(f"blocks.{{i}}.mlp.fc1.{part}", when=lambda config: not apart(config)),
            Joined(f"{gate}.{part}", rest=(f"{gated}.{part}",), when=apart),
        )
        for part in ("weight", "bias")
    }


def _root() -> dict[str, tuple[Key, ...]]:
    return {
        f"embedding.resnet.root.{i}.{part}": (
            Key(f"patch_embed.backbone.stem.{theirs}.{part}", when=lambda config: bool(config.resnet_depths)),
            Key(f"patch_embed.backbone.{theirs}.{part}", when=lambda config: not config.resnet_depths),
        )
        for i, theirs in enumerate(("conv", "norm"))
        for part in ("weight", "bias")
    }


TIMM = ViTLayout(
    name="timm",
    about="timm",
    family="timm",
    keys={
        **LAST_NORM,
        **_root(),
        **_expand(lambda config: config.mlp == "swiglu" and config.norm_kind == "rms"),
        "embedding.projection.weight": Key("patch_embed.proj.weight"),
        "embedding.projection.bias": Key("patch_embed.proj.bias", when=lambda config: config.embedding_norm != "tokens"),
        "class_token": Key("cls_token", ndim=3),
        "distillation_token": Key("dist_token", ndim=3),
        "registers": Key("reg_token", ndim=3),
        "position.embedding": Key("pos_embed", ndim=3),
        "blocks.{i}.attention.scale.gamma": Key("blocks.{i}.ls1.gamma"),
        "blocks.{i}.mlp.scale.gamma": Key("blocks.{i}.ls2.gamma"),
        "pool.query": Key("attn_pool.latent", ndim=3),
        **block("blocks.{i}", "norm1", "attn.qkv", "attn.proj", "norm2", "", "mlp.fc2"),
        **weight_and_bias(
            {
                "embedding.token_norm": "patch_embed.norm",
                "blocks.{i}.attention.layer.query_norm": "blocks.{i}.attn.q_norm",
                "blocks.{i}.attention.layer.key_norm": "blocks.{i}.attn.k_norm",
                "blocks.{i}.attention.layer.output_norm": "blocks.{i}.attn.norm",
                "blocks.{i}.mlp.layer.norm": "blocks.{i}.mlp.norm",
                "pool.attention.query": "attn_pool.q",
                "pool.attention.key_value": "attn_pool.kv",
                "pool.attention.output": "attn_pool.proj",
                "pool.mlp.norm": "attn_pool.norm",
                "pool.mlp.layer.expand": "attn_pool.mlp.fc1",
                "pool.mlp.layer.contract": "attn_pool.mlp.fc2",
                "head.linear": "head",
                "head_distillation.linear": "head_dist",
                "embedding.resnet.stages.{s}.{j}.shortcut.0": f"{STAGE}.downsample.conv",
                "embedding.resnet.stages.{s}.{j}.shortcut.1": f"{STAGE}.downsample.norm",
                "embedding.resnet.stages.{s}.{j}.reduce.0": f"{STAGE}.conv1",
                "embedding.resnet.stages.{s}.{j}.reduce.1": f"{STAGE}.norm1",
                "embedding.resnet.stages.{s}.{j}.spread.0": f"{STAGE}.conv2",
                "embedding.resnet.stages.{s}.{j}.spread.1": f"{STAGE}.norm2",
                "embedding.resnet.stages.{s}.{j}.expand.0": f"{STAGE}.conv3",
                "embedding.resnet.stages.{s}.{j}.expand.1": f"{STAGE}.norm3",
            }
        ),
    },
    older=weight_and_bias({"head.hidden": "pre_logits.fc"}),  # up to version 0.5
    fields={"norm_eps": 1e-6, "distillation_token": True},
    colours=Colours(crop_ratio=0.9),
    activations=ACTIVATIONS,
    read=reader("timm"),
    describe=describe_vit,
    describe_data=timm_data,
    register_positions=True,
    patch_positions=True,
)

TIMM_CLIP = replace(
    TIMM,
    name="timm-clip",
    about="timm's CLIP",
    keys={name: key for name, key in TIMM.keys.items() if not name.startswith("pool.")}
    | weight_and_bias({"embedding_norm": "norm_pre"}),
    needs=(*TIMM.needs, "embedding_norm.weight"),
    fields={"norm_eps": 1e-5},
    colours=CLIP_COLOURS,
)


def _eva(name: str, about: str, *, interleaved: bool, columns_first: bool) -> Layout:
    layer = "blocks.{i}.attention.layer"

    def turned(theirs: str, *rest: str) -> Turned:
        return Turned(theirs, rest=rest, interleaved=interleaved, columns_first=columns_first)

    parts = ("weight", "bias")
    return replace(
        TIMM,
        name=name,
        about=about,
        keys={
            **TIMM.keys,
            **weight_and_bias({"embedding_norm": "norm_pre"}),
            **_expand(lambda config: config.mlp == "swiglu" and config.mlp_norm),
            **{f"{layer}.qkv.{part}": turned(f"blocks.{{i}}.attn.qkv.{part}") for part in parts},
            **{f"{layer}.query_norm.{part}": turned(f"blocks.{{i}}.attn.q_norm.{part}") for part in parts},
            **{f"{layer}.key_norm.{part}": turned(f"blocks.{{i}}.attn.k_norm.{part}") for part in parts},
            "blocks.{i}.attention.scale.gamma": Key("blocks.{i}.gamma_1"),
            "blocks.{i}.mlp.scale.gamma": Key("blocks.{i}.gamma_2"),
        },
        older={
            **TIMM.older,
            f"{layer}.qkv.weight": turned(*(f"blocks.{{i}}.attn.{part}_proj.weight" for part in "qkv")),
            f"{layer}.qkv.bias": WithoutKeyBias(
                "blocks.{i}.attn.q_bias", rest=("blocks.{i}.attn.v_bias",), interleaved=interleaved, columns_first=columns_first
            ),
        },
        aliases={r"\.attn\.([qv])_proj\.bias$": r".attn.\1_bias"},
        needs=(),
        fields={"norm_eps": 1e-6},
        undecided=("position", "pool", "norm_eps"),
        read=reader(name),
        describe=describe_eva(name),
        colours=CLIP_COLOURS,
    )


EVA = _eva("timm-eva", "timm's EVA", interleaved=True, columns_first=False)
DINOV3 = _eva("timm-dinov3", "timm's DINOv3", interleaved=False, columns_first=False)
ROPE = _eva("timm-rope", "timm's ViT with rotary positions", interleaved=True, columns_first=True)

BEIT = replace(
    TIMM,
    name="timm-beit",
    about="timm's BEiT",
    keys={
        **TIMM.keys,
        "blocks.{i}.attention.layer.qkv.bias": WithoutKeyBias("blocks.{i}.attn.q_bias", rest=("blocks.{i}.attn.v_bias",)),
        "blocks.{i}.attention.scale.gamma": Key("blocks.{i}.gamma_1"),
        "blocks.{i}.mlp.scale.gamma": Key("blocks.{i}.gamma_2"),
        "relative.tables.{i}": Key("blocks.{i}.attn.relative_position_bias_table"),
    },
    ignored=(r".*relative_position_index", r".*\.k_bias", r"mask_token"),
    needs=("relative.tables.0",),
    fields={"norm_eps": 1e-6},
    read=reader("timm-beit"),
    describe=describe_beit,
    interpolation=Interpolation(relative=Interpolation("geometric")),
)

MAE_PARTS = ("class_token", "position.", "embedding.projection", "blocks.", "norm.", "head.")
NOT_OF_MAE = (".scale.", "query_norm", "key_norm", "output_norm", "layer.norm")
MAE_ORIGINAL = replace(
    TIMM,
    name="mae-original",
    about="the encoder of the original MAE",
    family="",
    keys={
        name: key
        for name, key in TIMM.keys.items()
        if name.startswith(MAE_PARTS) and not any(part in name for part in NOT_OF_MAE)
    },
    needs=(*TIMM.needs, "class_token"),
    patch_positions=False,
    fields={"norm_eps": 1e-6},
    activations={},
    lacks=not_plain_or_no_bias,
    ignored=(r"decoder_.*", r"mask_token"),
    read=None,
    describe=None,
    describe_data=None,
    colours=IMAGENET,
)
