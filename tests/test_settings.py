"""Configuration is checked data: an unknown key, a wrong type or a wrong word is an error that says what would work."""

import ast
import inspect
import json
import textwrap
from functools import cache
from itertools import pairwise

import pytest
from pydantic import ValidationError

from vitrail.config.settings import OptimizerSettings, RunSettings
from vitrail.config.yaml_files import read_yaml
from vitrail.errors import ConfigError
from vitrail.models.configs.vit import ViTConfig
from vitrail.models.registry import ROWS
from vitrail.task_registry import TASKS

COMPLETE = {"model": {"name": "ViT-Ti/16"}, "data": {"source": "digits"}}


def complete(**sections) -> dict:
    return {**COMPLETE, **sections}


@pytest.mark.parametrize(
    ("values", "where", "nearest"),
    [
        (complete(trainin={}), "trainin", "training"),
        (complete(training={"epoch": 3}), "training.epoch", "epochs"),
        (complete(optimizer={"weightdecay": 3}), "optimizer.weightdecay", "weight_decay"),
        (complete(model={"name": "x", "pol": "mean"}), "model.pol", "pool"),
        (complete(augmentation={"horizontal-flip": 1}), "augmentation.horizontal-flip", "horizontal_flip"),
        ({"trainin": {}}, "trainin", "training"),
        (complete(optimizer={"layers": {"blocks.0": {"lrr": 1}}}), "optimizer.layers.blocks.0.lrr", "lr"),
    ],
)
def test_an_unknown_key_at_any_depth_is_an_error_that_names_the_nearest(values, where, nearest):
    with pytest.raises(ConfigError) as caught:
        RunSettings.read(values)
    assert caught.value.where == where
    assert f"did you mean {nearest!r}?" in caught.value.hint


def test_a_missing_key_is_called_missing():
    with pytest.raises(ConfigError, match="missing") as caught:
        RunSettings.read({"model": {"name": "ViT-Ti/16"}})
    assert "data" in caught.value.where


def test_the_path_of_a_key_begins_where_the_reader_says():
    with pytest.raises(ConfigError) as caught:
        ViTConfig.read({"dpeth": 3}, where="model")
    assert caught.value.where == "model.dpeth"


@pytest.mark.parametrize(
    ("section", "values"),
    [
        ("training", {"epochs": "many"}),
        ("training", {"epochs": 1.5}),
        ("training", {"epochs": True}),
        ("training", {"epochs": None}),
        ("training", {"epochs": [3]}),
        ("training", {"compile": "perhaps"}),
        ("training", {"label_smoothing": 1.0}),
        ("training", {"ema": -0.1}),
        ("optimizer", {"lr": float("inf")}),
        ("optimizer", {"lr": float("nan")}),
        ("optimizer", {"lr": True}),
        ("optimizer", {"betas": [0.9]}),
        ("optimizer", {"betas": [0.9, 1.0]}),
        ("optimizer", {"weight_decay": -1}),
        ("optimizer", {"clip_norm": -1}),
        ("schedule", {"final": 2}),
        ("schedule", {"warmup_epochs": -1}),
        ("data", {"source": 3}),
        ("data", {"source": "digits", "workers": -1}),
        ("augmentation", {"min_area": 0}),
        ("training", [3]),
        ("training", "fast"),
    ],
    ids=str,
)
def test_a_value_of_the_wrong_type_or_range_is_an_error_that_names_it(section, values):
    with pytest.raises(ConfigError) as caught:
        RunSettings.read(complete(**{section: values}))
    assert caught.value.where.startswith(section)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("section", "name", "word", "nearest"),
    [
        ("optimizer", "name", "adamW", "adamw"),
        ("schedule", "name", "cosinus", "cosine"),
        ("training", "precision", "float16", "fp16"),
        ("augmentation", "crop", "padded", "pad"),
    ],
)
def test_a_wrong_word_is_an_error_that_lists_the_right_ones(section, name, word, nearest):
    with pytest.raises(ConfigError) as caught:
        RunSettings.read(complete(**{section: {name: word}}))
    assert caught.value.where == f"{section}.{name}"
    assert f"'{nearest}'" in caught.value.hint


