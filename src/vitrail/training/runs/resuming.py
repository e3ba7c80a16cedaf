"""Checks of settings and data when a run is resumed."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from vitrail.config.configuration import Values, deep_merge, require_keep_fits_patience
from vitrail.config.known_settings import check_names
from vitrail.config.settings import RunSettings
from vitrail.data.checks.duplicates import digest_of
from vitrail.data.items import Data
from vitrail.errors import ConfigError, DataError
from vitrail.training.runs.run_folder import RunFolder
from vitrail.weights.locate import absolute

FREE = {
    "data.source",
    "data.workers",
    "training.checkpoint_every_seconds",
    "training.checkpoint_every_steps",
    "training.device",
    "training.parallel",
    "training.track",
}
"""Settings that may change in a resumed run: they do not change the weights, except for rounding on another device."""

PARTS = 64
"""Number of digests of image contents, each of a part of the files; if most digests differ, the images were replaced."""


def require_same_settings(begun: RunSettings, now: RunSettings) -> None:
    """Raise `ConfigError`, with a list, for changed settings that would change the weights."""
    old, new = flat(begun.model_dump(mode="json")), flat(now.model_dump(mode="json"))
    free = FREE | {f"task.{name}" for name in begun.task.places}
    changed = [f"{k} was {old.get(k)}, now {new.get(k)}" for k in {**old, **new} if k not in free and old.get(k) != new.get(k)]
    if changed:
        raise ConfigError(
            f"the run was begun with other settings: {'; '.join(changed)}",
            where="settings",
            hint="resume it without them, or train a new model; these may change: " + ", ".join(sorted(free)),
        )


def extended(settings: RunSettings, at: tuple[int, int], like: RunSettings) -> RunSettings:
    """Return settings that continue a finished run from epoch and step ``at``, with the schedule and end of ``like``."""
    ends = {name: getattr(like.training, name) for name in ("epochs", "time_limit", "patience")}
    training = settings.training.changed(min_steps=0, **ends)
    return settings.changed(training=training, schedule=settings.schedule.changed(extended_at=at))


def flat(values: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Flatten nested settings to dotted names."""
    result: dict[str, Any] = {}
    for name, value in values.items():
        result |= flat(value, f"{path}{name}.") if isinstance(value, Mapping) else {f"{path}{name}": value}
    return result


def fingerprint(data: Data) -> dict[str, Any]:
    """Return all properties of the data that influence a training, JSON-able.

    Image files are represented by size and last bytes, in `PARTS` digests: reading them completely would take as long as an
    epoch.
    """
    images = data.images
    items = {split: [data.identity(item) for item in items] for split, items in data.splits.items()}
    return {
        **data.kind,
        data.things: {split: len(items) for split, items in data.splits.items()},
        "sha256": hashlib.sha256(json.dumps(items).encode()).hexdigest(),
        "contents": [digest_of(images[part::PARTS]) for part in range(min(PARTS, len(images)))],
    }


def require_same_data(begun: dict[str, Any], now: dict[str, Any], data: Data) -> str | None:
    """Raise `DataError` if items or targets differ from those at the start of the run, by comparing fingerprints.

    If only a few files changed, which may have been repaired, a note is returned. A run of an earlier version has no
    ``contents``.
    """
    things = data.things
    if begun == {name: now[name] for name in begun if name in now}:
        return None
    if any(begun[name] != value for name, value in data.kind.items()):
        what = f"the {next(iter(data.kind))} of the data are not those that the run was started with"
    elif begun[things] != now[things]:
        old, new = (", ".join(f"{split} {count:,}" for split, count in counts[things].items()) for counts in (begun, now))
        what = f"the run was started with other {things}: {old}, now {new}"
    elif begun["sha256"] != now["sha256"]:
        what = f"the run was started with other {things}: as many, but with other names or labels"
    elif 2 * sum(map(str.__ne__, begun["contents"], now["contents"])) <= len(now["contents"]):
        return f"some {things} have changed since the run was begun; it goes on with them as they are now"
    else:
        what = f"the run was started with other {things}: their names are the same, but not what is in the files"
    raise DataError(what, where=data.source, hint="restore the data of the run, or train a new model")


def settings_to_resume(run: RunFolder, settings: Values) -> RunSettings:
    """Return the settings of a resumed run; more epochs of a finished run get a schedule of their own.

    Raises:
        ConfigError: a setting was changed that must not change.
    """
    begun = run.settings
    check_names(settings)
    resolved = RunSettings.read(deep_merge(begun.model_dump(mode="json"), settings))
    places = {name: absolute(getattr(resolved.task, name)) for name in resolved.task.places}
    resolved = resolved.changed(task=resolved.task.changed(**places))
    resolved.task.require_places(run.path)
    if "epochs" in settings.get("training", {}):
        epochs, status = resolved.training.epochs, run.standing
        if status["state"] == "finished":
            _require_extendable(run, begun, epochs)
            at = (status["epoch"], status["step"])
            begun, resolved = extended(begun, at, resolved), extended(resolved, at, resolved)
        elif epochs != begun.training.epochs:
            what = "the number of epochs cannot change before the run is finished"
            raise ConfigError(what, where="--epochs", hint=f"{run.resume_command} first, then the same with --epochs")
    require_same_settings(begun, resolved)
    require_keep_fits_patience(resolved)
    return resolved


def _require_extendable(run: RunFolder, begun: RunSettings, epochs: int) -> None:
    """Raise `ConfigError` if a finished run already has as many epochs, or cannot have more."""
    what, status = "", run.standing
    if epochs <= status["epoch"]:
        what, hint = f"the run has {status['epoch']} epochs already", f"give more than {status['epoch']}"
    elif begun.training.fast_dev_run:
        what, hint = "a run with --fast-dev-run has one epoch", "train a new model without --fast-dev-run"
    elif begun.training.probe and not status["step"]:
        what, hint = "a probe has no epochs", f"vitrail train --from {run.path} --data {begun.data.source}"
    if what:
        raise ConfigError(what, where="--epochs", hint=hint)
