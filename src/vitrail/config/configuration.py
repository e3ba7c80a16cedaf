"""Merging of a recipe, a file and flags into the settings of a run."""

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
from vitrail.task_registry import task_row

Values = dict[str, Any]
"""Nested settings that are not validated yet."""


INSTEAD: dict[str, Values] = {
    "epochs": {"min_steps": 0},
    "ema": {"average": 0},
    "average": {"ema": 0},
    "patience": {"keep": "best"},
}
"""Settings of the training loop that reset other settings in lower layers, unless their value is 0."""


def resolve(
    recipe: Values, file: Values, flags: Values, start: ModelConfig | None = None, fitted: ModelConfig | None = None
) -> RunSettings:
    """Merge three layers of nested settings, recipe < file < flags, into validated settings.

    - A layer that names a model replaces the model of lower layers. Two things are kept: the size and channels of the images,
      and the fields that this kind of model takes from ``start`` (`ModelConfig.taken_from`: a captioner takes its encoder).
    - A layer that names another task replaces all fields of the task.
    - Settings of the training loop reset others in lower layers, see `INSTEAD`: ``epochs`` resets ``min_steps``.
    - ``optimizer.layers`` of a layer that names a model is dropped where a higher layer names another model, except for the
      parts that all models of that kind have. An empty mapping in a higher layer drops it, too.
    - With a teacher the model gets a distillation token if it can have one and no layer sets it.

    Args:
        recipe, file, flags: the layers.
        start: the configuration of the model to start from.
        fitted: the configuration that the task derives from ``start``, if any. It replaces the model of the recipe; a recipe
            that sets fields of the model without naming a model overrides those fields of ``fitted``.
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
    settings = settings.changed(schedule=settings.schedule.changed(extended_at=(0, 0)))  # the file may be of an extended run
    _require_possible(settings)
    _require_teacher(settings, flags.get("distillation", {}))
    return settings


def _over_start(recipe: Values, start: ModelConfig) -> Values:
    """Return a recipe with the model ``start`` in place of its own; if the recipe names no model, its fields override it."""
    kept = getattr(start, "distillation_token", False)
    fields = start.model_dump(exclude={"num_classes"} if kept else {"num_classes", "distillation_token"})
    fields = {"name": "custom", "architecture": architecture_of(start).name, **fields}
    own = recipe.get("model", {})
    over = {} if "name" in own else {name: value for name, value in own.items() if name in type(start).model_fields}
    return {**_without_parts(recipe, type(start)), "expected": {}, "model": {**fields, **over}}


def _of_one_model(layers: list[Values]) -> list[Values]:
    """Return the layers; a layer's ``optimizer.layers`` are removed where a higher layer names another model."""
    found: list[Values] = []
    above = None
    for layer in reversed(layers):
        found.append(layer if above is None else _without_parts(layer, named(above)[0].config))
        above = above or name_in(model_of(layer))
    return found[::-1]


def _without_parts(layer: Values, kind: type[ModelConfig]) -> Values:
    """Return a layer without its ``optimizer.layers``, except for parts that all models of ``kind`` have.

    A layer that names no model is unchanged.
    """
    parts = _parts_of(layer)
    if not parts or "name" not in model_of(layer):
        return layer
    optimizer = {name: value for name, value in layer["optimizer"].items() if name != "layers"}
    kept = {part: own for part, own in parts.items() if part in kind.parts}
    return {**layer, "optimizer": {**optimizer, **({"layers": kept} if kept else {})}}


def _parts_of(layer: Values) -> Values | None:
    """Return a layer's ``optimizer.layers``; None if it is missing or not a mapping."""
    optimizer = layer.get("optimizer")
    parts = optimizer.get("layers") if isinstance(optimizer, dict) else None
    return parts if isinstance(parts, dict) else None


def _add(merged: Values, layer: Values, start: ModelConfig | None, seen: Values) -> Values:
    """Merge a layer over the lower ones; ``seen`` has the image size and channels of the model to start from."""
    model = layer.get("model", {})
    if not isinstance(model, Mapping):
        raise ConfigError(f"model cannot be {brief(model)}", where="model", hint="give model.name and fields below it")
    if (name := name_in(model)) is not None:
        row, fields = named(name)
        taken = {} if start is None else row.config.taken_from(start)  # includes the size and channels of its images
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
    """Raise `ConfigError` for settings that contradict each other."""
    t, start = settings.training, settings.start
    wrong = (
        (t.tune != "all" and start is None, "training a part of a model needs a trained model", "--tune",
         "give a trained model with --from, or leave training.tune at all"),
        (t.frozen_share and start is None, "frozen layers need a trained model", "training.frozen_share",
         "give a trained model with --from, or leave training.frozen_share at 0"),
        (t.tune != "all" and t.frozen_share, f"--tune {t.tune} freezes all layers of the model already",
         "training.frozen_share", "leave one of the two out"),
        (t.average and t.ema, "a run averages weights in one way only", "training.average, training.ema",
         "give one of them, and the other as 0"),
    )  # fmt: skip
    for is_wrong, what, where, hint in wrong:
        if is_wrong:
            raise ConfigError(what, where=where, hint=hint)
    require_keep_fits_patience(settings)
    settings.task.require_consistent()


