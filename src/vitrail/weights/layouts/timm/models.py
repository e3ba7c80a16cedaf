"""One long table: the models of timm's registry that are read, with their layout and the arguments that weights do not show.

Facts of timm 1.0.31, held to its registry by a test. Sizes, tokens, biases and norms inside of branches show in keys and shapes.
"""

from collections.abc import Iterator
from typing import Any

Row = tuple[str, dict[str, Any], str]
"""A layout, arguments of timm's constructor, and the names of models that are built with them."""

EPS_5: dict[str, Any] = {"norm_layer": ("layernorm", 1e-5)}
GAP: dict[str, Any] = {"global_pool": "avg", "fc_norm": False}
EVA02: dict[str, Any] = {"use_rot_pos_emb": True, "ref_feat_shape": 16}
DINOV3: dict[str, Any] = {
    **EPS_5, "use_fc_norm": False, "use_rot_pos_emb": True, "rope_type": "dinov3", "rope_temperature": 100,
}  # fmt: skip
ROPE: dict[str, Any] = {"use_rot_pos_emb": True, "rope_temperature": 100}
PE: dict[str, Any] = {**EPS_5, "use_rot_pos_emb": True}
PE_CORE: dict[str, Any] = {**PE, "global_pool": "map", "attn_pool_num_heads": 8}
PE_BARE: dict[str, Any] = {**PE, "use_fc_norm": False, "use_post_transformer_norm": False}

