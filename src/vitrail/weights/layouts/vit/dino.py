"""The original weights of DINO (https://github.com/facebookresearch/dino) and DINOv2 (…/dinov2), whose keys are like timm's."""

from dataclasses import replace

from vitrail.parts.positions.interpolation import Interpolation
from vitrail.weights.keys import Key, weight_and_bias
from vitrail.weights.layout import Layout
from vitrail.weights.layouts.timm.timm import TIMM
from vitrail.weights.layouts.vit.keys import not_plain_or_no_bias
from vitrail.weights.layouts.vit.reading import ViTLayout
from vitrail.weights.normalization import IMAGENET

COLOURS = replace(IMAGENET, resampling="bicubic")
PARTS = ("class_token", "position.", "embedding.projection", "blocks.")
UNKNOWN = ("query_norm", "key_norm", "output_norm", "layer.norm")
"""Parts of timm's models that the DINO models lack."""
PLAIN = {
    name: key for name, key in TIMM.keys.items() if name.startswith(PARTS) and not any(part in name for part in UNKNOWN)
} | weight_and_bias({"norm": "norm"})
WRAPPED = {r"^backbone\.": ""}

NEEDED = (*TIMM.needs, "class_token")

DINO = replace(
    TIMM,
    patch_positions=False,
    name="dino",
    about="the original DINO",
    keys={name: key for name, key in PLAIN.items() if ".scale." not in name},
    older={},
    family="",
    activations={},
    read=None,
    describe=None,
    describe_data=None,
    aliases=WRAPPED,
    ignored=(r"head\.(mlp|last_layer)\..*",),
    fields={"norm_eps": 1e-6},
    needs=NEEDED,
    lacks=not_plain_or_no_bias,
    colours=COLOURS,
)


def _dinov2(name: str, *, registers: bool, swiglu: bool) -> Layout:
    """Return one of DINOv2's four layouts. With registers, positions are interpolated with antialiasing, as by the authors."""
    keys = dict(PLAIN)
    if registers:
        keys["registers"] = Key("register_tokens", ndim=3)
    if swiglu:
        keys |= weight_and_bias(
            {"blocks.{i}.mlp.layer.expand": "blocks.{i}.mlp.w12", "blocks.{i}.mlp.layer.contract": "blocks.{i}.mlp.w3"}
        )
    return ViTLayout(
        name=name,
        about="the original DINOv2" + (" with registers" if registers else "") + (" and SwiGLU" if swiglu else ""),
        keys=keys,
        aliases={**WRAPPED, r"^blocks\.\d+\.(\d+)\.": r"blocks.\1."},  # its training saves blocks in chunks
        ignored=(r"mask_token", r"(dino_head|ibot_head)\..*"),
        needs=(*NEEDED, "blocks.0.attention.scale.gamma", *(("registers",) * registers)),
        fields={"norm_eps": 1e-6},
        lacks=not_plain_or_no_bias,
        activations={"swiglu": "swiglu"} if swiglu else {},
        colours=COLOURS,
        interpolation=Interpolation(antialias=registers),
    )


DINOV2_ORIGINALS = tuple(
    _dinov2(f"dinov2-original{'-registers' * registers}{'-swiglu' * swiglu}", registers=registers, swiglu=swiglu)
    for registers in (False, True)
    for swiglu in (False, True)
)
