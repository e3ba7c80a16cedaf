"""timm's models with random weights: read to the same logits, and written back to where they came from."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from residual_networks import NARROW
from safetensors.torch import save_file
from timm.data import create_transform, resolve_data_config
from timm.layers import SwiGLU, SwiGLUPacked
from timm.models import save_for_hf
from timm.models._hub import load_model_config_from_path
from timm.models.deit import VisionTransformerDistilled
from timm.models.vision_transformer import VisionTransformer
from timm.models.vision_transformer_hybrid import HybridEmbed

from vitrail.errors import ModelFileError
from vitrail.weights.convert import convert
from vitrail.weights.layouts.timm.models import MODELS
from vitrail.weights.reference import from_pretrained

SMALL = {"img_size": 32, "patch_size": 8, "embed_dim": 128, "depth": 2, "num_heads": 2, "num_classes": 5, "mlp_ratio": 2}
REGISTERS = {"reg_tokens": 3, "init_values": 1e-5}
VARIANTS = {
    "augreg": {},
    "headless with a norm behind the mean": {"num_classes": 0, "global_pool": "avg", "class_token": False},
    "registers with positions": REGISTERS,
    "registers without positions": {**REGISTERS, "no_embed_class": True},
    "mean of the patches": {"global_pool": "avg"},
    "mean without a class token": {"global_pool": "avg", "class_token": False},
    "mean without a class token, norm before it": {"global_pool": "avg", "class_token": False, "fc_norm": False},
    "attention pooling": {"global_pool": "map", "class_token": False},
    "no class position": {"no_embed_class": True},
    "no bias": {"qkv_bias": False},
    "norms on queries and keys": {"qk_norm": True},
    "SwiGLU": {"mlp_layer": SwiGLU, "act_layer": torch.nn.SiLU},
    "SwiGLU in one": {"mlp_layer": SwiGLUPacked, "act_layer": torch.nn.SiLU},
    "not square": {"img_size": (32, 48), "patch_size": (8, 16)},
    "grey": {"in_chans": 1},
}
CLIP = {"pre_norm": True, "norm_layer": torch.nn.LayerNorm}


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)
def test_logits_are_timms(variant, randomized, kept, recognised, agree):
    theirs = randomized(VisionTransformer(**{**SMALL, **variant}))
    size = variant.get("img_size", (32, 32))
    ours = recognised(kept(theirs.state_dict()), "timm", **({"image_size": size} if "img_size" in variant else {}))
    agree(ours, theirs, size=size, channels=variant.get("in_chans", 3))


@pytest.mark.parametrize("size", [(48, 48), (24, 24), (32, 64)], ids=str)
@pytest.mark.parametrize("name", ["augreg", "registers with positions", "mean without a class token", "attention pooling"])
def test_at_another_resolution_logits_are_timms(name, size, randomized, kept, recognised, agree):
    theirs = randomized(VisionTransformer(**{**SMALL, **VARIANTS[name]}))
    ours = recognised(kept(theirs.state_dict()), "timm", image_size=size)
    theirs.set_input_size(size)
    agree(ours, theirs, size=size)


def test_clip_has_a_norm_before_the_blocks_and_no_bias_on_patches(randomized, kept, recognised, agree):
    theirs = randomized(VisionTransformer(**SMALL, **CLIP))
    ours = recognised(kept(theirs.state_dict()), "timm's CLIP")
    assert ours.config.norm_eps == 1e-5 and ours.config.embedding_norm == "tokens"
    agree(ours, theirs)


@pytest.mark.parametrize("classes", [5, 0])
def test_distilled_models_have_two_tokens(classes, randomized, kept, recognised, agree):
    theirs = randomized(VisionTransformerDistilled(**{**SMALL, "num_classes": classes}))
    ours = recognised(kept(theirs.state_dict()), "timm")
    assert ours.config.distillation_token
    agree(ours, theirs)


FAMILIES = [
    "vit_base_patch16_rpn_224",
    "vit_giantopt_patch16_siglip_256",
    "vit_pe_core_tiny_patch16_384",
    "vit_pe_spatial_tiny_patch16_512",
    "vit_so150m_patch16_reg4_map_256",
    "vit_large_patch16_radio_v3",
    "beit_base_patch16_224",
    "beit3_base_patch16_224",
    "eva02_tiny_patch14_224",
    "eva02_base_patch16_clip_224",
    "eva_giant_patch14_clip_224",
    "eva02_enormous_patch14_clip_224",
    "vit_small_patch16_dinov3",
    "vit_small_plus_patch16_dinov3_qkvb",
    "vit_small_patch16_rope_ape_224",
    "vit_medium_patch16_rope_reg1_gap_256",
    "aimv2_large_patch14_224",
    "test_vit3",
    "test_vit4",
]
"""Models of timm's registry that differ in more than sizes."""