ROWS: list[Row] = [
    ("timm", {"num_heads": 10, **GAP}, "vit_betwixt_patch16_gap_256"),
    (
        "timm",
        {"num_heads": 10, "global_pool": "avg"},
        "vit_betwixt_patch16_reg1_gap_256 vit_betwixt_patch16_reg4_gap_256 vit_betwixt_patch16_reg4_gap_384",
    ),
    ("timm", {"num_heads": 10, **EPS_5}, "vit_betwixt_patch32_clip_224"),
    ("timm", {"num_heads": 12, "final_norm": False}, "vit_base_patch16_radio_v3"),
    ("timm", {"num_heads": 12, "global_pool": "avg", "block_fn": "ResPostBlock"}, "vit_base_patch16_rpn_224"),
    ("timm", {"num_heads": 12, **GAP, "act_layer": "gelu_tanh"}, "vit_base_patch32_siglip_gap_256"),
    (
        "timm",
        {"num_heads": 12, **GAP, "norm_layer": ("rmsnorm", 1e-05)},
        "aimv2_huge_patch14_224 aimv2_huge_patch14_336 aimv2_huge_patch14_448",
    ),
    (
        "timm",
        {"num_heads": 12, **GAP},
        "vit_base_patch16_siglip_gap_224 vit_base_patch16_siglip_gap_256 vit_base_patch16_siglip_gap_384 "
        "vit_base_patch16_siglip_gap_512",
    ),
    ("timm", {"num_heads": 12, **EPS_5, "global_pool": "avg"}, "beit3_base_patch16_224"),
    ("timm", {"num_heads": 12, "global_pool": "avg"}, "vit_base_patch16_reg4_gap_256"),
    ("timm", {"num_heads": 12, "global_pool": "map", "act_layer": "gelu_tanh"}, "vit_base_patch32_siglip_256"),
    (
        "timm",
        {"num_heads": 12, "global_pool": "map"},
        "vit_base_patch16_siglip_224 vit_base_patch16_siglip_256 vit_base_patch16_siglip_384 vit_base_patch16_siglip_512",
    ),
    (
        "timm",
        {"num_heads": 12, **EPS_5, "act_layer": "quick_gelu"},
        "vit_base_patch16_clip_quickgelu_224 vit_base_patch32_clip_quickgelu_224",
    ),
    (
        "timm",
        {"num_heads": 12, **EPS_5},
        "vit_base_patch16_clip_224 vit_base_patch16_clip_384 vit_base_patch32_clip_224 "
        "vit_base_patch32_clip_256 vit_base_patch32_clip_384 vit_base_patch32_clip_448",
    ),
    (
        "timm",
        {"num_heads": 12},
        "flexivit_base vit_base_patch8_224 vit_base_patch14_dinov2 vit_base_patch14_reg1_tipsv2 "
        "vit_base_patch14_reg4_dinov2 vit_base_patch16_224 vit_base_patch16_224_miil vit_base_patch16_384 "
        "vit_base_patch32_224 vit_base_patch32_384 vit_base_r26_s32_224 vit_base_r50_s16_224 "
        "vit_base_r50_s16_384 deit3_base_patch16_224 deit3_base_patch16_384 deit_base_distilled_patch16_224 "
        "deit_base_distilled_patch16_384 deit_base_patch16_224 deit_base_patch16_384",
    ),
    (
        "timm",
        {"num_heads": 13, "global_pool": "avg"},
        "vit_so150m2_patch16_reg1_gap_256 vit_so150m2_patch16_reg1_gap_384 vit_so150m2_patch16_reg1_gap_448",
    ),
    ("timm", {"num_heads": 14, **GAP}, "vit_so150m_patch16_reg4_gap_256 vit_so150m_patch16_reg4_gap_384"),
    ("timm", {"num_heads": 14, "global_pool": "map"}, "vit_so150m_patch16_reg4_map_256"),
    ("timm", {"num_heads": 14, **EPS_5}, "vit_base_patch16_plus_clip_240"),
    ("timm", {"num_heads": 14}, "vit_base_patch16_plus_240 vit_base_patch32_plus_256"),
    (
        "timm",
        {"num_heads": 16, "final_norm": False},
        "vit_huge_patch16_radio_v3 vit_huge_patch16_radio_v4 vit_intern300m_patch14_448 "
        "vit_large_patch16_radio_v3 vit_so400m_patch16_radio_v4",
    ),
    (
        "timm",
        {"num_heads": 16, **GAP, "act_layer": "gelu_tanh"},
        "vit_giantopt_patch16_siglip_gap_256 vit_giantopt_patch16_siglip_gap_384 "
        "vit_large_patch16_siglip_gap_512 vit_so400m_patch16_siglip_gap_256 vit_so400m_patch16_siglip_gap_384 "
        "vit_so400m_patch16_siglip_gap_512",
    ),
    (
        "timm",
        {"num_heads": 16, **GAP, "norm_layer": ("rmsnorm", 1e-05)},
        "aimv2_1b_patch14_224 aimv2_1b_patch14_336 aimv2_1b_patch14_448",
    ),
    (
        "timm",
        {"num_heads": 16, **GAP},
        "vit_base_patch16_gap_224 vit_giant_patch16_gap_224 vit_huge_patch14_gap_224 vit_huge_patch16_gap_448 "
        "vit_large_patch16_siglip_gap_256 vit_large_patch16_siglip_gap_384 vit_so400m_patch14_siglip_gap_224 "
        "vit_so400m_patch14_siglip_gap_378 vit_so400m_patch14_siglip_gap_384 "
        "vit_so400m_patch14_siglip_gap_448 vit_so400m_patch14_siglip_gap_896",
    ),
    (
        "timm",
        {"num_heads": 16, **EPS_5, "global_pool": "avg"},
        "beit3_giant_patch14_224 beit3_giant_patch14_336 beit3_large_patch16_224",
    ),
    ("timm", {"num_heads": 16, "global_pool": "avg"}, "eva_large_patch14_196 eva_large_patch14_336"),
    (
        "timm",
        {"num_heads": 16, "global_pool": "map", "act_layer": "gelu_tanh"},
        "vit_giantopt_patch16_siglip_256 vit_giantopt_patch16_siglip_384 vit_large_patch16_siglip_512 "
        "vit_so400m_patch16_siglip_256 vit_so400m_patch16_siglip_384 vit_so400m_patch16_siglip_512",
    ),
    (
        "timm",
        {"num_heads": 16, "global_pool": "map"},
        "vit_large_patch16_siglip_256 vit_large_patch16_siglip_384 vit_so400m_patch14_siglip_224 "
        "vit_so400m_patch14_siglip_378 vit_so400m_patch14_siglip_384",
    ),
    (
        "timm",
        {"num_heads": 16, **EPS_5, "act_layer": "quick_gelu"},
        "vit_gigantic_patch14_clip_quickgelu_224 vit_huge_patch14_clip_quickgelu_224 "
        "vit_huge_patch14_clip_quickgelu_378 vit_large_patch14_clip_quickgelu_224 "
        "vit_large_patch14_clip_quickgelu_336",
    ),
    (
        "timm",
        {"num_heads": 16, **EPS_5},
        "vit_giant_patch14_clip_224 vit_gigantic_patch14_clip_224 vit_gigantic_patch14_clip_378 "
        "vit_huge_patch14_clip_224 vit_huge_patch14_clip_336 vit_huge_patch14_clip_378 "
        "vit_large_patch14_clip_224 vit_large_patch14_clip_336",
    ),
    (
        "timm",
        {"num_heads": 16},
        "flexivit_large vit_giant_patch14_224 vit_gigantic_patch14_224 vit_huge_patch14_224 "
        "vit_large_patch14_224 vit_large_patch14_dinov2 vit_large_patch14_reg1_tipsv2 "
        "vit_large_patch14_reg4_dinov2 vit_large_patch16_224 vit_large_patch16_384 vit_large_patch32_224 "
        "vit_large_patch32_384 vit_so400m_patch14_reg1_tipsv2 vit_large_r50_s32_224 vit_large_r50_s32_384 "
        "deit3_huge_patch14_224 deit3_large_patch16_224 deit3_large_patch16_384",
    ),
    ("timm", {"num_heads": 2, "global_pool": "avg"}, "test_vit2"),
    ("timm", {"num_heads": 24, "final_norm": False}, "vit_giant_patch16_radio_v3"),
    (
        "timm",
        {"num_heads": 24, **GAP, "norm_layer": ("rmsnorm", 1e-05)},
        "aimv2_3b_patch14_224 aimv2_3b_patch14_336 aimv2_3b_patch14_448",
    ),
    (
        "timm",
        {"num_heads": 24},
        "vit_giant_patch14_dinov2 vit_giant_patch14_reg1_tipsv2 vit_giant_patch14_reg4_dinov2",
    ),
    ("timm", {"num_heads": 2}, "test_vit"),
    ("timm", {"num_heads": 3, "global_pool": "avg", "norm_layer": ("rmsnorm", 1e-06)}, "test_vit4"),
    ("timm", {"num_heads": 3, "global_pool": "map", "pool_include_prefix": True}, "test_vit3"),
    (
        "timm",
        {"num_heads": 3},
        "vit_tiny_patch16_224 vit_tiny_patch16_384 vit_tiny_r_s16_p8_224 vit_tiny_r_s16_p8_384 "
        "deit_tiny_distilled_patch16_224 deit_tiny_patch16_224",
    ),
    ("timm", {"num_heads": 4, "global_pool": "avg"}, "vit_wee_patch16_reg1_gap_256"),
    ("timm", {"num_heads": 4, **EPS_5}, "vit_xsmall_patch16_clip_224"),
    (
        "timm",
        {"num_heads": 5, "global_pool": "avg"},
        "vit_little_patch16_reg1_gap_256 vit_little_patch16_reg4_gap_256",
    ),
    (
        "timm",
        {"num_heads": 6},
        "flexivit_small vit_small_patch8_224 vit_small_patch14_dinov2 vit_small_patch14_reg4_dinov2 "
        "vit_small_patch16_36x1_224 vit_small_patch16_224 vit_small_patch16_384 vit_small_patch32_224 "
        "vit_small_patch32_384 vit_small_r26_s32_224 vit_small_r26_s32_384 deit3_small_patch16_224 "
        "deit3_small_patch16_384 deit_small_distilled_patch16_224 deit_small_patch16_224",
    ),
    (
        "timm",
        {"num_heads": 8, **GAP, "norm_layer": ("rmsnorm", 1e-05)},
        "aimv2_large_patch14_224 aimv2_large_patch14_336 aimv2_large_patch14_448",
    ),
    (
        "timm",
        {"num_heads": 8, **GAP},
        "vit_medium_patch16_gap_240 vit_medium_patch16_gap_256 vit_medium_patch16_gap_384",
    ),
    (
        "timm",
        {"num_heads": 8, "global_pool": "avg"},
        "vit_medium_patch16_reg1_gap_256 vit_medium_patch16_reg4_gap_256 vit_mediumd_patch16_reg4_gap_256 "
        "vit_mediumd_patch16_reg4_gap_384",
    ),
    ("timm", {"num_heads": 8, **EPS_5}, "vit_medium_patch16_clip_224 vit_medium_patch32_clip_224"),
    ("timm", {"num_heads": 8}, "deit3_medium_patch16_224"),
    ("timm-beit", {"num_heads": 12}, "beit_base_patch16_224 beit_base_patch16_384 beitv2_base_patch16_224"),
    (
        "timm-beit",
        {"num_heads": 16},
        "beit_large_patch16_224 beit_large_patch16_384 beit_large_patch16_512 beitv2_large_patch16_224",
    ),
    ("timm-dinov3", {"num_heads": 12, **DINOV3, "global_pool": "token"}, "vit_base_patch16_lingbot"),
    ("timm-dinov3", {"num_heads": 12, **DINOV3}, "vit_base_patch16_dinov3 vit_base_patch16_dinov3_qkvb"),
    ("timm-dinov3", {"num_heads": 16, **DINOV3, "global_pool": "token"}, "vit_large_patch16_lingbot"),
    ("timm-dinov3", {"num_heads": 16, **DINOV3}, "vit_large_patch16_dinov3 vit_large_patch16_dinov3_qkvb"),
    ("timm-dinov3", {"num_heads": 20, **DINOV3}, "vit_huge_plus_patch16_dinov3 vit_huge_plus_patch16_dinov3_qkvb"),
    ("timm-dinov3", {"num_heads": 24, **DINOV3, "global_pool": "token"}, "vit_giant_patch16_lingbot"),
    ("timm-dinov3", {"num_heads": 3, **DINOV3}, "vit_tiny_patch16_dinov3_qkvb"),
    ("timm-dinov3", {"num_heads": 32, **DINOV3}, "vit_7b_patch16_dinov3"),
    ("timm-dinov3", {"num_heads": 6, **DINOV3, "global_pool": "token"}, "vit_small_patch16_lingbot"),
    (
        "timm-dinov3",
        {"num_heads": 6, **DINOV3},
        "vit_small_patch16_dinov3 vit_small_patch16_dinov3_qkvb vit_small_plus_patch16_dinov3 vit_small_plus_patch16_dinov3_qkvb",
    ),
    ("timm-eva", {"num_heads": 10, **EVA02}, "vit_betwixt_patch16_rope_reg4_gap_256"),
    ("timm-eva", {"num_heads": 12, **EVA02, "global_pool": "token"}, "eva02_base_patch16_clip_224"),
    (
        "timm-eva",
        {"num_heads": 12, **EVA02},
        "eva02_base_patch14_224 eva02_base_patch14_448 vit_base_patch16_rope_reg1_gap_256",
    ),
    ("timm-eva", {"num_heads": 16, "global_pool": "token", "use_post_norm": True}, "eva02_enormous_patch14_clip_224"),
    (
        "timm-eva",
        {"num_heads": 16, **EVA02, "global_pool": "token"},
        "eva02_large_patch14_clip_224 eva02_large_patch14_clip_336",
    ),
    ("timm-eva", {"num_heads": 16, "global_pool": "token"}, "eva_giant_patch14_clip_224"),
    ("timm-eva", {"num_heads": 16, **EVA02}, "eva02_large_patch14_224 eva02_large_patch14_448"),
    ("timm-eva", {"num_heads": 16}, "eva_giant_patch14_224 eva_giant_patch14_336 eva_giant_patch14_560"),
    ("timm-eva", {"num_heads": 3, **EVA02}, "eva02_tiny_patch14_224 eva02_tiny_patch14_336"),
    ("timm-eva", {"num_heads": 6, **EVA02}, "eva02_small_patch14_224 eva02_small_patch14_336"),
    (
        "timm-eva",
        {"num_heads": 8, **EVA02},
        "vit_medium_patch16_rope_reg1_gap_256 vit_mediumd_patch16_rope_reg1_gap_256",
    ),
    (
        "timm-rope",
        {"num_heads": 12, **PE_CORE, "rope_grid_offset": 1.0, "ref_feat_shape": 14},
        "vit_pe_core_base_patch16_224",
    ),
    ("timm-rope", {"num_heads": 12, **ROPE, "global_pool": "token", "use_fc_norm": False}, "vit_base_patch16_rope_224"),
    ("timm-rope", {"num_heads": 12, **ROPE, "global_pool": "token"}, "vit_base_patch16_rope_ape_224"),
    (
        "timm-rope",
        {"num_heads": 12, **PE_BARE, "rope_grid_offset": 1.0, "ref_feat_shape": 32},
        "vit_pe_spatial_base_patch16_512",
    ),
    ("timm-rope", {"num_heads": 16, **PE_CORE, "ref_feat_shape": 32}, "vit_pe_core_gigantic_patch14_448"),
    (
        "timm-rope",
        {"num_heads": 16, **PE_CORE, "rope_grid_offset": 1.0, "ref_feat_shape": 24},
        "vit_pe_core_large_patch14_336",
    ),
    (
        "timm-rope",
        {"num_heads": 16, **ROPE, "global_pool": "token"},
        "vit_large_patch16_rope_224 vit_large_patch16_rope_ape_224",
    ),
    (
        "timm-rope",
        {"num_heads": 16, **PE_BARE, "ref_feat_shape": 32},
        "vit_pe_lang_gigantic_patch14_448 vit_pe_spatial_gigantic_patch14_448",
    ),
    (
        "timm-rope",
        {"num_heads": 16, **PE_BARE, "rope_grid_offset": 1.0, "ref_feat_shape": 32},
        "vit_pe_lang_large_patch14_448 vit_pe_spatial_large_patch14_448",
    ),
    (
        "timm-rope",
        {"num_heads": 3, **PE_CORE, "rope_grid_offset": 1.0, "ref_feat_shape": 24},
        "vit_pe_core_tiny_patch16_384",
    ),
    (
        "timm-rope",
        {"num_heads": 3, **PE_BARE, "rope_grid_offset": 1.0, "ref_feat_shape": 32},
        "vit_pe_spatial_tiny_patch16_512",
    ),
    (
        "timm-rope",
        {"num_heads": 6, **PE_CORE, "rope_grid_offset": 1.0, "ref_feat_shape": 24},
        "vit_pe_core_small_patch16_384",
    ),
    (
        "timm-rope",
        {"num_heads": 6, **ROPE, "global_pool": "token"},
        "vit_small_patch16_rope_224 vit_small_patch16_rope_ape_224",
    ),
    (
        "timm-rope",
        {"num_heads": 6, **PE_BARE, "rope_grid_offset": 1.0, "ref_feat_shape": 32},
        "vit_pe_spatial_small_patch16_512",
    ),
]


def _by_name() -> Iterator[tuple[str, tuple[str, dict[str, Any]]]]:
    for layout, arguments, names in ROWS:
        for name in names.split():
            yield name, (layout, arguments)


MODELS: dict[str, tuple[str, dict[str, Any]]] = dict(_by_name())
"""Layout and arguments of every model by its name."""
