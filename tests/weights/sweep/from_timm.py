"""timm: every name of its Vision Transformers, their kin and residual networks, and all combinations of what users may set."""

import itertools
import logging
import math
import re
from contextlib import suppress
from pathlib import Path

import timm
from safetensors.torch import save_file
from timm.models import save_for_hf
from torch import nn

from sweep.judging import Asked, Findings, randomized
from sweep.writing import TIMM_FOLDERS, load_timm, write

logging.getLogger("timm").setLevel(logging.ERROR)
MODULES = (
    "vision_transformer", "vision_transformer_hybrid", "deit", "eva", "beit", "vision_transformer_relpos", "naflexvit",
    "vision_transformer_sam", "vitamin", "resnet", "resnetv2", "swin_transformer", "swin_transformer_v2",
    "swin_transformer_v2_cr", "pvt_v2", "tnt", "mlp_mixer",
)  # fmt: skip
SMALL = {"img_size": 32, "patch_size": 8, "embed_dim": 128, "depth": 2, "num_heads": 2, "num_classes": 5}
CONVOLUTIONAL = {"layers": (1, 2, 1, 1)}
"""What makes a residual network small."""
VARIANTS = [
    {"global_pool": pool, "class_token": token, "reg_tokens": registers, "no_embed_class": bare, "fc_norm": norm}
    for pool, token, registers, bare, norm in itertools.product(
        ("token", "avg", "avgmax", "max", "map", ""), (True, False), (0, 2), (True, False), (None, True, False)
    )
    if token or pool != "token"
] + [
    {"qkv_bias": False}, {"qk_norm": True}, {"init_values": 1.0}, {"pre_norm": True}, {"final_norm": False}, {"in_chans": 1},
    {"num_classes": 0}, {"num_classes": 0, "global_pool": "avg"}, {"act_layer": "relu"}, {"act_layer": "quick_gelu"},
    {"act_layer": "gelu_tanh"}, {"norm_layer": "layernorm"}, {"norm_layer": "rmsnorm"}, {"mlp_layer": "swiglu"},
    {"proj_bias": False}, {"scale_attn_norm": True}, {"scale_mlp_norm": True}, {"pos_embed": "none"}, {"mlp_ratio": 3},
    {"img_size": (32, 48), "patch_size": (8, 16)}, {"img_size": 36}, {"num_heads": 4}, {"drop_path_rate": 0.1},
    {"dynamic_img_size": True}, {"dynamic_img_pad": True}, {"block_fn": "parallel"}, {"attn_layer": "diff"},
]  # fmt: skip
"""Combinations of a constructor's arguments, on a small ViT."""


