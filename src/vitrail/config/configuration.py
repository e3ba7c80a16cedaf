"""How a recipe, a file and flags add up to the settings of a run, and how settings are written."""

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import NoneType
from typing import Any, get_args

import yaml

from vitrail.checks import refuse_given
from vitrail.config.settings import ModelSettings, RunSettings, model_settings
from vitrail.config.short_names import SHORT_NAMES
from vitrail.errors import ConfigError, nearest, unknown
from vitrail.files import read_text
from vitrail.models.configs.base import OF_IMAGES, ModelConfig
from vitrail.models.registry import ARCHITECTURES, architecture_of, named
from vitrail.plain_yaml import value_of
from vitrail.settings import Settings, brief
from vitrail.task_registry import TASKS
from vitrail.tasks.settings import TaskSettings

Values = dict[str, Any]
"""Nested settings that are not checked yet."""


INSTEAD: dict[str, Values] = {
    "epochs": {"min_steps": 0},
    "ema": {"average": 0},
    "average": {"ema": 0},
    "patience": {"keep": "best"},
}
"""Settings of the loop that, unless they are 0, put away what a lower layer says of others."""


def resolve(
    recipe: Values, file: Values, flags: Values, start: ModelConfig | None = None, fitted: ModelConfig | None = None
) -> RunSettings:
    """Add up recipe < file < flags, each a nested dictionary, into checked settings.

    A layer that names a model means that model: of the layers below it, only the size and channels of the images stay, and of
    ``start`` what that kind of model takes of another (`ModelConfig.taken_from`): a captioner has a ViT as its encoder.
    A layer that names a task means that task, without the fields of another below it.
    What a layer says of the loop stands in place of what `INSTEAD` has of those below it: a number of epochs means that number,
    whatever ``min_steps`` there is.
    What a layer says in ``optimizer.layers`` of parts of a model that it names itself goes where another model takes that one's
    place, but for parts that all models of that kind have; an empty mapping there puts away what is below it.
    ``start`` is the configuration of the model to start from, and ``fitted`` the one that the task makes of it, if it does:
    that takes the place of the recipe's model, and what a recipe that names none says of it stands over that.
    With a teacher the model has a distillation token, if it can and no layer says otherwise.
    """
    merged: Values = {}
    fitted = start if fitted is None else fitted
    seen = {name: getattr(fitted, name) for name in OF_IMAGES if hasattr(fitted, name)}
    for layer in _of_one_model([recipe if fitted is None else _over_start(recipe, fitted), file, flags]):
        merged = _add(merged, layer, start, seen)
    if "source" not in merged.get("data", {}):
        raise ConfigError("no data given", where="--data", hint="give a folder of images sorted into folders by class, or digits")
    if "name" not in merged.get("model", {}):
        raise ConfigError("no model given", where="--from", hint="give a trained model with --from, or a name with --model")
    settings = _with_token(RunSettings.read(merged))
    settings = settings.changed(schedule=settings.schedule.changed(extended_at=(0, 0)))  # a file may be an extended run's
    _require_possible(settings)
    _require_teacher(settings, flags.get("distillation", {}))
    return settings


def _over_start(recipe: Values, start: ModelConfig) -> Values:
    """A recipe with a model to start from in place of its own, of which a recipe that names none says more."""
    kept = getattr(start, "distillation_token", False)
    fields = start.model_dump(exclude={"num_classes"} if kept else {"num_classes", "distillation_token"})
    fields = {"name": "custom", "architecture": architecture_of(start).name, **fields}
    own = recipe.get("model", {})
    over = {} if "name" in own else {name: value for name, value in own.items() if name in type(start).model_fields}
    return {**_without_parts(recipe, type(start)), "expected": {}, "model": {**fields, **over}}


def _of_one_model(layers: list[Values]) -> list[Values]:
    """Layers without what they say of the parts of a model that they name, where one above names another."""
    found: list[Values] = []
    above = None
    for layer in reversed(layers):
        found.append(layer if above is None else _without_parts(layer, named(above)[0].config))
        above = above or name_in(model_of(layer))
    return found[::-1]