@pytest.fixture
def saved(randomized, tmp_path):
    """A model of timm's registry with one block, few patches and narrow heads, as timm saves it."""

    def saved(name: str, **arguments) -> tuple[torch.nn.Module, Path]:
        heads = MODELS[name][1]["num_heads"]
        patch = int((re.search(r"patch([0-9]+)", name) or [16, 16])[1])
        small = {"depth": 1, "embed_dim": 16 * heads, "num_classes": 5, "mlp_ratio": 1.5, "img_size": 3 * patch}
        theirs = randomized(timm.create_model(name, **{**small, **arguments}))
        save_for_hf(theirs, tmp_path / "theirs", safe_serialization=True)
        return theirs, tmp_path / "theirs"

    return saved


@pytest.mark.parametrize("name", FAMILIES)
def test_a_folder_that_timm_saved_is_read_and_written(name, saved, tmp_path, agree):
    theirs, folder = saved(name)
    size = theirs.patch_embed.img_size
    ours = from_pretrained(folder)
    agree(ours, theirs, size=size)
    ours.save_pretrained(tmp_path / "out", layout="timm")
    again = timm.create_model(f"local-dir:{tmp_path / 'out'}", pretrained=True).eval()
    agree(again, theirs, size=size)
    agree(from_pretrained(tmp_path / "out"), theirs, size=size)


@pytest.mark.parametrize(
    "arguments",
    [
        {"global_pool": "avg", "fc_norm": False},
        {"global_pool": "avg", "fc_norm": True},
        {"global_pool": "token", "fc_norm": True},
        {"global_pool": "map", "reg_tokens": 2},
        {"global_pool": "map", "pool_include_prefix": True},
        {"norm_layer": "rmsnorm"},
        {"scale_attn_norm": True, "scale_mlp_norm": True},
        {"proj_bias": False, "qkv_bias": False},
        {"final_norm": False},
    ],
    ids=str,
)
def test_what_the_arguments_of_a_model_mean_is_understood(arguments, saved, agree):
    theirs, folder = saved("vit_tiny_patch16_224", **arguments)
    agree(from_pretrained(folder), theirs, size=theirs.patch_embed.img_size)


@pytest.mark.parametrize(
    "arguments",
    [
        {"global_pool": "avgmax"},
        {"global_pool": "max"},
        {"global_pool": "avg", "pool_include_prefix": True},
        {"norm_layer": "layernorm2d"},
        {"act_layer": "relu"},
        {"pos_embed": "none"},
        {"attn_layer": "diff"},
        {"something_new": 3},
    ],
    ids=str,
)
def test_what_is_not_understood_of_a_model_is_refused_by_name(arguments, saved):
    _, folder = saved("vit_tiny_patch16_224")
    described = json.loads((folder / "config.json").read_text())
    described["model_args"] |= arguments
    (folder / "config.json").write_text(json.dumps(described))
    with pytest.raises(ModelFileError, match=next(reversed(arguments))):
        from_pretrained(folder)


@pytest.mark.parametrize("name", ["vit_pe_core_tiny_patch16_384", "eva02_tiny_patch14_224", "vit_small_patch16_dinov3"])
def test_weights_that_do_not_tell_their_rotary_positions_are_refused_without_a_description(name, saved):
    _, folder = saved(name)
    (folder / "config.json").unlink()
    with pytest.raises(ModelFileError, match="do not show position"):
        from_pretrained(folder / "model.safetensors")


def test_what_a_bare_file_does_not_say_is_said_to_be_guessed(saved, capsys):
    _, folder = saved("vit_base_patch16_rpn_224")
    (folder / "config.json").unlink()
    from_pretrained(folder, heads=12)
    assert "guessed, as the file does not say: mlp gelu, norm pre, norm_eps 1e-06" in capsys.readouterr().err


@pytest.mark.parametrize("size", [(64, 64), (64, 32), (32, 32), (48, 80)], ids=str)
@pytest.mark.parametrize("name", ["beit_base_patch16_224", "beitv2_base_patch16_224"])
def test_at_another_resolution_relative_positions_are_timms(name, size, saved, agree):
    _, folder = saved(name)
    theirs = timm.create_model(f"local-dir:{folder}", pretrained=True, img_size=size).eval()
    agree(from_pretrained(folder, image_size=size), theirs, size=size)


def test_a_size_that_patches_do_not_divide_is_read_as_it_is(saved, agree):
    theirs, folder = saved("vit_so400m_patch14_siglip_384", img_size=4 * 14 + 6)
    ours = from_pretrained(folder)
    assert ours.config.image_size == (62, 62) and ours.config.grid == (4, 4)
    agree(ours, theirs, size=(62, 62))


