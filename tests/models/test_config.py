"""The configuration: choices, combinations that cannot work, JSON."""

import json
import re
from typing import Literal, get_args, get_origin

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from vitrail.errors import ConfigError
from vitrail.models.configs.vit import ViTConfig

quick = settings(max_examples=60, deadline=None)
sides, counts = st.integers(1, 64), st.integers(1, 12)

CHOICES = [
    (name, choice)
    for name, field in ViTConfig.model_fields.items()
    if get_origin(field.annotation) is Literal
    for choice in get_args(field.annotation)
]
POSITIVE = ["image_size", "patch_size", "channels", "dim", "depth", "heads", "mlp_dim", "norm_eps", "layer_scale"]


def refusal(**fields) -> ConfigError:
    with pytest.raises(ConfigError) as error:
        ViTConfig.read(fields, where="model")
    return error.value


def suggestions(error: ConfigError) -> dict[str, list[int]]:
    """From "nearest dim that works: 28 or 32; nearest heads: 4 or 6" to numbers by name."""
    found = re.findall(r"nearest (.+?)(?: that works)?: ([\d or]+)", error.hint)
    return {name: [int(n) for n in numbers.split(" or ")] for name, numbers in found}


def works(**fields) -> bool:
    ViTConfig.read(fields)
    return True


# values


@pytest.mark.parametrize("name", POSITIVE)
@pytest.mark.parametrize("value", [0, -1])
def test_zero_and_below_are_refused(name, value):
    error = refusal(**{name: value})
    assert error.where.startswith(f"model.{name}")
    assert str(value) in error.what
    assert "greater than 0" in error.hint


@pytest.mark.parametrize(
    "fields",
    [
        *({name: 10**9} for name in POSITIVE if name not in ("norm_eps", "layer_scale")),
        {"registers": 10**9},
        {"image_size": 257 * 16, "patch_size": 16},
        {"image_size": 65 * 16, "patch_size": 16, "position": "relative"},
    ],
    ids=str,
)
def test_sizes_that_would_fill_the_memory_are_refused(fields):
    assert re.search(r"less than or equal to \d+|at most [\d,]+", refusal(**fields).hint)


@pytest.mark.parametrize(("name", "choice"), CHOICES[::8])
def test_a_mistyped_choice_is_refused_with_the_nearest(name, choice):
    error = refusal(**{name: choice + "x"})
    assert error.where == f"model.{name}"
    assert choice + "x" in error.what
    assert f"did you mean {choice!r}?" in error.hint


@pytest.mark.parametrize("value", [(224, 224, 3), (224,), "224x", "axb", "wide", None, 1.5])
def test_what_is_no_size_is_refused(value):
    assert refusal(image_size=value).where.startswith("model.image_size")


@pytest.mark.parametrize("value", ["64x32", (64, 32), [64, 32]])
def test_a_size_is_height_then_width(value):
    assert ViTConfig.read({"image_size": value}).image_size == (64, 32)
    assert ViTConfig.read({"image_size": value}).grid == (4, 2)


# combinations: both numbers are named, and what is suggested works


@given(dim=sides, heads=counts)
@quick
def test_heads_that_do_not_divide_the_width_are_refused_with_values_that_work(dim, heads):
    if dim % heads == 0:
        assert works(dim=dim, heads=heads)
        return
    error = refusal(dim=dim, heads=heads)
    assert f"dim {dim} " in error.what
    assert f"heads {heads}" in error.what
    nearest = suggestions(error)
    assert nearest.keys() == {"dim", "heads"}
    assert all(works(dim=value, heads=heads) for value in nearest["dim"])
    assert all(works(dim=dim, heads=value) for value in nearest["heads"])


@given(image=st.integers(1, 300), patch=st.integers(1, 40), other=st.integers(1, 5), side=st.sampled_from(["height", "width"]))
@quick
def test_a_patch_that_does_not_divide_the_image_is_refused_with_values_that_work(image, patch, other, side):
    assume(image % patch)

    def fields(image_side: int, patch_side: int) -> dict:
        pairs = {"image_size": (image_side, 6 * other), "patch_size": (patch_side, other)}
        return {name: pair if side == "height" else pair[::-1] for name, pair in pairs.items()}

    error = refusal(**fields(image, patch))
    assert f"image {side} {image} " in error.what
    assert f"patch {side} {patch}" in error.what
    nearest = suggestions(error)
    assert nearest.keys() == {f"image {side}", f"patch {side}"}
    assert all(works(**fields(value, patch)) for value in nearest[f"image {side}"])
    assert all(works(**fields(image, value)) for value in nearest[f"patch {side}"])


@given(dim=sides, heads=counts, position=st.sampled_from(["sincos-1d", "sincos-2d", "sincos-2d-simple", "learned-2d", "rotary"]))
@settings(max_examples=200, deadline=None)
def test_a_width_that_a_position_cannot_fill_is_refused_with_values_that_work(dim, heads, position):
    factor = {"sincos-1d": 2, "sincos-2d": 4, "sincos-2d-simple": 4, "learned-2d": 2, "rotary": 4 * heads}[position]
    if dim % heads == 0 and dim % factor == 0:
        assert works(dim=dim, heads=heads, position=position)
        return
    error = refusal(dim=dim, heads=heads, position=position)
    nearest = suggestions(error)
    for value in nearest.pop("head width (dim / heads)", []):
        assert works(dim=value * heads, heads=heads, position=position)
    for value in nearest.pop("dim", []):
        assert works(dim=value, heads=heads, position=position), f"{error}\n{value} does not work"
    for value in nearest.pop("heads", []):
        assert works(dim=dim, heads=value, position=position), f"{error}\n{value} does not work"
    assert not nearest


# data


def test_changed_gives_a_validated_copy():
    config = ViTConfig()
    assert config.changed(dim=384, heads=6).dim == 384
    assert config.dim == 768
    with pytest.raises(ConfigError, match="not divisible"):
        config.changed(heads=7)


@pytest.mark.parametrize(("name", "choice"), CHOICES[::8])
def test_json_and_back_is_the_same_configuration(name, choice):
    config = ViTConfig.read({name: choice, "image_size": (64, 96), "layer_scale": 1e-5, "dropout": 0.1})
    assert ViTConfig.read(json.loads(json.dumps(config.model_dump(mode="json")))) == config
    assert ViTConfig.read(json.loads(config.model_dump_json())) == config
