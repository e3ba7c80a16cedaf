"""A configuration may be a stranger's, too."""

from pathlib import Path

import numpy as np
import pytest
import yaml

from vitrail.cli.training.sweep import _axis
from vitrail.cli.training.train import dotted_settings
from vitrail.config.configuration import nested
from vitrail.config.request import Request
from vitrail.config.yaml_files import differences, read_yaml, to_yaml
from vitrail.errors import ConfigError


@pytest.mark.parametrize("layer", ["[{}]", "{{<<: [{}]}}"])
def test_a_few_lines_of_yaml_do_not_become_gigabytes(layer, tmp_path):
    layers = [f"x{n}: &x{n} {layer.format(', '.join([f'*x{n - 1}'] * 9))}" for n in range(1, 12)]
    file = tmp_path / "config.yaml"
    file.write_text("\n".join(["x0: &x0 {a: b}", *layers, "model: {name: *x11}"]))
    with pytest.raises(ConfigError, match="more than 100,000 values") as error:
        read_yaml(file)
    assert error.value.where == file


NUMBERS = ["9" * 5000, "0x" + "f" * 5000, "0" + "7" * 6000, "0b" + "1" * 20_000, "-0x" + "f" * 5000]


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: number[:3])
def test_a_number_of_thousands_of_digits_is_refused_in_a_file_and_in_a_flag(number, tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text(f"seed: 1\nmodel: {{depth: {number}}}\n")
    for read, where in (
        (lambda: read_yaml(file), f"{file}, line 2"),
        (lambda: dotted_settings(("--model.depth", number)), "--model.depth"),
        (lambda: _axis(f"model.depth=1,{number}"), "--over model.depth"),
    ):
        with pytest.raises(ConfigError, match=f"is a number of {len(number):,} digits") as error:
            read()
        assert error.value.where == where and len(str(error.value)) < 300


@pytest.mark.parametrize("layer", ["[{}]", "{{{}}}"], ids=["lists", "mappings"])
def test_the_aliases_of_a_flag_do_not_become_gigabytes(layer):
    names = [
        ", ".join([f"*x{n - 1}"] * 9) if layer[0] == "[" else ", ".join(f"k{k}: *x{n - 1}" for k in range(9)) for n in range(12)
    ]
    layers = [f"x{n}: &x{n} {layer.format(names[n])}" for n in range(1, 12)]
    with pytest.raises(ConfigError, match="more than 100,000 values") as error:
        dotted_settings(("--optimizer", f"{{x0: &x0 {{a: b}}, {', '.join(layers)}}}"))
    assert error.value.where == "--optimizer"


def test_values_of_yaml_may_be_shared_and_never_hold_themselves(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("model: &m {name: ViT-Ti/16}\nother: {<<: *m}\n")
    assert read_yaml(file) == {"model": {"name": "ViT-Ti/16"}, "other": {"name": "ViT-Ti/16"}}
    file.write_text("model: &m {name: *m}\n")
    with pytest.raises(ConfigError, match="more than 100,000 values"):
        read_yaml(file)


def test_where_another_run_was_extended_is_not_taken_over_with_its_file(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("schedule: {extended_at: [3, 30], name: linear}\ndata: {source: digits}\nmodel: {name: ViT-Ti/16}\n")
    settings = Request.read(None, file, {}).settings()
    assert settings.schedule.extended_at == (0, 0) and settings.schedule.name == "linear"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("training: {epochs: 3}\nmodel: {dim: 8}\ntraining:\n  seed: 4\n", 3),
        ("training:\n  epochs: 3\n  seed: 4\n  epochs: 5\n", 4),
    ],
    ids=["section", "key"],
)
def test_what_stands_twice_in_a_file_is_refused_with_its_line(text, line, tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match="appears twice") as error:
        read_yaml(file)
    assert error.value.where == f"{file}, line {line}"


@pytest.mark.parametrize(
    "given",
    [
        {"epochs": 2, "training.epochs": 3},
        {"training.epochs": 3, "epochs": 2},
        {"epochs": 2, "training": {"epochs": 3}},
        {"training": {"epochs": 3}, "training.epochs": 2},
        {"model.depth": 3, "model": {"depth": 2}},
    ],
)
def test_a_setting_that_is_given_twice_is_refused(given):
    first, second = given
    with pytest.raises(ConfigError, match=f"^{second} contradicts {first}"):
        nested(given)


@pytest.mark.parametrize("given", [{"optimizer.layers.blocks.0.lr": 0.5}, {"optimizer.layers.blocks.0": {"lr": 0.5}}])
def test_a_part_of_the_model_has_dots_in_its_name(given):
    assert nested({**given, "optimizer.layers.head.lr": 2, "optimizer.lr": 0.1}) == {
        "optimizer": {"layers": {"blocks.0": {"lr": 0.5}, "head": {"lr": 2}}, "lr": 0.1}
    }
    assert nested({"optimizer.layers.head": 2}) == {"optimizer": {"layers": {"head": 2}}}


def test_paths_and_numbers_of_numpy_are_settings_like_others():
    given = {"start": Path("runs/one"), "distillation": {"teacher": Path("runs/two")}, "epochs": np.int64(3)}
    assert nested(given) == {"start": "runs/one", "distillation": {"teacher": "runs/two"}, "training": {"epochs": 3}}
    assert Request.read(None, None, nested(given)).start == "runs/one"


@pytest.mark.parametrize("told", [{"weight": 0.9}, {"kind": "soft"}, {"temperature": 2, "once": False}, {"once": True}])
def test_what_is_told_of_a_teacher_is_refused_where_there_is_none(told):
    flags = nested({"data": "digits", "model": "ViT-Ti/16", "distillation": told})
    with pytest.raises(ConfigError, match="no --teacher") as error:
        Request.read(None, None, flags).settings()
    assert error.value.where == f"distillation.{next(iter(told))}"
    for teacher in ({"teacher": "runs/first"}, {"given": "a function"}):
        told_of = {**flags, "distillation": {**told, **teacher}}
        assert Request.read(None, None, told_of).settings().distillation.has_teacher


def test_a_recipe_may_wait_for_its_teacher_and_defaults_may_be_told_without_one(tmp_path):
    file = tmp_path / "config.yaml"
    for recipe in ("deit", "cifar10-taught"):
        settings = Request.read(recipe, None, {"data": {"source": "digits"}}).settings()
        assert not settings.distillation.has_teacher
        file.write_text(to_yaml(settings))
        assert Request.read(None, file, {}).settings().distillation == settings.distillation
    assert Request.read("deit", None, {"data": {"source": "digits"}, "distillation": {"kind": "hard"}}).settings()


def test_a_card_has_the_settings_that_differ_from_their_defaults():
    given = {"data": "digits", "model": "ViT-Ti/16", "distillation": {"teacher": "runs/first"}, "training": {"epochs": 7}}
    shown = yaml.safe_load(differences(Request.read(None, None, nested(given)).settings()))
    assert shown["distillation"] == {"teacher": "runs/first"} and shown["training"]["epochs"] == 7 and "data" not in shown
