"""A sweep: a run for every combination of the values of some settings, one after another, resumable."""

import itertools
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vitrail.config.configuration import check_names, deep_merge, fields_of, nested, plain
from vitrail.config.request import Request
from vitrail.config.run_files import is_run
from vitrail.errors import ConfigError, DivergedError
from vitrail.files import path_of, read_text, write_json
from vitrail.runtime.observer import Observer
from vitrail.runtime.output import name_of, require_free
from vitrail.runtime.signals import InterruptedRunError
from vitrail.runtime.terminal import is_one_of_several
from vitrail.settings import brief
from vitrail.training.runs.run_folder import RunFolder
from vitrail.training.runs.setup import resolve_run
from vitrail.weights.formats.safe_files import read_json

PLAN, DIVERGED = "sweep.json", "diverged.json"
MOST = 1000
"""Runs of a sweep at most."""
LONGEST = 180
"""Characters in a folder's name."""
MODEL = "model.name"
Run = Callable[..., object]
"""`vitrail.train`, or `vitrail.resume`."""


class _ToldOnce(Observer):
    """Passes everything on to another observer, but no note a second time: what each run would say again."""

    def __init__(self, observer: Observer):
        self._notes, self._told = observer.note, set[str]()
        for name in ("start", "step", "begin", "advance", "kept", "epoch"):
            setattr(self, name, getattr(observer, name))

    def note(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._notes(text)


class Sweep:
    """The runs of a sweep, as they are asked for; see `vitrail.sweep`."""

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
            raise ConfigError("a sweep is one process", where="torchrun", hint="start its runs one by one with vitrail train")
        self.shared = nested({**settings, **({} if data is None else {"data": str(data)})})
        self.axes = _axes(over)
        if "task.name" in self.axes:
            raise ConfigError("scores of different tasks cannot be compared", where="--over task", hint="sweep over one task")
        self.combinations = _combinations(self.axes)
        self.recipe, self.config = recipe, path_of(config) if config else None

    @property
    def title(self) -> str:
        """What varies, and on which images."""
        source = self.shared.get("data", {}).get("source")
        return ", ".join(self.axes) + (f" on {name_of(str(source))}" if source else "")

    def run(
        self, folder: Path, observer: Observer, *, train: Run, resume: Run
    ) -> list[tuple[dict[str, Any], str, dict[str, Any]]]:
        """Every run: its values, its name, and its record."""
        named = list(zip(self.combinations, _names(self.combinations), strict=True))
        for values, name in named:  # every mistake before the first run
            settings = self._settings(values)
            if not is_run(folder / name):
                Request.read(self.recipe, self.config, settings).require_possible(None)
            resolve_run(self.recipe, self.config, settings)
        config = self.config and read_text(self.config)
        _begin(folder, {"recipe": self.recipe, "config": config, "settings": self.shared, "over": self.axes})
        for model in self._models:
            if foreign := sorted(self._foreign(model)):
                observer.note(f"{model} has no such setting and goes without: {', '.join(foreign)}")
        found: list[tuple[dict[str, Any], str, dict[str, Any]]] = []
        told = _ToldOnce(observer)
        for values, name in named:
            observer.note(f"run {len(found) + 1} of {len(self.combinations)}: {name}")
            try:
                found.append((values, name.replace(",", ", "), self._run(folder, name, values, told, train, resume)))
            except InterruptedRunError as error:
                again = "give the same command again: it goes on where it was"
                raise InterruptedRunError(error.exit_code - 128, folder, again, what=error.what) from error
        return found

    def _settings(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """What one run is told: what all are told, as far as its model can have it, and its own values."""
        settings = self.shared
        if foreign := self._foreign(str(values.get(MODEL))):
            settings = {**settings, "model": {name: value for name, value in settings["model"].items() if name not in foreign}}
        return deep_merge(settings, nested(values))

    @property
    def _models(self) -> list[str]:
        """The names of the models, where these vary, but the one that fixes nothing."""
        return [str(name) for name in self.axes.get(MODEL, []) if name != "custom"]

    def _foreign(self, model: str) -> set[str]:
        """The model's settings given to all runs that a model of this name cannot have, but another of the sweep can."""
        told = self.shared.get("model", {})
        others: set[str] = set().union(*map(fields_of, self._models))
        return told.keys() & others - fields_of(model) if model in self._models else set()

    def _run(
        self, out: Path, name: str, values: Mapping[str, Any], observer: Observer, train: Run, resume: Run
    ) -> dict[str, Any]:
        """The record of a run that is trained, gone on with, or left as it is done or has diverged."""
        folder, verdicts = out / name, out / DIVERGED
        diverged = read_json(verdicts) if verdicts.is_file() else {}
        try:
            if name in diverged:
                raise DivergedError(diverged[name])
            if not is_run(folder):
                settings = self._settings(values)
                plain = {key: value for key, value in settings.items() if key != "data"}  # which is a word of train's own
                plain |= {f"data.{key}": value for key, value in settings.get("data", {}).items()}
                train(out=folder, recipe=self.recipe, config=self.config, observer=observer, **plain)
            elif RunFolder.open(folder).standing["state"] != "finished":
                resume(folder, observer=observer)
        except DivergedError as error:
            observer.note(f"{name}: {error.what}")
            write_json(verdicts, {**diverged, name: error.what})
            return {"state": "diverged", "settings": {}, "rows": [], "parameters": 0, "macs": 0}
        return RunFolder.open(folder).record


def _axes(over: Mapping[str, Iterable[Any]]) -> dict[str, list[Any]]:
    """Values by dotted name."""
    axes: dict[str, list[Any]] = {}
    for name, given in over.items():
        dotted = dotted_name(name)
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise ConfigError(f"the values of {dotted} are {brief(given)}", where=name, hint="give a list of values")
        values = [plain(value) for value in given]
        if dotted in axes or not values or len({repr(value) for value in values}) < len(values):
            raise ConfigError(
                f"the values of {dotted} are {brief(values)}",
                where=name,
                hint="give each setting once, with at least one value, and each value once",
            )
        axes[dotted] = values
    return axes


def dotted_name(name: str) -> str:
    """The dotted name of a setting that may be given by its short one; refuses one that does not exist."""
    value: Any = nested({name: None})
    check_names(value)
    parts = []
    while isinstance(value, dict):
        (part, value), *_ = value.items()
        parts.append(part)
    return ".".join(parts)


def _combinations(axes: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    if not axes:
        raise ConfigError("nothing to vary", where="over", hint="name a setting and its values: model.position=none,relative")
    found = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    if len(found) > MOST:
        raise ConfigError(f"{len(found):,} runs", where="over", hint=f"at most {MOST:,} are made")
    return found


def _begin(folder: Path, plan: dict[str, Any]) -> None:
    """Make the folder of a sweep, or see that the one that is there is of the same sweep."""
    file = folder / PLAN
    if not file.is_file():
        require_free(folder)
        folder.mkdir(parents=True, exist_ok=True)
    if not file.is_file() or os.listdir(folder) == [PLAN]:  # of a sweep that failed before its first run
        write_json(file, plan)
    elif read_json(file) != json.loads(json.dumps(plan)):
        hint = "give another folder, or the settings that it was begun with"
        raise ConfigError(f"{str(folder)!r} holds a sweep of other settings", where=file, hint=hint)


def _names(combinations: Sequence[Mapping[str, Any]]) -> list[str]:
    """A folder's name for each, such as position=relative,seed=1; those that would be alike have their number."""
    names = [_name(values) for values in combinations]
    return [name if names.count(name) == 1 else f"{name},run={i}" for i, name in enumerate(names, start=1)]


def _name(values: Mapping[str, Any]) -> str:
    words = (f"{name.rpartition('.')[2]}={v if isinstance(v, str) else json.dumps(v)}" for name, v in values.items())
    return "".join(c if c.isalnum() or c in "=.,+-_" else "-" for c in ",".join(words))[:LONGEST]
