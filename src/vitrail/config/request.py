"""A request for a run, and its early checks. This module imports no torch, so that a mistake is reported at once."""

import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from vitrail.checks import nearest_multiple
from vitrail.config.configuration import (
    Values,
    deep_merge,
    model_of,
    name_in,
    nested,
    of_images,
    resolve,
)
from vitrail.config.known_settings import check_names
from vitrail.config.recipes import default_recipe, read_recipe
from vitrail.config.run_files import CONFIG
from vitrail.config.settings import RunSettings
from vitrail.config.yaml_files import read_yaml
from vitrail.errors import ConfigError, DataError
from vitrail.files import path_of
from vitrail.models.configs.base import ImageConfig, ModelConfig, height_and_width
from vitrail.models.registry import USUAL, model_config
from vitrail.runtime.output import require_free
from vitrail.task_registry import task_row
from vitrail.tasks.settings import TaskSettings
from vitrail.weights.locate import locate, require_possible


@dataclass(frozen=True)
class Request:
    """Settings in three layers, recipe < file < flags, and a reference to the model to start from."""

    recipe: Values
    file: Values
    flags: Values
    start: str | None

    @property
    def task(self) -> str:
        """The name of the task."""
        return next(filter(None, map(_task_of, (self.flags, self.file, self.recipe))), TaskSettings().name)

    @classmethod
    def read(cls, recipe: str | None, config: Path | None, settings: Values) -> Self:
        """Read the recipe (the default one if ``recipe`` is None) and the file; raises `ConfigError`."""
        file = nested(read_yaml(config)) if config else {}
        check_names(file, path=f"{config}: ")
        check_names(settings)
        own = deep_merge(file, settings)
        data, model, start = own.get("data", {}), file.get("model", {}), own.get("start")
        if not isinstance(start, str | None):
            hint = "give a folder, a file of weights, a hub id or a model name"
            raise ConfigError(f"start cannot be {start!r}", where="--from", hint=hint)
        if recipe is None and isinstance(model, dict) and "name" in model:
            return cls({}, file, settings, start)  # a file that names a model replaces the recipe
        source = data.get("source") if isinstance(data, dict) else None
        base = read_recipe(recipe or default_recipe(source, start=start, task=_task_of(own)))
        return cls(base, file, settings, start)

    def settings(self, start: ModelConfig | None = None) -> RunSettings:
        """Return the complete settings; ``start`` is the configuration of the model to start from. Raises `ConfigError`."""
        return resolve(self.recipe, self.file, self.flags, start, None if start is None else self._fitted(start))

    def _fitted(self, start: ModelConfig) -> ModelConfig:
        """Return the configuration of the model to start from, adapted to the task and to the settings.

        The task's recipe, the file and the flags may override its fields; the recipe's image size is rounded to whole patches. If
        the file or the flags name another model, they override only the fields that describe the images.
        """
        own = self.recipe if _task_of(self.recipe) == self.task else {}
        layers = [_in_whole_patches(model_of(own), start), model_of(self.file), model_of(self.flags)]
        fields = {name: value for layer in layers for name, value in layer.items()}
        named = any(name_in(layer) for layer in layers[1:])
        return task_row(self.task).settings.model_from(start, of_images(fields) if named else fields)

    def require_possible(self, out: str | Path | None) -> None:
        """Raise the errors of the run that can be found before a model is opened.

        Raises:
            VitrailError: wrong settings, missing data or models, or an output folder that exists.
        """
        settings = self.certain
        if out is not None:
            require_free(path_of(out))
        for reference in (self.start, settings.distillation.teacher):
            if reference is not None:
                _require_model(reference)
        settings.task.require_possible(settings, starts=self.start is not None)
        settings.task.require_data(settings.data.source)

    @property
    def certain(self) -> RunSettings:
        """The settings; a usual ViT stands for a model to start from, which is not opened yet. Raises `ConfigError`."""
        if self.start is None:
            return self.settings()
        layers = (self.recipe, self.file, self.flags)
        recipe, file, flags = ({name: value for name, value in layer.items() if name != "model"} for layer in layers)
        return resolve(recipe, file, flags, self._fitted(model_config(USUAL)))


def require_data_of(run: Path, flags: Values) -> None:
    """Raise an error if a run's data is missing, at its old path or at the path in ``flags``.

    Raises:
        DataError: the data is missing; the hint shows the command that gives another path.
        ConfigError: a flag does not exist.
    """
    check_names(flags)
    try:
        settings = RunSettings.read(deep_merge(read_yaml(run / CONFIG), flags))
        settings.task.require_data(settings.data.source)
    except DataError as error:
        hint = f"bring it back, or give its new path: vitrail resume {shlex.quote(str(run))} --data PATH"
        raise DataError(error.what, where="--data" if "source" in flags.get("data", {}) else run / CONFIG, hint=hint) from None


def _require_model(reference: str) -> None:
    if os.path.exists(path_of(reference)):
        locate(reference)
    else:
        require_possible(reference)


def _in_whole_patches(model: Values, start: ModelConfig) -> Values:
    """Return a recipe's model section with ``image_size`` rounded to whole patches of the model to start from."""
    if "image_size" not in model or not isinstance(start, ImageConfig):
        return model
    sides = zip(height_and_width(model["image_size"]), start.size_multiple, strict=True)
    return {**model, "image_size": [nearest_multiple(side, patch) for side, patch in sides]}


def _task_of(values: Values) -> str | None:
    """Return the name of the task in settings that are not validated yet; None if there is none."""
    task = values.get("task")
    name = task.get("name") if isinstance(task, dict) else task
    return name if isinstance(name, str) else None
