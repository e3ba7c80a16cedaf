"""Names of models: exact parameter counts, aliases, overrides, refusals."""

import pytest
import torch
from vitrail.models.counted import TOTALS

from vitrail.errors import ConfigError
from vitrail.models.configs.vit import ViTConfig
from vitrail.models.configs.vit_names import SIZES
from vitrail.models.cost import totals
from vitrail.models.registry import NAMES, create_model, listed_name, model_config
from vitrail.models.vision.vit import ViT


def parameters(name: str, **fields) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in create_model(name, **fields).parameters())


def by_hand(dim: int, depth: int, mlp_dim: int, patch: int, classes: int = 1000) -> int:
    """Parameters of a plain ViT with class token at 224 pixels."""
    embedding = (3 * patch**2 + 1) * dim
    tokens_and_positions = dim + (1 + (224 // patch) ** 2) * dim
    attention = (dim + 1) * 3 * dim + (dim + 1) * dim
    mlp = (dim + 1) * mlp_dim + (mlp_dim + 1) * dim
    norm = 2 * dim
    return embedding + tokens_and_positions + depth * (attention + mlp + 2 * norm) + norm + (dim + 1) * classes


def test_every_name_has_its_counts_in_the_table():
    assert list(TOTALS) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_table_has_what_is_counted(name):
    assert totals(model_config(name)) == TOTALS[name]
    assert parameters(name) == TOTALS[name][0]


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("ViT-") and "/" in name])
def test_parameter_counts_equal_the_sum_over_the_layers(name):
    size, patch = name.removeprefix("ViT-").split("/")
    numbers = SIZES[size]
    assert by_hand(numbers["dim"], numbers["depth"], numbers["mlp_dim"], int(patch)) == TOTALS[name][0]


def test_a_mean_pooled_model_has_neither_class_token_nor_its_position():
    assert parameters("ViT-B/16", pool="mean") == 86_566_120


@pytest.mark.parametrize(
    ("size", "numbers"),
    [
        ("Ti", (192, 12, 3, 768)),
        ("S", (384, 12, 6, 1536)),
        ("B", (768, 12, 12, 3072)),
        ("L", (1024, 24, 16, 4096)),
        ("H", (1280, 32, 16, 5120)),
        ("g", (1408, 40, 16, 6144)),
        ("G", (1664, 48, 16, 8192)),
    ],
)
def test_sizes_are_those_of_the_papers(size, numbers):
    config = model_config(f"ViT-{size}/16")
    assert (config.dim, config.depth, config.heads, config.mlp_dim) == numbers


def test_the_default_is_b_16_at_224():
    assert model_config("ViT-B/16") == ViTConfig()


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
    ],
)
def test_names_of_timm_are_aliases(alias, name, fields):
    assert model_config(alias) == model_config(name, **fields)


def test_a_model_is_listed_by_the_name_that_says_most_of_it():
    names = ("ViT-S/16", "DeiT-S-distilled", "DeiT-III-B", "ResNet-50")
    assert [listed_name(model_config(name, num_classes=7)) for name in names] == list(names)
    assert listed_name(model_config("ViT-S/16", depth=7)) == "ViT"


@pytest.mark.parametrize("name", [name for name in NAMES if "+" in name and "/" in name])
def test_hybrids_go_by_a_shorter_name_as_well(name):
    assert model_config(name.replace("+ViT-", "+")) == model_config(name)


def test_the_hybrids_have_the_grid_of_the_paper():
    grids = {name: model_config(name).grid for name in NAMES if "+" in name and "/" in name}
    assert grids == {name: (14, 14) if name == "R50+ViT-B/16" else (7, 7) for name in grids}


def test_any_patch_side_works_though_it_is_not_listed():
    assert "ViT-B/28" not in NAMES
    assert model_config("ViT-B/28").patch_size == (28, 28)


def test_fields_replace_those_of_the_name():
    config = model_config("ViT-Ti/16", num_classes=7, depth=2, image_size=(32, 48), pool="mean")
    assert (config.num_classes, config.depth, config.image_size, config.pool) == (7, 2, (32, 48), "mean")
    assert (config.dim, config.heads, config.mlp_dim) == (192, 3, 768)
    assert model_config("ViT-Ti/16").num_classes == 1000


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


def test_an_unknown_field_is_refused_with_the_nearest():
    with pytest.raises(ConfigError) as error:
        create_model("ViT-B/16", num_clases=10)
    assert error.value.where == "model.num_clases"
    assert "did you mean 'num_classes'?" in error.value.hint


@pytest.mark.parametrize("name", ["ViT-B/0", "ViT-B/15", "vit_base_patch16_225"])
def test_a_name_with_numbers_that_cannot_work_is_refused(name):
    with pytest.raises(ConfigError):
        model_config(name)
