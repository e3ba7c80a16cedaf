"""The image towers of the original CLIP (https://github.com/openai/CLIP) and of OpenCLIP (…/mlfoundations/open_clip)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from vitrail.models.configs.vit import ViTConfig
from vitrail.parts.positions.interpolation import Interpolation
from vitrail.settings import brief
from vitrail.weights.formats.safe_files import OPEN_CLIP_CONFIG
from vitrail.weights.keys import Key, Transposed, block, weight_and_bias, words
from vitrail.weights.layouts.timm.arguments import Arguments, refused
from vitrail.weights.layouts.vit.keys import not_plain_or_no_bias
from vitrail.weights.layouts.vit.reading import ViTLayout
from vitrail.weights.model_folder.description import described
from vitrail.weights.normalization import CLIP_COLOURS

BLOCK = "transformer.resblocks.{i}"
OPENAI_NUMBERS = ("input_resolution", "context_length", "vocab_size")
"""Keys that only OpenAI's files have."""

CLIP_ORIGINAL = ViTLayout(
    name="clip-original",
    about="the original CLIP",
    prefix="visual.",
    keys={
        "class_token": Key("class_embedding", ndim=1),
        "position.embedding": Key("positional_embedding"),
        "embedding.projection.weight": Key("conv1.weight"),
        "head.linear.weight": Transposed("proj"),
        **{f"blocks.{{i}}.attention.layer.qkv.{part}": Key(f"{BLOCK}.attn.in_proj_{part}") for part in ("weight", "bias")},
        **block(BLOCK, "ln_1", "", "attn.out_proj", "ln_2", "mlp.c_fc", "mlp.c_proj"),
        **weight_and_bias({"embedding_norm": "ln_pre", "norm": "ln_post"}),
    },
    ignored=(
        r"transformer\..*", r"token_embedding\..*", r"positional_embedding", r"ln_final\..*", r"text_projection", r"logit_scale",
        *OPENAI_NUMBERS,
    ),  # the text tower, and OpenAI's numbers
    needs=("position.embedding", "class_token", "embedding_norm.weight"),
    fields={"norm_eps": 1e-5, "mlp": "quick-gelu", "head": "projection"},
    lacks=not_plain_or_no_bias,
    colours=CLIP_COLOURS,
    interpolation=Interpolation(antialias=False),  # CLIP does not interpolate; this is transformers' method
)  # fmt: skip

# OpenCLIP's vision_cfg, entry by entry. An entry that is in none of these tables is refused.

SAME = {"image_size": "image_size", "patch_size": "patch_size", "in_chans": "channels", "width": "dim", "layers": "depth"}
"""Arguments to our fields of the same meaning."""
MEANT = words("final_ln_after_pool head_width mlp_ratio norm_kwargs pool_type")
"""Arguments that `_open_clip` reads."""
HARMLESS = words(
    """
    attn_pooler_heads attn_pooler_queries ls_init_value n_queries output_tokens patch_dropout timm_drop timm_drop_path
    timm_model_pretrained timm_pool timm_proj timm_proj_bias
    """
)
"""Arguments that do not change a trained model's output, that the keys show, or that are for parts it does not have."""
FIXED: dict[str, tuple[Any, ...]] = {
    "act_kwargs": (None, {}), "attentional_pool": (False,), "attn_type": (None,), "block_type": (None, "default"),
    "global_average_pool": (False,), "input_patchnorm": (False,), "no_ln_pre": (False,), "pos_embed_type": ("learnable",),
    "qk_norm": (False,), "scale_attn_inner": (False,), "scale_fc": (False,), "scale_heads": (False,),
    "scaled_cosine_attn": (False,), "timm_model_name": (None,), "scale_attn": (False,),
}  # fmt: skip
"""Arguments that are supported with these values only."""
VISION = Arguments(ViTConfig, SAME, MEANT | HARMLESS, FIXED, where=OPEN_CLIP_CONFIG)
OF_TEXTS = words("custom_text embed_dim multimodal_cfg quick_gelu text_cfg vision_cfg init_logit_bias init_logit_scale")
"""Entries of ``model_cfg``: ``vision_cfg``, and those of the text tower."""


def _open_clip(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return our configuration fields from OpenCLIP's ``open_clip_config.json``."""
    if "model_cfg" not in values:
        return described(values, CLIP_ORIGINAL) if values else {}
    model = values["model_cfg"]
    vision = model.get("vision_cfg") if isinstance(model, dict) else None
    if not isinstance(vision, dict):
        raise refused("model_cfg without vision_cfg", where=OPEN_CLIP_CONFIG)
    for name in model:
        if name not in OF_TEXTS:
            raise refused(f"{name}={brief(model[name])}", where=OPEN_CLIP_CONFIG)
    fields = VISION.read(vision)
    norm = vision.get("norm_kwargs") or {}
    if not isinstance(norm, dict) or norm.keys() - {"eps"}:
        raise refused(f"norm_kwargs={brief(norm)}", where=OPEN_CLIP_CONFIG)
    pools = {"tok": "class", "avg": "mean"}
    pool = vision.get("pool_type", "tok")
    if pool not in pools:
        raise refused(f"pool_type={brief(pool)}", where=OPEN_CLIP_CONFIG)
    width = vision.get("head_width", 64)
    if not isinstance(width, int) or width < 1:
        raise refused(f"head_width={brief(width)}", where=OPEN_CLIP_CONFIG)
    return {
        **fields,
        "heads": ViTConfig.read_field("heads", fields.get("dim", 768) // width, where=OPEN_CLIP_CONFIG),
        "mlp": "quick-gelu" if model.get("quick_gelu") else "gelu",
        "norm_eps": ViTConfig.read_field("norm_eps", norm.get("eps", 1e-5), where=OPEN_CLIP_CONFIG),
        "pool": pools[pool],
        "final_norm": "pooled" if vision.get("final_ln_after_pool") else "tokens",
    }


OPEN_CLIP = replace(
    CLIP_ORIGINAL,
    name="open-clip",
    about="OpenCLIP",
    twin="clip-original",
    keys={
        **CLIP_ORIGINAL.keys,
        "blocks.{i}.attention.scale.gamma": Key(f"{BLOCK}.ls_1.gamma"),
        "blocks.{i}.mlp.scale.gamma": Key(f"{BLOCK}.ls_2.gamma"),
    },
    ignored=(*CLIP_ORIGINAL.ignored[: -len(OPENAI_NUMBERS)], r"logit_bias", r"text\..*", r"attn_mask"),
    fields={"norm_eps": 1e-5, "mlp": "gelu", "head": "projection", "class_token": True},
    read=_open_clip,
)
"""A layout with the keys of the original CLIP. Almost all models of OpenCLIP have GELU, the original has quick GELU. A file
that does not state the activation is read as OpenCLIP's, unless it has keys that only OpenAI's files have."""