def _without_parts(layer: Values, kind: type[ModelConfig]) -> Values:
    """A layer without what it says of the parts of a model that it names, but for those that all models of another kind have."""
    parts = _parts_of(layer)
    if not parts or "name" not in model_of(layer):
        return layer
    optimizer = {name: value for name, value in layer["optimizer"].items() if name != "layers"}
    kept = {part: own for part, own in parts.items() if part in kind.parts}
    return {**layer, "optimizer": {**optimizer, **({"layers": kept} if kept else {})}}


def _parts_of(layer: Values) -> Values | None:
    """What a layer says of parts of the model; None where it says nothing that could be read."""
    optimizer = layer.get("optimizer")
    parts = optimizer.get("layers") if isinstance(optimizer, dict) else None
    return parts if isinstance(parts, dict) else None


def _add(merged: Values, layer: Values, start: ModelConfig | None, seen: Values) -> Values:
    """Put a layer over what the ones below it add up to; ``seen`` are the images of the model to start from."""
    model = layer.get("model", {})
    if not isinstance(model, Mapping):
        raise ConfigError(f"model cannot be {brief(model)}", where="model", hint="give model.name and fields below it")
    if (name := name_in(model)) is not None:
        row, fields = named(name)
        taken = {} if start is None else row.config.taken_from(start)  # with what images it sees
        images = {**({} if taken else seen), **of_images(merged.get("model", {}))}
        merged = {**merged, "about": "", "expected": {}, "model": {**images, "architecture": row.name, **fields, **taken}}
    if (task := layer.get("task")) is not None:
        task = {"name": task} if isinstance(task, str) else task
        if isinstance(task, Mapping) and task.get("name", own := merged.get("task", {}).get("name")) != own:
            merged = {**merged, "task": {}}
        layer = {**layer, "task": task}
    training = layer.get("training", {})
    for name, others in INSTEAD.items():
        if isinstance(training, Mapping) and training.get(name):
            merged = deep_merge(merged, {"training": others})
    if _parts_of(layer) == {} and _parts_of(merged):
        merged = {**merged, "optimizer": {**merged["optimizer"], "layers": {}}}
    return deep_merge(merged, layer)


def _require_possible(settings: RunSettings) -> None:
    """Refuse settings that contradict one another; raises `ConfigError`."""
    t = settings.training
    if t.tune != "all" and settings.start is None:
        hint = "give a trained model with --from, or leave training.tune at all"
        raise ConfigError("a model that knows nothing yet is trained as a whole", where="--tune", hint=hint)
    if t.frozen_share and settings.start is None:
        hint = "give a trained model with --from, or leave training.frozen_share at 0"
        raise ConfigError("layers that know nothing yet cannot stay as they are", where="training.frozen_share", hint=hint)
    if t.tune != "all" and t.frozen_share:
        what = f"--tune {t.tune} leaves all layers of the model as they are"
        raise ConfigError(what, where="training.frozen_share", hint="leave one of the two out")
    if t.average and t.ema:
        hint = "give one of them, and the other as 0"
        raise ConfigError("a run has one kind of average", where="training.average, training.ema", hint=hint)
    require_keep_fits_patience(settings)
    settings.task.require_consistent()


def _require_teacher(settings: RunSettings, told: Mapping[str, Any]) -> None:
    """Refuse what flags tell of learning from a teacher where there is none; a recipe, or a file of it, may wait for one."""
    if not settings.distillation.has_teacher:
        changed = settings.distillation.model_dump(exclude_defaults=True)
        given = {f"distillation.{name}": name in changed for name in told}
        refuse_given("there is no --teacher to learn from", given)


def require_keep_fits_patience(settings: RunSettings) -> None:
    """Refuse to wait for a better epoch and keep the last one; raises `ConfigError`."""
    if settings.training.patience and settings.training.keep == "last":
        hint = "add --training.keep best, or give no patience"
        raise ConfigError("a run that waits for a better epoch in vain would keep a worse one", where="training.keep", hint=hint)


def model_of(values: Values) -> Values:
    """What settings that are not checked yet say of the model."""
    model = values.get("model")
    return model if isinstance(model, dict) else {}


def name_in(model: Mapping[str, Any]) -> str | None:
    """The name in what a layer says of the model; None where it has none, or one that means no model."""
    name = model.get("name")
    return name if isinstance(name, str) and name != "custom" else None


