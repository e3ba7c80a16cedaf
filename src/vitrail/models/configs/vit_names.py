"""Names of Vision Transformers, in the papers' spelling and timm's, and the sizes that they stand for."""

import re
from typing import Any

SIZES: dict[str, dict[str, int]] = {
    name: dict(zip(("dim", "depth", "heads", "mlp_dim"), numbers, strict=True))
    for name, numbers in {
        "Ti": (192, 12, 3, 768),
        "S": (384, 12, 6, 1536),
        "B": (768, 12, 12, 3072),
        "L": (1024, 24, 16, 4096),
        "H": (1280, 32, 16, 5120),
        "g": (1408, 40, 16, 6144),
        "G": (1664, 48, 16, 8192),
    }.items()
}
"""Width, depth, heads and MLP width of the plain ViTs (Dosovitskiy et al. 2021; Zhai et al. 2022; DeiT for Ti and S)."""

PRESETS: dict[str, dict[str, Any]] = {
    f"ViT-{size}/{patch}": {**SIZES[size], "patch_size": patch}
    for size, patches in {
        "Ti": (16, 32), "S": (8, 14, 16, 32), "B": (8, 14, 16, 32), "L": (14, 16, 32), "H": (14, 16), "g": (14,), "G": (14,),
    }.items()
    for patch in patches
}  # fmt: skip
"""Configurations by name. A name with another patch size works as well."""

PRESETS["ViT-CIFAR10-lecture"] = {
    **SIZES["L"], "image_size": 32, "patch_size": 8, "num_classes": 10, "embedding": "linear", "position": "sincos-1d",
    "head": "lecture", "attention_dropout": 0.1, "head_dropout": 0.1, "norm_eps": 1e-5,
}  # fmt: skip
"""The CIFAR-10 model of the lecture notes: 302,520,350 parameters."""

PRESETS |= {
    f"{resnet}+ViT-{size}/{name}": {**SIZES[size], "patch_size": patch, "embedding": "resnet", "resnet_depths": depths}
    for resnet, size, name, patch, depths in (
        ("R", "Ti", 16, 32, ()),  # 8×8 patches of a root of stride 4; Google's name assumes a stride of 2
        ("R26", "S", 32, 32, (2, 2, 2, 2)),
        ("R26", "B", 32, 32, (2, 2, 2, 2)),
        ("R50", "B", 16, 16, (3, 4, 9)),  # the fourth stage's blocks are in the third, with its stride
        ("R50", "L", 32, 32, (3, 4, 6, 3)),
    )
}
"""The hybrids of the paper (section 3.1) and of Steiner et al. 2022 (https://arxiv.org/abs/2106.10270)."""

PRESETS["R+ViT-CIFAR10"] = {
    "image_size": 32, "patch_size": 4, "num_classes": 10, "dim": 128, "depth": 4, "heads": 4, "mlp_dim": 256, "pool": "mean",
    "embedding": "resnet", "resnet_root": "cifar", "resnet_width": 32,
}  # fmt: skip
"""A hybrid for images of 32 pixels that trains in minutes on a laptop."""

PRESETS |= {
    f"DeiT-{size}{token}{image}": {
        **SIZES[size], "patch_size": 16, **({"distillation_token": True} if token else {}),
        **({"image_size": 384} if image else {}),
    }
    for image in ("", "-384") for token in ("", "-distilled") for size in ("Ti", "S", "B")
    if size == "B" or not image
}  # fmt: skip
"""Sizes of DeiT, Touvron et al. 2021 (https://arxiv.org/abs/2012.12877): plain ViTs, some with a distillation token."""

PRESETS |= {
    f"DeiT-III-{name}": {**sizes, "patch_size": patch, "class_position": False, "layer_scale": 1e-6}
    for name, sizes, patch in (
        ("S", SIZES["S"], 16), ("M", {"dim": 512, "depth": 12, "heads": 8, "mlp_dim": 2048}, 16), ("B", SIZES["B"], 16),
        ("L", SIZES["L"], 16), ("H14", SIZES["H"], 14),
    )
}  # fmt: skip
"""Sizes of DeiT III, Touvron et al. 2022 (https://arxiv.org/abs/2204.07118), whose class token has no position."""

_HYBRID = re.compile(r"(?P<resnet>R[0-9]*)\+(?P<vit>\w+/[0-9]+)")  # R50+B/16 for R50+ViT-B/16
_PAPER = re.compile(r"ViT-(?P<size>\w+)/(?P<patch>[0-9]{1,5})")
_TIMM = re.compile(r"vit_(?P<size>[a-z]+)_patch(?P<patch>[0-9]{1,5})(_(?P<image>[0-9]{1,5}))?")
_TIMM_SIZES = {
    "tiny": "Ti", "small": "S", "base": "B", "large": "L", "huge": "H", "giant": "g", "gigantic": "G",
}  # fmt: skip
_TIMM_HYBRIDS = {
    "vit_tiny_r_s16_p8_224": "R+ViT-Ti/16", "vit_small_r26_s32_224": "R26+ViT-S/32",
    "vit_base_r50_s16_224": "R50+ViT-B/16", "vit_large_r50_s32_224": "R50+ViT-L/32",
}  # fmt: skip
_TIMM_DEIT = re.compile(r"deit(?P<third>3?)_(?P<size>[a-z]+)(?P<token>_distilled)?_patch(?P<patch>14|16)_(?P<image>224|384)")


def preset_of(name: str) -> dict[str, Any] | None:
    """Return the fields of a name in the papers' spelling or timm's, with any patch size; None for an unknown name."""
    if match := _HYBRID.fullmatch(name):
        name = f"{match['resnet']}+ViT-{match['vit']}"
    name = _TIMM_HYBRIDS.get(name, name)
    if match := _TIMM_DEIT.fullmatch(name):
        return _deit(*match.group("third", "size", "token", "patch", "image"))
    if name in PRESETS:
        return PRESETS[name]
    if (match := _PAPER.fullmatch(name)) and match["size"] in SIZES:
        return {**SIZES[match["size"]], "patch_size": int(match["patch"])}
    if (match := _TIMM.fullmatch(name)) and match["size"] in _TIMM_SIZES:
        image = {"image_size": int(match["image"])} if match["image"] else {}
        return {**SIZES[_TIMM_SIZES[match["size"]]], "patch_size": int(match["patch"]), **image}
    return None


def _deit(third: str, size: str, token: str | None, patch: str, image: str) -> dict[str, Any] | None:
    """Return the fields of a DeiT's name in timm; None for an unknown name."""
    letter = {"medium": "M"}.get(size) or _TIMM_SIZES.get(size, size)
    name = f"DeiT{'-III' * bool(third)}-{letter}{patch if letter == 'H' else ''}{'-distilled' if token else ''}"
    if name not in PRESETS or PRESETS[name]["patch_size"] != int(patch):
        return None
    return {**PRESETS[name], **({"image_size": 384} if image == "384" else {})}