def _require_teacher(settings: RunSettings, flags: Mapping[str, Any]) -> None:
    """Raise `ConfigError` for flags about distillation without a teacher; a recipe or file may have them without one."""
    if not settings.distillation.has_teacher:
        changed = settings.distillation.model_dump(exclude_defaults=True)
        refuse_given("there is no --teacher to learn from", {f"distillation.{name}": name in changed for name in flags})


def require_keep_fits_patience(settings: RunSettings) -> None:
    """Raise `ConfigError` for ``patience`` with ``keep: last``."""
    if settings.training.patience and settings.training.keep == "last":
        hint = "add --training.keep best, or give no patience"
        what = "with patience, the last epoch of a run is worse than its best one"
        raise ConfigError(what, where="training.keep", hint=hint)


def model_of(values: Values) -> Values:
    """Return the model section of settings that are not validated yet; empty if there is none."""
    model = values.get("model")
    return model if isinstance(model, dict) else {}


def name_in(model: Mapping[str, Any]) -> str | None:
    """Return the name of a model in a model section; None if it has no name, or the name ``custom``."""
    name = model.get("name")
    return name if isinstance(name, str) and name != "custom" else None


def of_images(model: Mapping[str, Any]) -> Values:
    """Return the fields of a model section that describe the images, and so apply to any model."""
    return {name: value for name, value in model.items() if name in OF_IMAGES}


def _with_token(settings: RunSettings) -> RunSettings:
    """Return the settings with a distillation token if there is a teacher, no layer sets it, and the model would use it."""
    model, spoken = settings.model, settings.model.model_fields_set
    possible = "distillation_token" in type(model).model_fields.keys() - spoken
    classifies = task_row(settings.task.name).labels == "required"
    if not settings.distillation.has_teacher or not classifies or settings.training.tune != "all" or not possible:
        return settings
    fits = (getattr(model, "pool", ""), getattr(model, "head", "")) == ("class", "linear")
    return settings.changed(model=model.changed(distillation_token=True)) if fits else settings


def deep_merge(below: Values, above: Values) -> Values:
    """Return the nested dictionary ``below`` updated with ``above``, key by key at every depth."""
    result = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = deep_merge(result[key], value) if both else value
    return result


def nested(named: Mapping[str, Any]) -> Values:
    """Convert settings by short or dotted name to nested ones: ``{"model.dim": 64}`` to ``{"model": {"dim": 64}}``.

    Raises:
        ConfigError: a setting is given twice, such as by its short and by its dotted name.
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
    """Split a dotted name into keys; the part in ``optimizer.layers.blocks.0.lr`` stays one key, ``blocks.0``."""
    part, _, setting = name.removeprefix(PARTS).rpartition(".")
    if not name.startswith(PARTS) or not part:
        return name.split(".")
    section = PARTS.rstrip(".").split(".")
    return [*section, name.removeprefix(PARTS)] if isinstance(value, Mapping) else [*section, part, setting]


def plain(value: Any) -> Any:
    """Convert a value to a type that YAML can hold: a path to text, a NumPy value to a Python one.

    Raises:
        ConfigError: the value is a torch module.
    """
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in value.items()}
    if hasattr(value, "state_dict"):
        hint = "save it with vitrail.TrainedModel.save_pretrained and give start=FOLDER; see docs/python.md for a changed model"
        raise ConfigError(f"{type(value).__name__} cannot be a setting; numbers and text can", where="train", hint=hint)
    return os.fspath(value) if isinstance(value, os.PathLike) else value.tolist() if hasattr(value, "tolist") else value


def _dotted(name: str, value: Any) -> Iterator[str]:
    """Yield the dotted names of all settings in a section; for a single setting, its name."""
    if not isinstance(value, Mapping):
        yield name
        return
    for key, inner in value.items():
        yield from _dotted(f"{name}.{key}", inner)
