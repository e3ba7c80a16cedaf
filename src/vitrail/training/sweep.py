"""Sweeps: a run for every combination of some settings' values, one after another or on the machines of a Ray cluster."""

import itertools
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

from vitrail.config.configuration import deep_merge, nested, plain
from vitrail.config.known_settings import check_names, fields_of
from vitrail.config.request import Request
from vitrail.config.run_files import is_finished, is_run
from vitrail.config.short_names import SHORT_NAMES
from vitrail.errors import ConfigError, DivergedError
from vitrail.files import path_of, read_text, write_json
from vitrail.runtime.observer import Observer
from vitrail.runtime.output import name_of, require_free
from vitrail.runtime.signals import InterruptedRunError
from vitrail.runtime.terminal import is_one_of_several
from vitrail.settings import brief
from vitrail.training.runs.run_folder import RunFolder
from vitrail.training.runs.setup import resolve_run
from vitrail.training.sweep_on_ray import on_ray
from vitrail.training.sweep_run import SweepRun, Train
from vitrail.weights.formats.safe_files import read_json

PLAN, DIVERGED = "sweep.json", "diverged.json"
MOST_RUNS, MOST_CHARACTERS = 1000, 180
"""Maximum number of runs in a sweep, and of characters in the name of a run's folder."""
MODEL = "model.name"
Record = tuple[dict[str, Any], str, dict[str, Any]]
"""The varied settings of a run with their values, its name, and its record."""


class _NotedOnce(Observer):
    """An observer that forwards everything to another one, but each note only once."""

    def __init__(self, observer: Observer):
        for name in ("start", "step", "begin", "advance", "kept", "epoch"):
            setattr(self, name, getattr(observer, name))
        self.note = cache(observer.note)  # type: ignore[method-assign]


