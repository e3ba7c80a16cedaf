"""A sweep: a run for every combination of the values of some settings, one after another, resumable."""

import itertools
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vitrail import api
from vitrail.errors import ConfigError, DivergedError
from vitrail.files import path_of, write_json
from vitrail.runtime.observer import Observer
from vitrail.runtime.output import name_of, require_free
from vitrail.runtime.signals import InterruptedRunError
from vitrail.settings import brief
from vitrail.study.comparison import Compared
from vitrail.study.sweeps import OPERATIONS, SEED, write_sweep
from vitrail.training.preparing import resolve_run
from vitrail.training.run_folder import RunFolder, is_run
from vitrail.training.settings import check_names, merge, nested

PLAN, DIVERGED = "sweep.json", "diverged.json"
MOST = 1000
"""Runs of a sweep at most."""
LONGEST = 180
"""Characters in a folder's name."""
Found = list[tuple[dict[str, Any], Compared]]
"""The runs of a sweep, each with its values of the settings that vary."""


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
    diverges stays in the table without a score, and is not tried again.

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
    axes = _axes(over)
    combinations = _combinations(axes)
    against = _checked(against, axes)
    file = path_of(config) if config else None
    for values in combinations:
        resolve_run(recipe, file, merge(shared, nested(values)))  # every mistake before the first run
    folder, observer = path_of(out), observer or Observer()
    plan = {"recipe": recipe, "config": file and file.read_text(encoding="utf-8"), "settings": shared, "over": axes}
    _begin(folder, plan)
    found: Found = []
    for values, name in zip(combinations, _names(combinations), strict=True):
        observer.note(f"run {len(found) + 1} of {len(combinations)}: {name}")
        try:
            found.append((values, _run(folder, name, recipe, file, merge(shared, nested(values)), observer)))
        except InterruptedRunError as error:
            again = "give the same command again: it goes on where it was"
            raise InterruptedRunError(error.exit_code - 128, folder, again, what=error.what) from error
    source = shared.get("data", {}).get("source")
    title = ", ".join(axes) + (f" on {name_of(str(source))}" if source else "")
    write_sweep(folder, found, title=title, against=against)
    return found


def _run(out: Path, name: str, recipe: str | None, config: Path | None, settings: dict[str, Any], observer: Observer) -> Compared:
    """Train, or go on, or leave a run that is done or has diverged."""
    folder, spaced, verdicts = out / name, name.replace(",", ", "), out / DIVERGED
    diverged = json.loads(verdicts.read_text(encoding="utf-8")) if verdicts.is_file() else {}
    try:
        if name in diverged:
            raise DivergedError(diverged[name])
        if not is_run(folder):
            plain = {key: value for key, value in settings.items() if key != "data"}  # which is a word of train's own
            plain |= {f"data.{key}": value for key, value in settings.get("data", {}).items()}
            api.train(out=folder, recipe=recipe, config=config, observer=observer, **plain)
        elif RunFolder.open(folder).standing["state"] != "finished":
            api.resume(folder, observer=observer)
    except DivergedError as error:
        observer.note(f"{name}: {error.what}")
        write_json(verdicts, {**diverged, name: error.what})
        return Compared(spaced, "diverged", {}, [], 0, 0)
    return api.compared(RunFolder.open(folder), spaced)


def _axes(over: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
    """Values by dotted name."""
    axes: dict[str, list[Any]] = {}
    for name, values in over.items():
        dotted = _dotted(name)
        if dotted in axes or not values or len({repr(value) for value in values}) < len(values):
            raise ConfigError(
                f"the values of {dotted} are {brief(list(values))}",
                where=name,
                hint="give each setting once, with at least one value, and each value once",
            )
        axes[dotted] = list(values)
    return axes


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
        raise ConfigError("nothing to vary", where="over", hint="name a setting and its values: model.position=none,relative")
    found = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    if len(found) > MOST:
        raise ConfigError(f"{len(found):,} runs", where="over", hint=f"at most {MOST:,} are made")
    return found


def _checked(against: str | None, axes: Mapping[str, list[Any]]) -> str | None:
    """What a picture has scores against, by its dotted name; refuses what it cannot."""
    if against in (None, OPERATIONS):
        return against
    dotted = _dotted(str(against))
    numbers = [n for n, values in axes.items() if n != SEED and all(type(value) in (int, float) for value in values)]
    if dotted not in numbers:
        known = ", ".join([OPERATIONS, *numbers])
        raise ConfigError(f"nothing in the sweep varies {against!r} by numbers", where="against", hint=f"known: {known}")
    return dotted


def _begin(folder: Path, plan: dict[str, Any]) -> None:
    """Make the folder of a sweep, or see that the one that is there is of the same sweep."""
    file = folder / PLAN
    if not file.is_file():
        require_free(folder)
        folder.mkdir(parents=True, exist_ok=True)
        write_json(file, plan)
    elif json.loads(file.read_text(encoding="utf-8")) != json.loads(json.dumps(plan)):
        hint = "give another folder, or the settings that it was begun with"
        raise ConfigError(f"{str(folder)!r} holds a sweep of other settings", where=file, hint=hint)


def _names(combinations: Sequence[Mapping[str, Any]]) -> list[str]:
    """A folder's name for each, such as position=relative,seed=1; those that would be alike have their number."""
    names = [_name(values) for values in combinations]
    return [name if names.count(name) == 1 else f"{name},run={i}" for i, name in enumerate(names, start=1)]


def _name(values: Mapping[str, Any]) -> str:
    words = (f"{name.rpartition('.')[2]}={v if isinstance(v, str) else json.dumps(v)}" for name, v in values.items())
    return "".join(c if c.isalnum() or c in "=.,+-_" else "-" for c in ",".join(words))[:LONGEST]