CONVOLUTIONAL_VARIANTS = [
    {"in_chans": 1}, {"num_classes": 0}, {"layers": (2, 1, 1, 1)}, {"channels": (64, 64, 64, 64)}, {"output_stride": 8},
    {"global_pool": "max"}, {"global_pool": "catavgmax"}, {"cardinality": 2}, {"base_width": 32}, {"stem_type": "deep"},
    {"stem_width": 32}, {"replace_stem_pool": True}, {"block_reduce_first": 2}, {"down_kernel_size": 3}, {"avg_down": True},
    {"act_layer": "silu"}, {"norm_layer": "groupnorm"}, {"drop_rate": 0.1}, {"block_args": {"attn_layer": "se"}},
]  # fmt: skip
"""The same of a small ResNet."""
FEWER_BLOCKS = {
    "swin_transformer": {"depths": (2, 1, 1, 1)}, "swin_transformer_v2": {"depths": (2, 1, 1, 1)},
    "swin_transformer_v2_cr": {"depths": (1, 1), "num_heads": (4, 8)}, "pvt_v2": {"depths": (1, 2, 1, 1)},
}  # fmt: skip
"""What makes models of stages smaller, by their module."""
TRAINING = {"drop_rate": 0.1, "proj_drop_rate": 0.1, "attn_drop_rate": 0.1, "drop_path_rate": 0.1}
RELATIVES: dict[str, tuple[dict, list[dict]]] = {
    "swin_tiny_patch4_window7_224": (
        {"img_size": 64, "embed_dim": 32, "depths": (2, 2), "num_heads": (1, 2), "window_size": 4, "num_classes": 5},
        [
            {}, {"window_size": 8}, {"window_size": 16}, {"window_size": 5}, {"window_size": 6}, {"window_size": 32},
            {"window_size": (4, 8)}, {"img_size": 56}, {"img_size": (48, 96)}, {"img_size": 16}, {"img_size": 60},
            {"patch_size": 2}, {"patch_size": 8}, {"patch_size": (4, 8)}, {"qkv_bias": False}, {"global_pool": "max"},
            {"global_pool": "avgmax"}, {"global_pool": ""}, TRAINING, {"norm_layer": "rmsnorm"}, {"act_layer": "relu"},
            {"always_partition": True}, {"always_partition": True, "window_size": 16}, {"head_dim": 16},
            {"strict_img_size": False}, {"dynamic_img_size": True}, {"mlp_ratio": 3}, {"mlp_ratio": 2.7}, {"num_classes": 0},
            {"in_chans": 1}, {"depths": (1, 2, 1), "num_heads": (1, 2, 4)}, {"depths": (2,), "num_heads": (1,)},
            {"num_heads": (2, 2)}, {"num_heads": 2}, {"ape": True}, {"patch_norm": False},
        ],
    ),
    "pvt_v2_b0": (
        {"depths": (1, 1, 1, 1), "embed_dims": (32, 64, 96, 128), "num_heads": (1, 2, 3, 4), "num_classes": 5},
        [
            {}, {"linear": True}, {"linear": True, "sr_ratios": (4, 2, 1, 1)}, {"qkv_bias": False}, {"sr_ratios": (4, 2, 1, 1)},
            {"sr_ratios": (4, 4, 2, 2)}, {"mlp_ratios": (2, 3, 4, 4)}, {"mlp_ratios": (2.5, 3, 4, 4)},
            {"num_heads": (2, 2, 2, 2)}, {"global_pool": "max"}, {"global_pool": ""}, {"in_chans": 1}, {"num_classes": 0},
            {"norm_layer": "rmsnorm"}, {"act_layer": "relu"}, TRAINING, {"depths": (1, 2, 1, 1)},
            {"depths": (1, 2), "embed_dims": (32, 64), "num_heads": (1, 2), "sr_ratios": (2, 1), "mlp_ratios": (2, 2)},
        ],
    ),
    "tnt_s_patch16_224": (
        {"img_size": 32, "embed_dim": 128, "inner_dim": 24, "depth": 2, "num_heads_outer": 2, "num_classes": 5},
        [
            {}, {"legacy": True}, {"global_pool": "avg"}, {"global_pool": "max"}, {"global_pool": ""}, {"qkv_bias": True},
            {"first_stride": 2}, {"first_stride": 8}, {"mlp_ratio": 3}, {"num_heads_inner": 2}, {"num_heads_outer": 4},
            {"in_chans": 1}, {"num_classes": 0}, {"img_size": (32, 48)}, {"patch_size": (8, 16)}, {"patch_size": 8},
            {"norm_layer": "rmsnorm"}, {"act_layer": "relu"}, {**TRAINING, "pos_drop_rate": 0.1},
        ],
    ),
    "mixer_s32_224": (
        {"img_size": 64, "num_classes": 5},
        [
            {}, {"mlp_ratio": (1, 2)}, {"mlp_ratio": (0.3, 2)}, {"img_size": (64, 96)}, {"in_chans": 1}, {"num_classes": 0},
            {"global_pool": "max"}, {"global_pool": ""}, {"act_layer": "relu"}, {"norm_layer": "rmsnorm"}, {"stem_norm": True},
            {"nlhb": True}, {"drop_rate": 0.1, "proj_drop_rate": 0.1, "drop_path_rate": 0.1},
        ],
    ),
}  # fmt: skip
"""By the name of a model: what makes it small, and the variants of it."""


def names() -> list[str]:
    """Every name of the modules above, and one for every variant."""
    return [name for module in MODULES for name in timm.list_models(module=module)] + list(_variants())