def of_images(model: Mapping[str, Any]) -> Values:
    """What a layer says of the model's images: it holds for a model of any name."""
    return {name: value for name, value in model.items() if name in OF_IMAGES}


def _with_token(settings: RunSettings) -> RunSettings:
    """The settings with a distillation token for a teacher, unless they speak of it, or it would not be trained or read."""
    model, spoken = settings.model, settings.model.model_fields_set
    possible = "distillation_token" in type(model).model_fields.keys() - spoken
    if not settings.distillation.has_teacher or settings.training.tune != "all" or not possible:
        return settings
    fits = (getattr(model, "pool", ""), getattr(model, "head", "")) == ("class", "linear")
    return settings.changed(model=model.changed(distillation_token=True)) if fits else settings


def fields_of(model: str) -> set[str]:
    """The settings that a model of this name can have; raises `ConfigError` where there is no such name."""
    return set(model_settings(named(model)[0].name).model_fields)


def check_names(values: Mapping[str, Any], *, path: str = "", settings: type[Settings] = RunSettings) -> None:
    """Refuse a setting that does not exist, by its dotted name below ``path``, with the nearest that does."""
    for name, value in values.items():
        dotted = f"{path}{name}"
        fields = _fields(settings)
        if name not in fields:
            known = _leaves() if settings is RunSettings else {field: field for field in fields}
            error = unknown("setting", name, list(known), where=dotted)
            close = nearest(name, list(known))
            raise ConfigError(error.what, where=dotted, hint=f"did you mean {known[close]!r}?" if close else error.hint)
        kind = None if name not in settings.model_fields else settings.model_fields[name].annotation
        if isinstance(value, Mapping) and isinstance(kind, type) and issubclass(kind, Settings):
            check_names(value, path=f"{dotted}.", settings=kind)


def _fields(settings: type[Settings]) -> list[str]:
    """The names of a section's settings; for model and task, of every architecture and of every task."""
    return list(dict.fromkeys(field for kind in _kinds(settings) for field in kind.model_fields))


def _kinds(settings: type[Settings]) -> Sequence[type[Settings]]:
    """The settings that a section may have: for model and task, of every architecture and of every task."""
    if settings is ModelSettings:
        return [model_settings(name) for name in ARCHITECTURES]
    return [row.settings for row in TASKS.values()] if settings is TaskSettings else [settings]


def takes_words(dotted: str) -> bool:
    """Whether a setting may be any text, which ``007`` and ``no`` then are, too."""
    section, _, name = dotted.rpartition(".")
    inside: Any = RunSettings.model_fields[section].annotation if section in RunSettings.model_fields else None
    kinds = _kinds(inside) if isinstance(inside, type) and issubclass(inside, Settings) else [] if section else [RunSettings]
    found = [kind.model_fields[name].annotation for kind in kinds if name in kind.model_fields]
    return bool(found) and all(map(_is_text, found))


def _is_text(kind: Any) -> bool:
    """Whether a field of this kind is any text, or none."""
    return all(part in (str, NoneType) for part in get_args(kind) or (kind,))


def _leaves() -> dict[str, str]:
    """Sections by their name, and their settings by name with the dotted name that they are given by."""
    leaves = {name: name for name in RunSettings.model_fields}
    for section, field in RunSettings.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Settings):
            leaves |= {name: f"{section}.{name}" for name in _fields(field.annotation) if name not in leaves}
    return leaves


def deep_merge(below: Values, above: Values) -> Values:
    """A nested dictionary with the values of ``above`` in place of those in ``below``, key by key at every depth."""
    result = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = deep_merge(result[key], value) if both else value
    return result


def nested(named: Mapping[str, Any]) -> Values:
    """Settings by short or dotted name to nested ones: ``{"model.dim": 64}`` to ``{"model": {"dim": 64}}``.

    Raises:
        ConfigError: a setting that is given twice, such as by its short name and by its dotted one.
    """
    result: Values = {}
    seen: dict[str, str] = {}
    for given, value in named.items():
        name, value = given if isinstance(value, Mapping) else SHORT_NAMES.get(given, given), plain(value)
        for dotted in _dotted(name, value):
            clash = next((s for s in seen if s == dotted or s.startswith(f"{dotted}.") or dotted.startswith(f"{s}.")), None)
            if clash is not None:
                raise ConfigError(f"{given} contradicts {seen[clash]}", where=given, hint="give one of them")
        seen |= dict.fromkeys(_dotted(name, value), given)
        for key in reversed(_keys(name, value)):
            value = {key: value}
        result = deep_merge(result, value)
    return result


