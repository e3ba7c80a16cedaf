"""timm's VisionTransformer (https://github.com/huggingface/pytorch-image-models), also of DeiT, MAE, SigLIP and the hybrids."""

from dataclasses import replace

from vitrail.weights.layout import CLIP_COLOURS, Colours, Key, Layout, weight_and_bias

STAGE = "patch_embed.backbone.stages.{s}.blocks.{j}"

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
    ignored=(r"decoder.*", r"mask_token"),
    fields={"norm_eps": 1e-6, "distillation_token": True},
    colours=Colours(crop_ratio=0.9),
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
    needs=("embedding_norm.weight",),
    fields={"norm_eps": 1e-5},
    colours=CLIP_COLOURS,
)
