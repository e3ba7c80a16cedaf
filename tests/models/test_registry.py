"""Names of models: exact parameter counts, aliases, overrides, refusals."""

import json

import pytest
import torch

from vitrail.cli.look import models
from vitrail.errors import ConfigError
from vitrail.models.cost import totals
from vitrail.models.registry import NAMES, create_model, listed_name, model_config
from vitrail.models.vision.vit import ViT

COUNTED: dict[str, list[int]] = json.loads(models.COUNTED.read_text())
PUBLISHED = {
    "ViT-B/16": (86_567_656, 17_563_828_224), "ViT-G/14": (1_844_440_680, 483_747_550_208),
    "ResNet-50": (25_557_032, 4_089_184_256), "BiT-R152x4": (936_533_224, 182_777_282_560),
    "Mixer-B/16": (59_880_472, 12_601_767_936), "Swin-T": (28_288_354, 4_490_566_656),
    "Swin-B-384": (87_903_584, 47_083_134_976), "ViTPose-B": (89_994_513, 18_522_832_896),
    "ViTPose+-S": (33_143_697, 5_593_890_816),
}  # fmt: skip
"""Parameters and multiply-adds of the papers, timm's and transformers' models."""


def test_every_name_has_its_counts_in_the_file_and_published_ones_are_right():
    assert list(COUNTED) == NAMES
    assert {name: tuple(COUNTED[name]) for name in PUBLISHED} == PUBLISHED


@pytest.mark.parametrize("name", ["ViT-Ti/16", "ResNet-18", "Swin-T", "Mixer-S/16", "ViTPose-Ti", "Transformer-tiny", "LSTM"])
def test_the_file_has_what_is_counted(name):
    assert list(totals(model_config(name))) == COUNTED[name]


@pytest.mark.soak
@pytest.mark.parametrize("name", NAMES)
def test_the_file_has_what_is_counted_of_every_model(name):
    assert list(totals(model_config(name))) == COUNTED[name]
    with torch.device("meta"):
        assert sum(p.numel() for p in create_model(name).parameters()) == COUNTED[name][0]


@pytest.mark.parametrize(
    ("alias", "name", "fields"),
    [
        ("vit_tiny_patch16_224", "ViT-Ti/16", {}),
        ("vit_small_patch32_224", "ViT-S/32", {}),
        ("vit_base_patch16_224", "ViT-B/16", {}),
        ("vit_base_patch16_384", "ViT-B/16", {"image_size": 384}),
        ("vit_base_patch8_224", "ViT-B/8", {}),
        ("vit_base_patch16", "ViT-B/16", {}),
        ("vit_large_patch14_336", "ViT-L/14", {"image_size": 336}),
        ("vit_huge_patch14_224", "ViT-H/14", {}),
        ("vit_giant_patch14_224", "ViT-g/14", {}),
        ("vit_gigantic_patch14_224", "ViT-G/14", {}),
        ("vit_tiny_r_s16_p8_224", "R+ViT-Ti/16", {}),
        ("vit_small_r26_s32_224", "R26+ViT-S/32", {}),
        ("vit_base_r50_s16_224", "R50+ViT-B/16", {}),
        ("vit_large_r50_s32_224", "R50+ViT-L/32", {}),
        ("deit_tiny_patch16_224", "DeiT-Ti", {}),
        ("deit_base_distilled_patch16_384", "DeiT-B-distilled-384", {}),
        ("deit3_medium_patch16_224", "DeiT-III-M", {}),
        ("deit3_large_patch16_384", "DeiT-III-L", {"image_size": 384}),
        ("deit3_huge_patch14_224", "DeiT-III-H14", {}),
        ("resnet18", "ResNet-18", {}),
        ("resnet152", "ResNet-152", {}),
        ("resnetv2_50x1_bit", "BiT-R50x1", {}),
        ("resnetv2_152x4_bit", "BiT-R152x4", {}),
        ("cvt-13", "CvT-13", {}),
        ("cvt-w24-384", "CvT-W24-384", {}),
        ("pvt_medium", "PVT-Medium", {}),
        ("pvt_v2_b2_li", "PVTv2-b2-li", {}),
        ("swin_base_patch4_window12_384", "Swin-B-384", {}),
        ("t2t_vit_t_14", "T2T-ViT_t-14", {}),
        ("tnt_s_patch16_224", "TNT-S", {}),
        ("tnt_s_legacy_patch16_224", "TNT-S-legacy", {}),
    ],
)
def test_names_of_timm_and_of_authors_are_aliases(alias, name, fields):
    assert model_config(alias) == model_config(name, **fields)


def test_a_model_is_listed_by_the_name_that_says_most_of_it():
    names = ("ViT-S/16", "DeiT-S-distilled", "DeiT-III-B", "ResNet-50")
    assert [listed_name(model_config(name, num_classes=7)) for name in names] == list(names)
    assert listed_name(model_config("ViT-S/16", depth=7)) == "ViT"


@pytest.mark.parametrize("name", [name for name in NAMES if "+" in name and "/" in name])
def test_hybrids_go_by_a_shorter_name_as_well(name):
    assert model_config(name.replace("+ViT-", "+")) == model_config(name)


def test_any_patch_side_works_though_it_is_not_listed():
    assert "ViT-B/28" not in NAMES
    assert model_config("ViT-B/28").patch_size == (28, 28)


def test_create_model_builds_what_the_configuration_says():
    model = create_model("ViT-Ti/16", num_classes=7, depth=1, image_size=32)
    assert isinstance(model, ViT)
    assert model.config == model_config("ViT-Ti/16", num_classes=7, depth=1, image_size=32)
    assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 7)


def test_the_lecture_model_is_that_of_the_notes():
    config = model_config("ViT-CIFAR10-lecture")
    expected = {
        "image_size": (32, 32), "patch_size": (8, 8), "channels": 3, "num_classes": 10, "dim": 1024, "depth": 24, "heads": 16,
        "mlp_dim": 4096, "position": "sincos-1d", "pool": "class", "head": "lecture", "attention_dropout": 0.1,
        "head_dropout": 0.1, "dropout": 0.0, "norm_eps": 1e-5,
    }  # fmt: skip
    assert {name: getattr(config, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [("ViT-B/1б", "ViT-B/16"), ("vit-b/16", "ViT-B/16"), ("ViT-XL/16", "ViT-L/16"), ("ViT-CIFAR-lecture", "ViT-CIFAR10-lecture")],
)
def test_an_unknown_name_is_refused_with_the_nearest(wrong, meant):
    with pytest.raises(ConfigError) as error:
        model_config(wrong)
    assert repr(wrong) in error.value.what
    assert f"did you mean {meant!r}?" in error.value.hint


def test_a_name_like_no_other_is_refused_with_all_names():
    with pytest.raises(ConfigError) as error:
        create_model("qqqqqqqq")
    assert "did you mean" not in error.value.hint
    assert all(name in error.value.hint for name in NAMES)