PARTS = "optimizer.layers."


def _keys(name: str, value: Any) -> list[str]:
    """The keys that a dotted name stands for; the name of a part of the model has dots of its own, such as ``blocks.0``."""
    part, _, setting = name.removeprefix(PARTS).rpartition(".")
    if not name.startswith(PARTS) or not part:
        return name.split(".")
    section = PARTS.rstrip(".").split(".")
    return [*section, name.removeprefix(PARTS)] if isinstance(value, Mapping) else [*section, part, setting]


def plain(value: Any) -> Any:
    """A value as a file of settings can hold it: a path becomes its text, a number of NumPy one of Python.

    Raises:
        ConfigError: a module of torch, which no file can hold.
    """
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in value.items()}
    if hasattr(value, "state_dict"):
        hint = "save it with vitrail.TrainedModel.save_pretrained and give start=FOLDER; see docs/python.md for a changed model"
        raise ConfigError(f"{type(value).__name__} is no setting: a run is made of names and files", where="train", hint=hint)
    return os.fspath(value) if isinstance(value, os.PathLike) else value.tolist() if hasattr(value, "tolist") else value


def _dotted(name: str, value: Any) -> Iterator[str]:
    """The dotted names of all settings in a section, or the name of a single one."""
    if not isinstance(value, Mapping):
        yield name
        return
    for key, inner in value.items():
        yield from _dotted(f"{name}.{key}", inner)


MOST_BYTES = 2**18
"""Of a configuration; all settings of a run are a few thousand bytes."""


def _require_once(node: yaml.Node, file: Path) -> None:
    """Refuse a key that stands twice in a section: YAML would keep the last, and say nothing."""
    seen: set[str] = set()
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    for key in (key for key, _ in pairs if isinstance(key, yaml.ScalarNode)):
        if key.value in seen:
            where = f"{file}, line {key.start_mark.line + 1}"
            raise ConfigError(f"{brief(key.value)} is there twice", where=where, hint="write it once")
        seen.add(key.value)


def read_yaml(file: Path) -> Values:
    """A configuration file; raises `ConfigError` where it is missing or no mapping."""
    try:
        values = value_of(read_text(file, MOST_BYTES), where=file, check=partial(_require_once, file=file))
    except OSError as error:
        raise ConfigError(f"cannot read the configuration: {error.strerror}", where=file, hint="check the path") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        line = getattr(getattr(error, "problem_mark", None), "line", None)
        where = f"{file}, line {line + 1}" if line is not None else file
        raise ConfigError("the configuration is no YAML", where=where, hint="mend the file") from None
    if not isinstance(values, dict):
        raise ConfigError("the configuration holds no settings", where=file, hint="write `section:` and `  key: value` lines")
    _require_names(values, file)
    return values


def _require_names(values: Mapping[Any, Any], file: Path) -> None:
    for name, value in values.items():
        if not isinstance(name, str):
            raise ConfigError(f"the setting {name!r} is no name", where=file, hint="write `name: value` lines")
        if isinstance(value, Mapping):
            _require_names(value, file)


def to_yaml(settings: RunSettings) -> str:
    """The complete settings as YAML that `read_yaml` and ``--config`` take back."""
    values = settings.model_dump(mode="json")
    values["model"] = {"name": settings.model.name, **values["model"]}
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True)


def differences(settings: RunSettings) -> str:
    """How a model was trained, as YAML: the settings that differ from their defaults."""
    sections = {"task", "about", "augmentation", "optimizer", "lora", "distillation", "schedule", "training"}
    values = settings.model_dump(mode="json", include=sections, exclude_defaults=True)
    return yaml.safe_dump({name: value for name, value in values.items() if value}, sort_keys=False, allow_unicode=True)
