"""Checks of the settings and the data of a run that goes on."""

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
"""Settings that may change in a resumed run: the weights become the same, or, on another device, differ in their last bits."""

PARTS = 64
"""Digests of the contents of image files, each of a part of them; where most have changed, the images are others."""


def require_same_settings(begun: RunSettings, now: RunSettings) -> None:
    """Raise `ConfigError`, with a list, where changed settings would make other weights."""
    old, new = flat(begun.model_dump(mode="json")), flat(now.model_dump(mode="json"))
    free = FREE | {f"task.{name}" for name in begun.task.places}
    changed = [f"{k} was {old.get(k)}, now {new.get(k)}" for k in {**old, **new} if k not in free and old.get(k) != new.get(k)]
    if changed:
        raise ConfigError(
            f"the run was begun with other settings: {'; '.join(changed)}",
            where="settings",
            hint="resume it without them, or train anew; what may change is " + ", ".join(sorted(free)),
        )


def extended(settings: RunSettings, at: tuple[int, int], like: RunSettings) -> RunSettings:
    """Return the settings of a finished run that goes on from an epoch and a step, with the schedule and the end of ``like``."""
    ends = {name: getattr(like.training, name) for name in ("epochs", "time_limit", "patience")}
    training = settings.training.changed(min_steps=0, **ends)
    return settings.changed(training=training, schedule=settings.schedule.changed(extended_at=at))


def flat(values: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Return nested settings by their dotted names."""
    result: dict[str, Any] = {}
    for name, value in values.items():
        result |= flat(value, f"{path}{name}.") if isinstance(value, Mapping) else {f"{path}{name}": value}
    return result


def fingerprint(data: Data) -> dict[str, Any]:
    """Return everything about the data that decides a run's course, JSON-able.

    Of image files their lengths and ends count, in `PARTS` digests: reading all of them would take as long as an epoch.
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
    """Raise `DataError` where items or targets are others than those that the run was begun with, by both fingerprints.

    The contents of a few files may have changed, since one may have been mended: then a note is returned. A run of an earlier
    version has no ``contents``.
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
    raise DataError(what, where=data.source, hint="bring the data back as it was, or train anew")


def settings_to_resume(run: RunFolder, settings: Values) -> RunSettings:
    """Return the settings that a run goes on with; more epochs of a finished one come with a schedule of their own.

    Raises:
        ConfigError: settings that may not change.
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
            what = "the run is not finished, and keeps its number of epochs until it is"
            raise ConfigError(what, where="--epochs", hint=f"{run.resume_command} first, then once more with --epochs")
    require_same_settings(begun, resolved)
    require_keep_fits_patience(resolved)
    return resolved


def _require_extendable(run: RunFolder, begun: RunSettings, epochs: int) -> None:
    """Raise `ConfigError` where a finished run has as many epochs already, or can have none."""
    what, status = "", run.standing
    if epochs <= status["epoch"]:
        what, hint = f"the run has {status['epoch']} epochs already", f"give more than {status['epoch']}"
    elif begun.training.fast_dev_run:
        what, hint = "a fast run for developers has one epoch", "train anew without --fast-dev-run"
    elif begun.training.probe and not status["step"]:
        what, hint = "a probe has no epochs", f"vitrail train --from {run.path} --data {begun.data.source}"
    if what:
        raise ConfigError(what, where="--epochs", hint=hint)
