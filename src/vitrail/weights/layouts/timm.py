"""timm's VisionTransformer (https://github.com/huggingface/pytorch-image-models), also of DeiT, MAE, SigLIP and the hybrids."""

from dataclasses import replace
from typing import Any

from vitrail.data.preparation import Preparation
from vitrail.models.config import ViTConfig
from vitrail.weights.layout import CLIP_COLOURS, IMAGENET, Colours, Key, Layout, weight_and_bias

DESCRIBED = {"image_size": "img_size", "heads": "num_heads"}
ACTIVATIONS = {"gelu": "gelu", "gelu-tanh": "gelu_tanh", "quick-gelu": "quick_gelu", "swiglu": "silu"}
NAMED = {
    "quickgelu": "quick-gelu",
    "large_patch16_siglip(_gap)?_512|patch32_siglip|(so400m|giantopt)_patch16_siglip": "gelu-tanh",
}
"""Models of timm's registry that have another activation, by their names; those of the first SigLIP have GELU there."""
STAGE = "patch_embed.backbone.stages.{s}.blocks.{j}"


def _describe(config: ViTConfig, labels: list[str], preparation: Preparation) -> dict[str, Any]:
    """timm's ``config.json``: a name of its registry that has the right classes, and all that makes it this model."""
    name = "vit_base_patch16_224"
    if config.distillation_token:
        name = "deit_base_distilled_patch16_224"
    elif config.mlp == "swiglu":
        name = "vit_giant_patch14_dinov2"
    elif config.embedding_norm == "tokens":
        name = "vit_base_patch16_clip_224"
    arguments = {
        "img_size": config.image_size,
        "patch_size": config.patch_size,
        "in_chans": config.channels,
        "embed_dim": config.dim,
        "depth": config.depth,
        "num_heads": config.heads,
        "mlp_ratio": config.mlp_dim / config.dim * (2 if config.mlp == "swiglu" else 1),
        "act_layer": ACTIVATIONS[config.mlp],
        "qkv_bias": config.qkv_bias,
        "qk_norm": config.qk_norm,
        "pre_norm": config.embedding_norm == "tokens",
        "init_values": config.layer_scale,
    }
    if not config.distillation_token:
        arguments |= {
            "class_token": config.has_class_token,
            "reg_tokens": config.registers,
            "no_embed_class": False,
            "global_pool": {"class": "token", "mean": "avg", "attention": "map"}[config.pool],
            "fc_norm": config.final_norm == "pooled",
        }
    return {
        "architecture": name,
        "num_classes": config.num_classes,
        "num_features": config.dim,
        "label_names": labels,
        "model_args": arguments,
        "pretrained_cfg": {
            "input_size": [config.channels, *config.image_size],
            "num_classes": config.num_classes,
            "mean": preparation.mean,
            "std": preparation.std,
            "crop_pct": preparation.crop_ratio,
            "crop_mode": "squash" if preparation.fit == "squash" else "center",
            "interpolation": preparation.resampling,
        },
    }


TIMM = Layout(
    name="timm",
    about="timm",
    keys={
        "class_token": Key("cls_token", ndim=3),
        "distillation_token": Key("dist_token", ndim=3),
        "registers": Key("reg_token", ndim=3),
        "position.embedding": Key("pos_embed", ndim=3),
        "blocks.{i}.attention.scale.gamma": Key("blocks.{i}.ls1.gamma"),
        "blocks.{i}.mlp.scale.gamma": Key("blocks.{i}.ls2.gamma"),
        "pool.query": Key("attn_pool.latent", ndim=3),
        **weight_and_bias(
            {
                "embedding.projection": "patch_embed.proj",
                "embedding_norm": "norm_pre",
                "blocks.{i}.attention.norm": "blocks.{i}.norm1",
                "blocks.{i}.attention.layer.qkv": "blocks.{i}.attn.qkv",
                "blocks.{i}.attention.layer.query_norm": "blocks.{i}.attn.q_norm",
                "blocks.{i}.attention.layer.key_norm": "blocks.{i}.attn.k_norm",
                "blocks.{i}.attention.layer.output": "blocks.{i}.attn.proj",
                "blocks.{i}.mlp.norm": "blocks.{i}.norm2",
                "blocks.{i}.mlp.layer.expand": "blocks.{i}.mlp.fc1",
                "blocks.{i}.mlp.layer.contract": "blocks.{i}.mlp.fc2",
                "norm": "norm",
                "pool.attention.query": "attn_pool.q",
                "pool.attention.key_value": "attn_pool.kv",
                "pool.attention.output": "attn_pool.proj",
                "pool.mlp.norm": "attn_pool.norm",
                "pool.mlp.layer.expand": "attn_pool.mlp.fc1",
                "pool.mlp.layer.contract": "attn_pool.mlp.fc2",
                "head.hidden": "pre_logits.fc",
                "head.linear": "head",
                "head_distillation.linear": "head_dist",
                "embedding.resnet.root.0": "patch_embed.backbone.stem.conv",
                "embedding.resnet.root.1": "patch_embed.backbone.stem.norm",
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
    older=weight_and_bias({"blocks.{i}.mlp.layer.expand": ("blocks.{i}.mlp.fc1_g", "blocks.{i}.mlp.fc1_x")}),
    aliases={r"^patch_embed\.backbone\.(?=conv|norm)": "patch_embed.backbone.stem."},  # a hybrid of a root alone
    fields={"norm_eps": 1e-6, "distillation_token": True},
    colours=Colours(crop_ratio=0.9),
    described=DESCRIBED,
    activations=ACTIVATIONS,
    activation="act_layer",
    named=NAMED,
    describe=_describe,
    register_positions=True,
)

TIMM_POOLED = replace(
    TIMM,
    name="timm-pooled",
    about="timm with its norm behind the pooling (fc_norm)",
    keys={**TIMM.keys, **weight_and_bias({"norm": "fc_norm"})},
    fields={"norm_eps": 1e-6, "final_norm": "pooled", "pool": "mean"},
)

TIMM_CLIP = replace(
    TIMM,
    name="timm-clip",
    about="timm's CLIP",
    keys={name: key for name, key in TIMM.keys.items() if name != "embedding.projection.bias"},
    needs=(*TIMM.needs, "embedding_norm.weight"),
    fields={"norm_eps": 1e-5},
    colours=CLIP_COLOURS,
)

MAE_ORIGINAL = replace(
    TIMM,
    name="mae-original",
    about="the encoder of the original MAE",
    ignored=(r"decoder_.*", r"mask_token"),
    colours=IMAGENET,
)