def test_the_encoder_of_a_pretrained_mae_is_read_without_its_decoder(randomized, kept, recognised, agree):
    theirs = randomized(VisionTransformer(**{**SMALL, "num_classes": 0}))
    block = {name.removeprefix("blocks.0."): t for name, t in theirs.state_dict().items() if name.startswith("blocks.0.")}
    decoder = {
        "mask_token": torch.zeros(1, 1, 128), "decoder_pos_embed": torch.zeros(1, 17, 128),
        "decoder_embed.weight": torch.ones(128, 128), "decoder_embed.bias": torch.ones(128),
        "decoder_norm.weight": torch.ones(128), "decoder_norm.bias": torch.ones(128),
        "decoder_pred.weight": torch.ones(192, 128), "decoder_pred.bias": torch.ones(192),
        **{f"decoder_blocks.0.{name}": tensor for name, tensor in block.items()},
    }  # fmt: skip
    agree(recognised(kept({**theirs.state_dict(), **decoder}), "the encoder of the original MAE"), theirs)


@pytest.mark.parametrize("name", ["vit_tiny_r_s16_p8_224", "vit_small_r26_s32_224"])
def test_hybrids_are_timms(name, kept, recognised, agree):
    theirs = timm.create_model(name, img_size=64, num_classes=5, depth=1).eval()
    assert isinstance(theirs.patch_embed, HybridEmbed)
    torch.nn.init.normal_(theirs.head.weight, std=0.05)
    agree(recognised(kept(theirs.state_dict()), "timm"), theirs, size=(64, 64))


@pytest.mark.parametrize(
    ("variant", "layout"),
    [({"reg_tokens": 2, "init_values": 1.0}, "timm"), (VARIANTS["SwiGLU in one"], "timm"), (CLIP, "timm-clip")],
    ids=["registers", "SwiGLU", "CLIP"],
)
def test_a_folder_that_is_written_is_a_model_of_timms(variant, layout, randomized, kept, tmp_path, agree):
    theirs = randomized(VisionTransformer(**{**SMALL, **variant}))
    ours = from_pretrained(kept(theirs.state_dict()))
    ours.labels = ["ant", "bee", "cat", "dog", "eel"]
    convert(ours, tmp_path / "out", layout=layout)
    again = timm.create_model(f"local-dir:{tmp_path / 'out'}", pretrained=True).eval()
    agree(again, theirs)
    assert json.loads((tmp_path / "out" / "config.json").read_text())["label_names"] == ours.labels
    back = from_pretrained(tmp_path / "out")
    assert back.labels == ours.labels and back.preparation == ours.preparation
    agree(back, theirs)


THREE = {"embed_dim": 96, "depth": 1}
TUNED = {
    "vit_tiny_patch16_224": {**THREE, "img_size": 32},
    "vit_base_patch16_clip_224": {"embed_dim": 192, "depth": 1, "img_size": 32},
    "deit_tiny_distilled_patch16_224": {**THREE, "img_size": 32},
    "vit_tiny_r_s16_p8_224": {**THREE, "img_size": 64},
    "vit_small_r26_s32_224": {"depth": 1, "img_size": 64},
    "beit_base_patch16_224": {"embed_dim": 192, "depth": 1, "img_size": 32},
    "eva02_tiny_patch14_224": {**THREE, "img_size": 28},
    "vit_small_patch16_dinov3": {"embed_dim": 96, "depth": 1, "img_size": 32},
    "resnet18": {"layers": (1, 1, 1, 1)},
    "resnetv2_50x1_bit": NARROW,
    "mixer_s32_224": {"img_size": 64},
    "swin_tiny_patch4_window7_224": {"embed_dim": 24, "depths": (1, 1, 1, 1)},
    "pvt_v2_b0": {"depths": (1, 1, 1, 1)},
    "tnt_s_legacy_patch16_224": {"depth": 1, "img_size": 32},
}
"""A small model of every kind of timm's that is written."""


