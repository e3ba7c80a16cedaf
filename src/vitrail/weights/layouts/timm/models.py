"""A table of the supported models of timm's registry, with their layout and the arguments that weights do not show.

A test compares it with the registry of timm 1.0.31. Sizes, tokens, biases and norms inside blocks are not listed: keys and
shapes show them.
"""

import re
from typing import Any

ARGUMENTS: dict[str, dict[str, Any]] = {
    "avg": {"global_pool": "avg"},
    "token": {"global_pool": "token"},
    "map": {"global_pool": "map"},
    "prefix": {"pool_include_prefix": True},
    "core": {"attn_pool_num_heads": 8},
    "eps5": {"norm_layer": ("layernorm", 1e-5)},
    "rms5": {"norm_layer": ("rmsnorm", 1e-5)},
    "rms6": {"norm_layer": ("rmsnorm", 1e-6)},
    "no_fc_norm": {"fc_norm": False},
    "no_final_norm": {"final_norm": False},
    "no_pooled_norm": {"use_fc_norm": False},
    "no_token_norm": {"use_post_transformer_norm": False},
    "post_norm": {"use_post_norm": True},
    "post_block": {"block_fn": "ResPostBlock"},
    "gelu_tanh": {"act_layer": "gelu_tanh"},
    "quick_gelu": {"act_layer": "quick_gelu"},
    "eva02": {"use_rot_pos_emb": True, "ref_feat_shape": 16},
    "rope": {"use_rot_pos_emb": True, "rope_temperature": 100},
    "pe": {"use_rot_pos_emb": True},
    "offset": {"rope_grid_offset": 1.0},
    "grid14": {"ref_feat_shape": 14},
    "grid24": {"ref_feat_shape": 24},
    "grid32": {"ref_feat_shape": 32},
    "dinov3": {
        "norm_layer": ("layernorm", 1e-5), "use_fc_norm": False, "use_rot_pos_emb": True, "rope_type": "dinov3",
        "rope_temperature": 100,
    },
}  # fmt: skip
"""Words of `TABLE` to arguments of timm's constructors."""
TABLE = """
timm avg no_fc_norm 8: vit_medium_patch16_gap_240|256|384
timm avg no_fc_norm 10: vit_betwixt_patch16_gap_256
timm avg no_fc_norm 12: vit_base_patch16_siglip_gap_224|256|384|512
timm avg no_fc_norm 14: vit_so150m_patch16_reg4_gap_256|384
timm avg no_fc_norm 16: vit_base_patch16_gap_224 vit_giant_patch16_gap_224 vit_huge_patch14_gap_224
    vit_huge_patch16_gap_448 vit_large_patch16_siglip_gap_256|384 vit_so400m_patch14_siglip_gap_224|378|384|448|896
timm avg 2: test_vit2
timm avg 4: vit_wee_patch16_reg1_gap_256
timm avg 5: vit_little_patch16_reg1_gap_256 vit_little_patch16_reg4_gap_256
timm avg 8: vit_medium_patch16_reg1_gap_256 vit_medium_patch16_reg4_gap_256 vit_mediumd_patch16_reg4_gap_256|384
timm avg 10: vit_betwixt_patch16_reg1_gap_256 vit_betwixt_patch16_reg4_gap_256|384
timm avg 12: vit_base_patch16_reg4_gap_256
timm avg 13: vit_so150m2_patch16_reg1_gap_256|384|448
timm avg 16: eva_large_patch14_196|336
timm eps5 4: vit_xsmall_patch16_clip_224
timm eps5 8: vit_medium_patch16_clip_224 vit_medium_patch32_clip_224
timm eps5 10: vit_betwixt_patch32_clip_224
timm eps5 12: vit_base_patch16_clip_224|384 vit_base_patch32_clip_224|256|384|448
timm eps5 14: vit_base_patch16_plus_clip_240
timm eps5 16: vit_giant_patch14_clip_224 vit_gigantic_patch14_clip_224|378 vit_huge_patch14_clip_224|336|378
    vit_large_patch14_clip_224|336
timm no_final_norm 12: vit_base_patch16_radio_v3
timm no_final_norm 16: vit_huge_patch16_radio_v3|v4 vit_intern300m_patch14_448 vit_large_patch16_radio_v3
    vit_so400m_patch16_radio_v4
timm no_final_norm 24: vit_giant_patch16_radio_v3
timm avg post_block 12: vit_base_patch16_rpn_224
timm avg no_fc_norm gelu_tanh 12: vit_base_patch32_siglip_gap_256
timm avg no_fc_norm gelu_tanh 16: vit_giantopt_patch16_siglip_gap_256|384 vit_large_patch16_siglip_gap_512
    vit_so400m_patch16_siglip_gap_256|384|512
timm rms5 avg no_fc_norm 8: aimv2_large_patch14_224|336|448
timm rms5 avg no_fc_norm 12: aimv2_huge_patch14_224|336|448
timm rms5 avg no_fc_norm 16: aimv2_1b_patch14_224|336|448
timm rms5 avg no_fc_norm 24: aimv2_3b_patch14_224|336|448
timm eps5 avg 12: beit3_base_patch16_224
timm eps5 avg 16: beit3_giant_patch14_224|336 beit3_large_patch16_224
timm map gelu_tanh 12: vit_base_patch32_siglip_256
timm map gelu_tanh 16: vit_giantopt_patch16_siglip_256|384 vit_large_patch16_siglip_512
    vit_so400m_patch16_siglip_256|384|512
timm map 12: vit_base_patch16_siglip_224|256|384|512
timm map 14: vit_so150m_patch16_reg4_map_256
timm map 16: vit_large_patch16_siglip_256|384 vit_so400m_patch14_siglip_224|378|384
timm eps5 quick_gelu 12: vit_base_patch16_clip_quickgelu_224 vit_base_patch32_clip_quickgelu_224
timm eps5 quick_gelu 16: vit_gigantic_patch14_clip_quickgelu_224 vit_huge_patch14_clip_quickgelu_224|378
    vit_large_patch14_clip_quickgelu_224|336
timm 2: test_vit
timm 3: deit_tiny_distilled_patch16_224 deit_tiny_patch16_224 vit_tiny_patch16_224|384 vit_tiny_r_s16_p8_224|384
timm 6: deit3_small_patch16_224|384 deit_small_distilled_patch16_224 deit_small_patch16_224 flexivit_small
    vit_small_patch14_dinov2 vit_small_patch14_reg4_dinov2 vit_small_patch16_224|384 vit_small_patch16_36x1_224
    vit_small_patch32_224|384 vit_small_patch8_224 vit_small_r26_s32_224|384
timm 8: deit3_medium_patch16_224
timm 12: deit3_base_patch16_224|384 deit_base_distilled_patch16_224|384 deit_base_patch16_224|384 flexivit_base
    vit_base_patch14_dinov2 vit_base_patch14_reg1_tipsv2 vit_base_patch14_reg4_dinov2 vit_base_patch16_224|384
    vit_base_patch16_224_miil vit_base_patch32_224|384 vit_base_patch8_224 vit_base_r26_s32_224 vit_base_r50_s16_224|384
timm 14: vit_base_patch16_plus_240 vit_base_patch32_plus_256
timm 16: deit3_huge_patch14_224 deit3_large_patch16_224|384 flexivit_large vit_giant_patch14_224 vit_gigantic_patch14_224
    vit_huge_patch14_224 vit_large_patch14_224|dinov2 vit_large_patch14_reg1_tipsv2 vit_large_patch14_reg4_dinov2
    vit_large_patch16_224|384 vit_large_patch32_224|384 vit_large_r50_s32_224|384 vit_so400m_patch14_reg1_tipsv2
timm 24: vit_giant_patch14_dinov2 vit_giant_patch14_reg1_tipsv2 vit_giant_patch14_reg4_dinov2
timm rms6 avg 3: test_vit4
timm map prefix 3: test_vit3
timm-beit 12: beit_base_patch16_224|384 beitv2_base_patch16_224
timm-beit 16: beit_large_patch16_224|384|512 beitv2_large_patch16_224
timm-dinov3 dinov3 token 6: vit_small_patch16_lingbot
timm-dinov3 dinov3 token 12: vit_base_patch16_lingbot
timm-dinov3 dinov3 token 16: vit_large_patch16_lingbot
timm-dinov3 dinov3 token 24: vit_giant_patch16_lingbot
timm-dinov3 dinov3 3: vit_tiny_patch16_dinov3_qkvb
timm-dinov3 dinov3 6: vit_small_patch16_dinov3 vit_small_patch16_dinov3_qkvb vit_small_plus_patch16_dinov3
    vit_small_plus_patch16_dinov3_qkvb
timm-dinov3 dinov3 12: vit_base_patch16_dinov3 vit_base_patch16_dinov3_qkvb
timm-dinov3 dinov3 16: vit_large_patch16_dinov3 vit_large_patch16_dinov3_qkvb
timm-dinov3 dinov3 20: vit_huge_plus_patch16_dinov3 vit_huge_plus_patch16_dinov3_qkvb
timm-dinov3 dinov3 32: vit_7b_patch16_dinov3
timm-eva eva02 3: eva02_tiny_patch14_224|336
timm-eva eva02 6: eva02_small_patch14_224|336
timm-eva eva02 8: vit_medium_patch16_rope_reg1_gap_256 vit_mediumd_patch16_rope_reg1_gap_256
timm-eva eva02 10: vit_betwixt_patch16_rope_reg4_gap_256
timm-eva eva02 12: eva02_base_patch14_224|448 vit_base_patch16_rope_reg1_gap_256
timm-eva eva02 16: eva02_large_patch14_224|448
timm-eva eva02 token 12: eva02_base_patch16_clip_224
timm-eva eva02 token 16: eva02_large_patch14_clip_224|336
timm-eva token post_norm 16: eva02_enormous_patch14_clip_224
timm-eva token 16: eva_giant_patch14_clip_224
timm-eva 16: eva_giant_patch14_224|336|560
timm-rope eps5 pe map core offset grid14 12: vit_pe_core_base_patch16_224
timm-rope rope token no_pooled_norm 12: vit_base_patch16_rope_224
timm-rope rope token 6: vit_small_patch16_rope_224 vit_small_patch16_rope_ape_224
timm-rope rope token 12: vit_base_patch16_rope_ape_224
timm-rope rope token 16: vit_large_patch16_rope_224 vit_large_patch16_rope_ape_224
timm-rope eps5 pe offset no_pooled_norm no_token_norm grid32 3: vit_pe_spatial_tiny_patch16_512
timm-rope eps5 pe offset no_pooled_norm no_token_norm grid32 6: vit_pe_spatial_small_patch16_512
timm-rope eps5 pe offset no_pooled_norm no_token_norm grid32 12: vit_pe_spatial_base_patch16_512
timm-rope eps5 pe offset no_pooled_norm no_token_norm grid32 16: vit_pe_lang_large_patch14_448 vit_pe_spatial_large_patch14_448
timm-rope eps5 pe map core grid32 16: vit_pe_core_gigantic_patch14_448
timm-rope eps5 pe map core offset grid24 3: vit_pe_core_tiny_patch16_384
timm-rope eps5 pe map core offset grid24 6: vit_pe_core_small_patch16_384
timm-rope eps5 pe map core offset grid24 16: vit_pe_core_large_patch14_336
timm-rope eps5 pe no_pooled_norm no_token_norm grid32 16: vit_pe_lang_gigantic_patch14_448 vit_pe_spatial_gigantic_patch14_448
"""
"""One line per group: layout, words of `ARGUMENTS`, number of heads, then model names; ``x_1|2`` means ``x_1`` and ``x_2``."""


def _models() -> dict[str, tuple[str, dict[str, Any]]]:
    models: dict[str, tuple[str, dict[str, Any]]] = {}
    for layout, words, heads, names in re.findall(r"^(timm\S*)((?: \w+)*) (\d+): (.+(?:\n    .+)*)", TABLE, re.MULTILINE):
        arguments: dict[str, Any] = {"num_heads": int(heads)}
        for word in words.split():
            arguments |= ARGUMENTS[word]
        for name in names.split():
            start, _, ends = name.rpartition("_")
            models |= {f"{start}_{end}": (layout, arguments) for end in ends.split("|")}
    return models


MODELS: dict[str, tuple[str, dict[str, Any]]] = _models()
"""Layout and arguments of every model by its name."""
