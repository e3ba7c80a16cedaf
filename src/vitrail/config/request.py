"""A request for a run, and early checks of it. Imports no torch, so that a mistake is reported at once."""

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
    """Settings in three layers, the upper over the lower, and the model to start from."""

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
        """Look up the recipe, or choose one where none is named, and read the file; raises `ConfigError`."""
        file = nested(read_yaml(config)) if config else {}
        check_names(file, path=f"{config}: ")
        check_names(settings)
        own = deep_merge(file, settings)
        data, model, start = own.get("data", {}), file.get("model", {}), own.get("start")
        if not isinstance(start, str | None):
            hint = "give a folder, a file of weights, a hub id or a name"
            raise ConfigError(f"start cannot be {start!r}", where="--from", hint=hint)
        if recipe is None and isinstance(model, dict) and "name" in model:
            return cls({}, file, settings, start)  # the file is a complete recipe of its own
        source = data.get("source") if isinstance(data, dict) else None
        base = read_recipe(recipe or default_recipe(source, start=start, task=_task_of(own)))
        return cls(base, file, settings, start)

    def settings(self, start: ModelConfig | None = None) -> RunSettings:
        """Return the complete settings, given the configuration of the model to start from; raises `ConfigError`."""
        return resolve(self.recipe, self.file, self.flags, start, None if start is None else self._fitted(start))

    def _fitted(self, start: ModelConfig) -> ModelConfig:
        """Return the configuration of the model to start from, as the task needs it.

        The task's recipe, the file and the flags may set fields of it; images of the recipe's size get the nearest one in whole
        patches. Where the file or the flags name a model, which then takes its place, they set its images alone.
        """
        own = self.recipe if _task_of(self.recipe) == self.task else {}
        layers = [_in_whole_patches(model_of(own), start), model_of(self.file), model_of(self.flags)]
        fields = {name: value for layer in layers for name, value in layer.items()}
        named = any(name_in(layer) for layer in layers[1:])
        return task_row(self.task).settings.model_from(start, of_images(fields) if named else fields)

    def require_possible(self, out: str | Path | None) -> None:
        """Raise an error for settings, data or models that are not there, or a taken folder, before a model is opened.

        Raises:
            VitrailError: as the run itself would.
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
        """The settings, with some model in place of one to start from, which is not opened yet; raises `ConfigError`."""
        if self.start is None:
            return self.settings()
        layers = (self.recipe, self.file, self.flags)
        recipe, file, flags = ({name: value for name, value in layer.items() if name != "model"} for layer in layers)
        return resolve(recipe, file, flags, self._fitted(model_config(USUAL)))


def require_data_of(run: Path, flags: Values) -> None:
    """Raise an error where the data of a run is neither where it was nor where the flags say that it is now.

    Raises:
        DataError: with the place, and how to give another.
        ConfigError: flags that are none.
    """
    check_names(flags)
    try:
        settings = RunSettings.read(deep_merge(read_yaml(run / CONFIG), flags))
        settings.task.require_data(settings.data.source)
    except DataError as error:
        hint = f"bring it back, or say where it is now: vitrail resume {shlex.quote(str(run))} --data PLACE"
        raise DataError(error.what, where="--data" if "source" in flags.get("data", {}) else run / CONFIG, hint=hint) from None


def _require_model(reference: str) -> None:
    if os.path.exists(path_of(reference)):
        locate(reference)
    else:
        require_possible(reference)


def _in_whole_patches(model: Values, start: ModelConfig) -> Values:
    """Return a recipe's model section, with images of the nearest size that the model to start from can have."""
    if "image_size" not in model or not isinstance(start, ImageConfig):
        return model
    sides = zip(height_and_width(model["image_size"]), start.size_multiple, strict=True)
    return {**model, "image_size": [nearest_multiple(side, patch) for side, patch in sides]}


def _task_of(values: Values) -> str | None:
    """Return the name of the task in settings that are not checked yet."""
    task = values.get("task")
    name = task.get("name") if isinstance(task, dict) else task
    return name if isinstance(name, str) else None