@pytest.mark.parametrize("name", TUNED)
def test_a_folder_that_is_written_is_fine_tuned_by_timm(name, randomized, tmp_path):
    theirs = randomized(timm.create_model(name, num_classes=5, **TUNED[name]))
    save_for_hf(theirs, tmp_path / "theirs", safe_serialization=True)
    from_pretrained(tmp_path / "theirs").save_pretrained(tmp_path / "ours", layout="timm")
    for changes in ({"num_classes": 7, "in_chans": 1}, {"num_classes": 0}):
        folders = (f"local-dir:{tmp_path / each}" for each in ("theirs", "ours"))
        tuned = [timm.create_model(folder, pretrained=True, **changes).eval() for folder in folders]
        assert tuned[1].num_classes == changes["num_classes"]
        size = TUNED[name].get("img_size", 224)
        images = torch.randn(2, changes.get("in_chans", 3), size, size)
        with torch.no_grad():
            expected, found = (model.forward_features(images) for model in tuned)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_the_description_of_timm_tells_of_preparation_and_labels(randomized, tmp_path):
    theirs = randomized(VisionTransformer(**SMALL))
    save_file(theirs.state_dict(), tmp_path / "model.safetensors")
    described = {
        "architecture": "vit_tiny_patch16_224",
        "model_args": {"num_heads": 2},
        "num_classes": 5,
        "label_names": ["ant", "bee", "cat", "dog", "eel"],
        "pretrained_cfg": {
            "mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6], "crop_pct": 0.8, "interpolation": "bilinear", "crop_mode": "squash",
        },
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(described))
    ours = from_pretrained(tmp_path)
    assert ours.labels == described["label_names"]
    preparation = ours.preparation
    assert (preparation.mean, preparation.std) == ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    assert (preparation.resize_size, preparation.resampling, preparation.fit) == ((40, 40), "bilinear", "squash")


BEES = ["ant", "bee", "cat", "dog", "eel"]


@pytest.fixture
def described_as(randomized, tmp_path):
    """A folder of small weights of timm's, with a ``config.json`` of one's own."""

    def described_as(values: dict, name: str = "vit_tiny_patch16_224") -> Path:
        theirs = randomized(timm.create_model(name, num_classes=5, **TUNED[name]))
        save_file(theirs.state_dict(), tmp_path / "model.safetensors")
        (tmp_path / "config.json").write_text(json.dumps(values))
        return tmp_path

    return described_as


def test_an_older_description_that_says_all_at_the_top_means_what_it_means_to_timm(described_as):
    values = {
        "architecture": "vit_tiny_patch16_224", "num_classes": 5, "num_features": 96, "input_size": [3, 32, 32], "crop_pct": 0.8,
        "interpolation": "bilinear", "mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6], "labels": BEES, "fixed_input_size": True,
        "first_conv": "patch_embed.proj", "classifier": "head", "url": "", "pool_size": None,
    }  # fmt: skip
    ours = from_pretrained(described_as(values))
    theirs, *_ = load_model_config_from_path(described_as(values))
    assert ours.labels == theirs["label_names"]
    prepare = create_transform(**resolve_data_config(pretrained_cfg=theirs))
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (61, 83, 3), dtype=np.uint8))
    torch.testing.assert_close(ours.preparation(image)[0], prepare(image))


def test_labels_are_kept_that_timm_keeps_of_a_folder_of_ours(described_as, tmp_path):
    name = "vit_tiny_patch16_224"
    folder = described_as({"architecture": name, "model_args": TUNED[name], "num_classes": 5, "label_names": BEES})
    from_pretrained(folder).save_pretrained(tmp_path / "ours", layout="timm")
    save_for_hf(
        timm.create_model(f"local-dir:{tmp_path / 'ours'}", pretrained=True), tmp_path / "theirs", safe_serialization=True
    )
    assert from_pretrained(tmp_path / "theirs").labels == BEES


def test_an_argument_that_stands_beside_the_others_is_refused_by_name(described_as):
    folder = described_as({"architecture": "vit_tiny_patch16_224", "num_classes": 5, "act_layer": "relu"})
    with pytest.raises(ModelFileError, match="act_layer='relu' beside model_args"):
        from_pretrained(folder)


KINDS = ["vit_base_patch16_clip_224", "pvt_v2_b0", "tnt_s_legacy_patch16_224"]


@pytest.mark.parametrize("name", KINDS)
def test_a_description_that_names_no_architecture_says_nothing_of_the_model(name, described_as, capsys):
    for values in ({"num_heads": 4, "norm_eps": 1e-3}, {"model_args": {"act_layer": "relu"}}, {"global_pool": "max"}):
        with pytest.raises(ModelFileError, match=f"{next(iter(values))} is .*, which cannot be understood without architecture"):
            from_pretrained(described_as(values, name))
    prepared = {"mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6]}
    for values in ({"label_names": BEES}, {"id2label": dict(enumerate(BEES))}, {"label_names": BEES, "pretrained_cfg": prepared}):
        ours = from_pretrained(described_as(values, name))
        assert ours.labels == BEES and ("pretrained_cfg" not in values or ours.preparation.mean == (0.1, 0.2, 0.3))
        assert "guessed, as the file does not say: " in capsys.readouterr().err
