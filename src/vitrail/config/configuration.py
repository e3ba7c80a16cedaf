"""Resolution of a recipe, a file and flags into the settings of a run."""

import os
from collections.abc import Iterator, Mapping
from typing import Any

from vitrail.checks import refuse_given
from vitrail.config.settings import RunSettings
from vitrail.config.short_names import SHORT_NAMES
from vitrail.errors import ConfigError
from vitrail.models.configs.base import OF_IMAGES, ModelConfig
from vitrail.models.registry import architecture_of, named
from vitrail.settings import brief

Values = dict[str, Any]
"""Nested settings that are not checked yet."""


INSTEAD: dict[str, Values] = {
    "epochs": {"min_steps": 0},
    "ema": {"average": 0},
    "average": {"ema": 0},
    "patience": {"keep": "best"},
}
"""Settings of the loop that, unless they are 0, reset other settings in lower layers."""


def resolve(
    recipe: Values, file: Values, flags: Values, start: ModelConfig | None = None, fitted: ModelConfig | None = None
) -> RunSettings:
    """Merge recipe < file < flags, each a nested dictionary, into checked settings.

    A layer that names a model replaces the model of lower layers, except for the size and channels of its images and what that
    kind of model takes of ``start`` (`ModelConfig.taken_from`): a captioner has a ViT as its encoder. A layer that names a task
    replaces the fields of another task. Settings of the loop reset others in lower layers by `INSTEAD`: a number of epochs means
    that number, whatever ``min_steps`` there is. ``optimizer.layers`` of a layer that names a model is dropped where another
    model takes its place, except for parts that all models of that kind have; an empty mapping drops it, too. With a teacher the
    model gets a distillation token, if it can and no layer says otherwise.

    Args:
        recipe, file, flags: the layers.
        start: configuration of the model to start from.
        fitted: the configuration that the task makes of ``start``, if it does: it replaces the recipe's model, and the model's
            fields in a recipe that names none override it.
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
    """Return a recipe with a model to start from in place of its own; fields of a recipe that names no model override it."""
    kept = getattr(start, "distillation_token", False)
    fields = start.model_dump(exclude={"num_classes"} if kept else {"num_classes", "distillation_token"})
    fields = {"name": "custom", "architecture": architecture_of(start).name, **fields}
    own = recipe.get("model", {})
    over = {} if "name" in own else {name: value for name, value in own.items() if name in type(start).model_fields}
    return {**_without_parts(recipe, type(start)), "expected": {}, "model": {**fields, **over}}


def _of_one_model(layers: list[Values]) -> list[Values]:
    """Return layers without their settings of parts of a model that they name, where one above names another."""
    found: list[Values] = []
    above = None
    for layer in reversed(layers):
        found.append(layer if above is None else _without_parts(layer, named(above)[0].config))
        above = above or name_in(model_of(layer))
    return found[::-1]


def _without_parts(layer: Values, kind: type[ModelConfig]) -> Values:
    """Return a layer without its settings of parts of the model that it names, except for parts of all models of ``kind``."""
    parts = _parts_of(layer)
    if not parts or "name" not in model_of(layer):
        return layer
    optimizer = {name: value for name, value in layer["optimizer"].items() if name != "layers"}
    kept = {part: own for part, own in parts.items() if part in kind.parts}
    return {**layer, "optimizer": {**optimizer, **({"layers": kept} if kept else {})}}


def _parts_of(layer: Values) -> Values | None:
    """Return a layer's settings of parts of the model; None where there are none that could be read."""
    optimizer = layer.get("optimizer")
    parts = optimizer.get("layers") if isinstance(optimizer, dict) else None
    return parts if isinstance(parts, dict) else None


