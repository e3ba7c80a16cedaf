"""torchvision's VisionTransformer (https://github.com/pytorch/vision)."""

from dataclasses import replace

from vitrail.parts.positions.interpolation import Interpolation
from vitrail.weights.keys import Key, block, weight_and_bias
from vitrail.weights.layouts.vit.keys import not_plain_or_no_bias, not_square
from vitrail.weights.layouts.vit.reading import ViTLayout
from vitrail.weights.normalization import IMAGENET

BLOCK = "encoder.layers.encoder_layer_{i}"

TORCHVISION = ViTLayout(
    name="torchvision",
    about="torchvision",
    keys={
        "class_token": Key("class_token", ndim=3),
        "position.embedding": Key("encoder.pos_embedding", ndim=3),
        **{
            f"blocks.{{i}}.attention.layer.qkv.{part}": Key(f"{BLOCK}.self_attention.in_proj_{part}")
            for part in ("weight", "bias")
        },
        **block(BLOCK, "ln_1", "", "self_attention.out_proj", "ln_2", "mlp.0", "mlp.3"),
        **weight_and_bias(
            {
                "embedding.projection": "conv_proj",
                "norm": "encoder.ln",
                "head.hidden": "heads.pre_logits",
                "head.linear": "heads.head",
            }
        ),
    },
    aliases={r"\.mlp\.linear_1\.": ".mlp.0.", r"\.mlp\.linear_2\.": ".mlp.3."},  # before version 0.13
    fields={"norm_eps": 1e-6},
    pools=("class",),
    needs=("position.embedding", "class_token"),
    lacks=lambda config: not_plain_or_no_bias(config) or not_square(config),
    colours=replace(IMAGENET, resampling="bilinear"),
    interpolation=Interpolation(antialias=False, align_corners=True),
)