def _variants() -> dict[str, dict]:
    named = [
        *(("vit_tiny_patch16_224", {**SMALL, **variant}, variant) for variant in VARIANTS),
        *(
            (name, {**CONVOLUTIONAL, **variant}, variant)
            for name in ("resnet18", "resnet50")
            for variant in CONVOLUTIONAL_VARIANTS
        ),
        *((name, {**small, **variant}, variant) for name, (small, variants) in RELATIVES.items() for variant in variants),
    ]
    return {
        f"{name} " + (",".join(f"{field}={value}".replace(" ", "") for field, value in told.items()) or "small"): fields
        for name, fields, told in named
    }


def module_of(name: str) -> str:
    """The file of timm's that a name is from."""
    entry = timm.model_entrypoint(name.split()[0]).__module__.rpartition(".")[2]
    return f"{entry} (variants)" if " " in name else entry


def build(name: str) -> tuple[nn.Module, tuple[int, int], int]:
    """The model of a name with random weights, the size of its images and their channels.

    It is made as timm makes it but for fewer blocks, and fewer patches where they are many.
    """
    if " " in name:
        fields = _variants()[name]
        size = fields.get("img_size", 64)
        model = timm.create_model(name.split()[0], **fields)
        return randomized(model), size if isinstance(size, tuple) else (size, size), fields.get("in_chans", 3)
    if module_of(name) in ("resnet", "resnetv2"):
        return randomized(_residual(name)), (64, 64), 3
    size = timm.get_pretrained_cfg(name).input_size[-1]
    if fewer := FEWER_BLOCKS.get(module_of(name)):
        return randomized(timm.create_model(name, **fewer)), (size, size), 3
    patch = int((re.findall(r"patch(\d+)", name) or [16])[0])
    changes: dict = {"depth": 1 if re.search(r"gigant|giant|enormous|_[1357]b_", name) else 2}
    if (size // patch) ** 2 > 260 or re.search(r"large|huge|gigant|giant|enormous|so400m|so150m|_[1357]b_", name):
        changes["img_size"] = 4 * patch
    if "sapiens2" in name:  # one number for each block; the outer blocks, and there are no others here, have all heads
        changes["num_kv_heads"] = (timm.create_model(name, device="meta").blocks[0].attn.num_heads,) * changes["depth"]
    for left_out in ((), ("depth",), ("img_size",), ("depth", "img_size")):  # not every constructor takes both
        tried = {field: value for field, value in changes.items() if field not in left_out}
        with suppress(TypeError):
            side = tried.get("img_size", size)
            return randomized(timm.create_model(name, **tried)), (side, side), 3
    raise ValueError("timm cannot build it")


def _residual(name: str) -> nn.Module:
    """A residual network of few blocks; BiT, whose depths are fixed, a narrow one."""
    if not name.endswith("_bit"):
        return timm.create_model(name, **CONVOLUTIONAL)
    factor = int(name.split("x")[1][0])
    width = 32 // math.gcd(32, factor)
    return timm.create_model(name, stem_chs=width, channels=tuple(4 * width * 2**stage for stage in range(4)))


def judge(name: str, folder: Path) -> Findings:
    """Read a model from timm's folder and from its tensors alone, and write what was read right."""
    result = Findings(f"timm {module_of(name)}", name)
    try:
        theirs, size, channels = build(name)
        asked = Asked(theirs, size, channels)
    except Exception as error:
        return result.skipped(error)
    save_for_hf(theirs, folder / "theirs", safe_serialization=True)
    file = folder / "weights.safetensors"
    save_file({name: tensor.contiguous() for name, tensor in theirs.state_dict().items()}, file)
    ours = result.read("folder", folder / "theirs", asked)
    told = {"image_size": size} if size[0] != size[1] else {}
    if module_of(name).startswith("pvt_v2"):  # whose heads no file tells
        told["heads"] = tuple(stage.blocks[0].attn.num_heads for stage in theirs.stages)
    result.read_bare(file, asked, result.truth(ours), **told)
    if ours is not None:
        for layout in (None, *TIMM_FOLDERS):
            write(result, ours, layout, folder, asked)
    elif result.found[0].status == "wrong":
        with result.step("told by the folder"):  # else it is not our fault
            asked.hold(load_timm(folder / "theirs"))
    return result