def _add(merged: Values, layer: Values, start: ModelConfig | None, seen: Values) -> Values:
    """Merge a layer over the ones below it; ``seen`` are the size and channels of the model to start from."""
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
    """Raise `ConfigError` for settings that contradict one another."""
    t, start = settings.training, settings.start
    wrong = (
        (t.tune != "all" and start is None, "a model that knows nothing yet is trained as a whole", "--tune",
         "give a trained model with --from, or leave training.tune at all"),
        (t.frozen_share and start is None, "layers that know nothing yet cannot stay as they are", "training.frozen_share",
         "give a trained model with --from, or leave training.frozen_share at 0"),
        (t.tune != "all" and t.frozen_share, f"--tune {t.tune} leaves all layers of the model as they are",
         "training.frozen_share", "leave one of the two out"),
        (t.average and t.ema, "a run has one kind of average", "training.average, training.ema",
         "give one of them, and the other as 0"),
    )  # fmt: skip
    for is_wrong, what, where, hint in wrong:
        if is_wrong:
            raise ConfigError(what, where=where, hint=hint)
    require_keep_fits_patience(settings)
    settings.task.require_consistent()


def _require_teacher(settings: RunSettings, flags: Mapping[str, Any]) -> None:
    """Raise `ConfigError` for flags about a teacher where there is none; a recipe, or a file of it, may wait for one."""
    if not settings.distillation.has_teacher:
        changed = settings.distillation.model_dump(exclude_defaults=True)
        refuse_given("there is no --teacher to learn from", {f"distillation.{name}": name in changed for name in flags})


def require_keep_fits_patience(settings: RunSettings) -> None:
    """Raise `ConfigError` for a run that waits for a better epoch and keeps the last one."""
    if settings.training.patience and settings.training.keep == "last":
        hint = "add --training.keep best, or give no patience"
        raise ConfigError("a run that waits for a better epoch in vain would keep a worse one", where="training.keep", hint=hint)


def model_of(values: Values) -> Values:
    """Return the model's section of settings that are not checked yet."""
    model = values.get("model")
    return model if isinstance(model, dict) else {}


def name_in(model: Mapping[str, Any]) -> str | None:
    """Return the name in a model's section; None where it has none, or one that means no model."""
    name = model.get("name")
    return name if isinstance(name, str) and name != "custom" else None


def of_images(model: Mapping[str, Any]) -> Values:
    """Return the fields of a model's section about images, which hold for a model of any name."""
    return {name: value for name, value in model.items() if name in OF_IMAGES}


def _with_token(settings: RunSettings) -> RunSettings:
    """Return the settings with a distillation token for a teacher, unless a layer sets it, or it would not be trained or read."""
    model, spoken = settings.model, settings.model.model_fields_set
    possible = "distillation_token" in type(model).model_fields.keys() - spoken
    if not settings.distillation.has_teacher or settings.training.tune != "all" or not possible:
        return settings
    fits = (getattr(model, "pool", ""), getattr(model, "head", "")) == ("class", "linear")
    return settings.changed(model=model.changed(distillation_token=True)) if fits else settings


def deep_merge(below: Values, above: Values) -> Values:
    """Return a nested dictionary with the values of ``above`` in place of those in ``below``, key by key at every depth."""
    result = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = deep_merge(result[key], value) if both else value
    return result


def nested(named: Mapping[str, Any]) -> Values:
    """Return settings by short or dotted name as nested ones: ``{"model.dim": 64}`` as ``{"model": {"dim": 64}}``.

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
    """Return the keys that a dotted name stands for; the name of a part of the model has its own dots: ``blocks.0``."""
    part, _, setting = name.removeprefix(PARTS).rpartition(".")
    if not name.startswith(PARTS) or not part:
        return name.split(".")
    section = PARTS.rstrip(".").split(".")
    return [*section, name.removeprefix(PARTS)] if isinstance(value, Mapping) else [*section, part, setting]


def plain(value: Any) -> Any:
    """Return a value as a file of settings can hold it: a path as its text, a number of NumPy as one of Python.

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
    """Yield the dotted names of all settings in a section, or the name of a single one."""
    if not isinstance(value, Mapping):
        yield name
        return
    for key, inner in value.items():
        yield from _dotted(f"{name}.{key}", inner)