class Sweep:
    """The runs of a sweep; see `vitrail.sweep`."""

    def __init__(
        self,
        data: str | Path | None,
        over: Mapping[str, Iterable[Any]],
        *,
        recipe: str | None,
        config: str | Path | None,
        settings: Mapping[str, Any],
    ):
        if is_one_of_several():
            raise ConfigError("a sweep cannot run under torchrun", where="torchrun", hint="start its runs with vitrail train")
        self.shared = nested({**settings, **({} if data is None else {"data": str(data)})})
        self.axes = _axes(over)
        if "task.name" in self.axes:
            raise ConfigError("scores of different tasks cannot be compared", where="--over task", hint="sweep over one task")
        self.combinations = _combinations(self.axes)
        self.recipe, self.config = recipe, path_of(config) if config else None

    @property
    def title(self) -> str:
        """Return the names of the varied settings, and the name of the data."""
        source = self.shared.get("data", {}).get("source")
        return ", ".join(self.axes) + (f" on {name_of(str(source))}" if source else "")

    def run(
        self, folder: Path, observer: Observer, *, train: Train, resume: Train, on: Literal["ray"] | None = None
    ) -> list[Record]:
        """Train, resume or open every run, and return their records."""
        names = _names(self.combinations)
        each = [self._settings(values) for values in self.combinations]
        runs = [SweepRun(folder / name, self._arguments(settings)) for name, settings in zip(names, each, strict=True)]
        for run, settings in zip(runs, each, strict=True):  # finds every mistake before the first run
            if not is_run(run.folder):
                Request.read(self.recipe, self.config, settings).require_possible(None)
            resolve_run(self.recipe, self.config, settings)
        config = self.config and read_text(self.config)
        _begin(folder, {"recipe": self.recipe, "config": config, "settings": self.shared, "over": self.axes})
        for model in self._models:
            if foreign := sorted(self._foreign(model)):
                observer.note(f"{model} does not have these settings and ignores them: {', '.join(foreign)}")
        diverged: dict[str, str] = read_json(folder / DIVERGED) if (folder / DIVERGED).is_file() else {}
        finished = {run.folder for run in runs if is_run(run.folder) and is_finished(run.folder)}
        missing = [run for run in runs if run.folder.name not in diverged and run.folder not in finished]
        trained = (on_ray if on == "ray" else in_turn)(missing, observer, train, resume)
        try:
            for run, error in trained:
                if error is not None:
                    observer.note(f"{run.folder.name}: {error.what}")
                    diverged[run.folder.name] = error.what
                    write_json(folder / DIVERGED, diverged)
        except InterruptedRunError as error:
            again = "give the same command again to continue"
            raise InterruptedRunError(error.number, folder, again, what=error.what) from error
        none = {"state": "diverged", "settings": {}, "rows": [], "parameters": 0, "macs": 0}
        records = [none if run.folder.name in diverged else RunFolder.open(run.folder).record for run in runs]
        titles = [name.replace(",", ", ") for name in names]
        return list(zip(self.combinations, titles, records, strict=True))

    def _arguments(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of `vitrail.train` for a run with these settings."""
        data = {f"data.{key}": value for key, value in settings.get("data", {}).items()}  # train() has an argument of this name
        others = {name: value for name, value in settings.items() if name != "data"}
        return {"recipe": self.recipe, "config": self.config, **others, **data}

    def _settings(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of a run: the shared ones that its model has, and the varied ones."""
        settings = self.shared
        if foreign := self._foreign(str(values.get(MODEL))):
            settings = {**settings, "model": {name: value for name, value in settings["model"].items() if name not in foreign}}
        return deep_merge(settings, nested(values))

    @property
    def _models(self) -> list[str]:
        """The names of the models if they vary, except "custom", which may have any field."""
        return [str(name) for name in self.axes.get(MODEL, []) if name != "custom"]

    def _foreign(self, model: str) -> set[str]:
        """Return the shared model settings that only other models of the sweep have."""
        others: set[str] = set().union(*map(fields_of, self._models))
        return self.shared.get("model", {}).keys() & others - fields_of(model) if model in self._models else set()


def in_turn(
    runs: Sequence[SweepRun], observer: Observer, train: Train, resume: Train
) -> Iterator[tuple[SweepRun, DivergedError | None]]:
    """Train runs one after another, and yield each with its error if it diverged."""
    once = _NotedOnce(observer)
    for number, run in enumerate(runs, start=1):
        observer.note(f"run {number} of {len(runs)}: {run.folder.name}")
        yield run, run.train(train, resume, once)


def _axes(over: Mapping[str, Iterable[Any]]) -> dict[str, list[Any]]:
    """Return the values to vary by dotted name; raises `ConfigError` for repeated or missing ones."""
    axes: dict[str, list[Any]] = {}
    for name, given in over.items():
        dotted, is_list = dotted_name(name), isinstance(given, Iterable) and not isinstance(given, str)
        values = [plain(value) for value in given] if is_list else []
        if dotted in axes or not values or len({repr(value) for value in values}) < len(values):
            hint = "give each setting once, with at least one value, and each value once" if is_list else "give a list of values"
            raise ConfigError(f"the values of {dotted} are {brief(values if is_list else given)}", where=name, hint=hint)
        axes[dotted] = values
    return axes


def dotted_name(name: str) -> str:
    """Return the dotted name of a setting, from it or its short name; raises `ConfigError` for an unknown name."""
    check_names(nested({name: None}))
    return SHORT_NAMES.get(name, name)


def _combinations(axes: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    if not axes:
        raise ConfigError("nothing to vary", where="over", hint="name a setting and its values: model.position=none,relative")
    runs = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    if len(runs) > MOST_RUNS:
        raise ConfigError(f"a sweep of {len(runs):,} runs", where="over", hint=f"vary fewer values: {MOST_RUNS:,} runs at most")
    return runs


def _begin(folder: Path, plan: dict[str, Any]) -> None:
    """Create the folder of a sweep; raises `ConfigError` if it holds another sweep or other files."""
    file = folder / PLAN
    if not file.is_file():
        require_free(folder)
        folder.mkdir(parents=True, exist_ok=True)
    if not file.is_file() or os.listdir(folder) == [PLAN]:  # an earlier sweep failed before its first run
        write_json(file, plan)
    elif read_json(file) != json.loads(json.dumps(plan)):
        hint = "give another folder, or the settings of that sweep"
        raise ConfigError(f"{str(folder)!r} holds a sweep of other settings", where=file, hint=hint)


def _names(combinations: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a folder name for each combination, such as position=relative,seed=1; equal names get a number."""
    names = [_name(values) for values in combinations]
    return [name if names.count(name) == 1 else f"{name},run={i}" for i, name in enumerate(names, start=1)]


def _name(values: Mapping[str, Any]) -> str:
    words = (f"{name.rpartition('.')[2]}={v if isinstance(v, str) else json.dumps(v)}" for name, v in values.items())
    return "".join(c if c.isalnum() or c in "=.,+-_" else "-" for c in ",".join(words))[:MOST_CHARACTERS]