def test_a_value_is_shown_no_longer_than_a_line_holds():
    with pytest.raises(ConfigError) as caught:
        RunSettings.read(complete(training={"epochs": "x" * 10_000}))
    assert len(caught.value.what) < 500


def test_a_changed_copy_is_checked_as_well():
    settings = OptimizerSettings()
    assert settings.changed(lr=0.5).lr == 0.5
    assert settings.lr != 0.5
    with pytest.raises(ConfigError):
        settings.changed(lr=-1)
    with pytest.raises(ConfigError):
        settings.changed(speed=1)


def test_settings_are_json():
    settings = RunSettings.read(COMPLETE)
    assert RunSettings.read(json.loads(json.dumps(settings.model_dump(mode="json")))) == settings


@cache
def documented(section) -> set[str]:
    """Return the fields that have a docstring below them, in the class or in those it is made of."""
    fields = set()
    for base in section.__mro__:
        if base.__module__.startswith("vitrail."):
            body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0].body
            for field, text in pairwise(body):
                if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                    fields.add(field.target.id)
    return fields


def test_every_setting_says_what_it_is():
    def silent(section, prefix):
        for name, field in section.model_fields.items():
            if isinstance(field.annotation, type) and hasattr(field.annotation, "model_fields"):
                yield from silent(field.annotation, f"{prefix}.{name}")
            elif name not in documented(section):
                yield f"{prefix}.{name}"

    sections = [RunSettings, *(row.config for row in ROWS), *(row.settings for row in TASKS.values())]
    assert [name for section in sections for name in silent(section, section.__name__)] == []


# files


def write(folder, text) -> object:
    file = folder / "own.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


def test_a_file_that_is_missing_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="cannot read") as caught:
        read_yaml(tmp_path / "own.yaml")
    assert str(caught.value.where).endswith("own.yaml")


def test_a_file_that_is_no_yaml_is_an_error_with_its_line(tmp_path):
    with pytest.raises(ConfigError) as caught:
        read_yaml(write(tmp_path, "training:\n  epochs: 3\n  seed: [1\nmodel: 2\n"))
    assert str(caught.value.where).endswith("own.yaml, line 4")


@pytest.mark.parametrize("text", ["- 1\n- 2\n", "only words", "", "3"], ids=["list", "words", "nothing", "number"])
def test_a_file_that_is_no_mapping_is_an_error(tmp_path, text):
    with pytest.raises(ConfigError, match="no settings"):
        read_yaml(write(tmp_path, text))


@pytest.mark.parametrize(
    "text",
    [
        "!!python/object/apply:os.mkdir [{made}]",
        "!!python/object/new:os.mkdir [{made}]",
        "!!python/name:os.mkdir",
        "!!python/module:this",
        "!!python/object:vitrail.data.readers.sources.Item {{}}",
    ],
)
def test_a_file_never_runs_or_imports_code(tmp_path, text):
    made = tmp_path / "made"
    with pytest.raises(ConfigError, match="not valid YAML"):
        read_yaml(write(tmp_path, "about: " + text.format(made=made) + "\n"))
    assert not made.exists()


def test_a_setting_of_several_kinds_is_told_by_its_own_name_alone():
    with pytest.raises(ConfigError, match=r"^training\.batch_size cannot be 'x'") as caught:
        RunSettings.read(complete(training={"batch_size": "x"}))
    assert caught.value.where == "training.batch_size"


def test_settings_are_frozen():
    settings = RunSettings.read(COMPLETE)
    with pytest.raises(ValidationError):
        settings.training.epochs = 3
    with pytest.raises(ValidationError):
        settings.model = None
