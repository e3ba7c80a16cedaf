"""The original CLIP's model of images (https://github.com/openai/CLIP)."""

from vitrail.parts.positions import Interpolation
from vitrail.weights.layout import CLIP_COLOURS, Key, Layout, Transposed, own_heads_or_no_bias, weight_and_bias

BLOCK = "transformer.resblocks.{i}"

CLIP_ORIGINAL = Layout(
    name="clip-original",
    about="the original CLIP",
    prefix="visual.",
    keys={
        "class_token": Key("class_embedding", ndim=1),
        "position.embedding": Key("positional_embedding"),
        "embedding.projection.weight": Key("conv1.weight"),
        "head.linear.weight": Transposed("proj"),
        **{f"blocks.{{i}}.attention.layer.qkv.{part}": Key(f"{BLOCK}.attn.in_proj_{part}") for part in ("weight", "bias")},
        **weight_and_bias(
            {
                "embedding_norm": "ln_pre",
                "blocks.{i}.attention.norm": f"{BLOCK}.ln_1",
                "blocks.{i}.attention.layer.output": f"{BLOCK}.attn.out_proj",
                "blocks.{i}.mlp.norm": f"{BLOCK}.ln_2",
                "blocks.{i}.mlp.layer.expand": f"{BLOCK}.mlp.c_fc",
                "blocks.{i}.mlp.layer.contract": f"{BLOCK}.mlp.c_proj",
                "norm": "ln_post",
            }
        ),
    },
    ignored=(
        r"transformer\..*", r"token_embedding\..*", r"positional_embedding", r"ln_final\..*", r"text_projection", r"logit_scale",
        r"input_resolution", r"context_length", r"vocab_size",
    ),  # its model of texts
    needs=("position.embedding", "embedding_norm.weight"),
    fields={"norm_eps": 1e-5, "mlp": "quick-gelu", "head": "projection"},
    lacks=own_heads_or_no_bias,
    colours=CLIP_COLOURS,
    interpolation=Interpolation(antialias=False),  # it has none of its own; this is transformers'
)  # fmt: skip
