"""A grid of runs: every combination of the values of some settings, one after another, resumable."""

import itertools
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vitrail import api
from vitrail.errors import ConfigError, DivergedError
from vitrail.files import path_of, write_json
from vitrail.settings import brief
from vitrail.study.comparison import Compared
from vitrail.study.cost import totals
from vitrail.study.sweeps import SEED, write_sweep
from vitrail.training.observer import Observer
from vitrail.training.preparing import resolve_run
from vitrail.training.run_folder import RunFolder, is_run, name_of, require_free
from vitrail.training.settings import check_names, merge, nested
from vitrail.training.signals import InterruptedRunError

PLAN = "sweep.json"
MOST = 1000
"""Runs of a grid at most."""
Found = list[tuple[dict[str, Any], Compared]]
"""The runs of a grid, each with its settings in it."""


def sweep(
    data: str | Path | None,
    out: str | Path,
    *,
    over: Mapping[str, Sequence[Any]],
    recipe: str | None = None,
    config: str | Path | None = None,
    against: str | None = None,
    observer: Observer | None = None,
    **settings: Any,
) -> Found:
    """Train a model for every combination, and write one table and one picture of all of them.

    Called again with the same arguments it goes on where it was: finished runs stay, interrupted ones are resumed. A run that
    diverges stays in the table without a score.

    Args:
        data: as in `train`.
        out: a folder; every run has one of its own in it.
        over: values by the short or dotted name of a setting; those of the seed are averaged over.
        recipe, config, settings: of all runs, as in `train`.
        against: the setting, or ``operations`` of training, that the picture has scores against; by default the first of ``over``
            that has numbers.
        observer: told how each run goes.

    Raises:
        VitrailError: with the exit code of the command; see `vitrail.errors`.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError("a sweep is one process", where="torchrun", hint="start its runs one by one with vitrail train")
    shared = nested({**settings, **({} if data is None else {"data": str(data)})})
    axes = {_dotted(name): list(values) for name, values in over.items()}
    combinations = _combinations(axes)
    _check_against(against, axes)
    file = path_of(config) if config else None
    resolved = [resolve_run(recipe, file, merge(shared, nested(values)))[0] for values in combinations]  # mistakes come first
    folder, observer = path_of(out), observer or Observer()
    plan = {"recipe": recipe, "config": file and file.read_text(encoding="utf-8"), "settings": shared, "over": axes}
    _begin(folder, plan)
    found: Found = []
    for values, own in zip(combinations, resolved, strict=True):
        name = _name(values)
        observer.note(f"run {len(found) + 1} of {len(combinations)}: {name}")
        try:
            _run(folder / name, recipe, file, merge(shared, nested(values)), observer)
            found.append((values, api.compared(RunFolder.open(folder / name), name.replace(",", ", "))))
        except DivergedError as error:
            observer.note(f"{name} diverged: {error.what}")
            found.append((values, Compared(name.replace(",", ", "), "diverged", {}, [], *totals(own.model.config))))
        except InterruptedRunError as error:
            again = "give the same command again: it goes on where it was"
            raise InterruptedRunError(error.exit_code - 128, folder, again) from error
    source = (shared.get("data") or {}).get("source")
    title = f"{', '.join(axes)} on {name_of(str(source))}" if source else ", ".join(axes)
    write_sweep(folder, found, title=title, against=against)
    return found


def _run(folder: Path, recipe: str | None, config: Path | None, settings: dict[str, Any], observer: Observer) -> None:
    """Train, or go on, or leave a run that is done."""
    if not is_run(folder):
        plain = {name: value for name, value in settings.items() if name != "data"}  # which is a word of train's own
        plain |= {f"data.{name}": value for name, value in settings.get("data", {}).items()}
        api.train(out=folder, recipe=recipe, config=config, observer=observer, **plain)
        return
    if RunFolder.open(folder).standing["state"] != "finished":
        api.resume(folder, observer=observer)


def _dotted(name: str) -> str:
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
        raise ConfigError(
            "nothing to vary", where="over", hint="name a setting and its values: --over model.position=none,relative"
        )
    for name, values in axes.items():
        if not values or len({repr(value) for value in values}) < len(values):
            raise ConfigError(
                f"the values of {name} are {brief(values)}", where=name, hint="give each value once, and at least one"
            )
    found = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    if len(found) > MOST:
        raise ConfigError(f"{len(found):,} runs", where="over", hint=f"at most {MOST:,} are made")
    return found


def _check_against(against: str | None, axes: Mapping[str, list[Any]]) -> None:
    """Refuse what a picture cannot have scores against."""
    numbers = [n for n, values in axes.items() if n != SEED and all(type(value) in (int, float) for value in values)]
    if against not in (None, "operations", *numbers):
        raise ConfigError(
            f"no numbers {against!r} in the grid", where="against", hint=f"known: {', '.join(['operations', *numbers])}"
        )


def _begin(folder: Path, plan: dict[str, Any]) -> None:
    """Make the folder of a grid, or see that the one that is there is of the same grid."""
    file = folder / PLAN
    if not file.is_file():
        require_free(folder)
        folder.mkdir(parents=True, exist_ok=True)
        write_json(file, plan)
    elif json.loads(file.read_text(encoding="utf-8")) != json.loads(json.dumps(plan)):
        raise ConfigError(
            f"{str(folder)!r} holds a sweep of other settings",
            where=file,
            hint="give another folder, or the settings that it was begun with",
        )


def _name(values: Mapping[str, Any]) -> str:
    """A folder's name: position=relative,seed=1."""
    words = (f"{name.rpartition('.')[2]}={json.dumps(v) if not isinstance(v, str) else v}" for name, v in values.items())
    return "".join(c if c.isalnum() or c in "=.,+-_" else "-" for c in ",".join(words))[:200]
