"""What a run that goes on must have in common with the one that was begun."""

import hashlib
import json
from typing import Any

from vitrail.config.configuration import Values, check_names, deep_merge, require_keep_fits_patience
from vitrail.config.settings import RunSettings
from vitrail.data.checks.duplicates import digest_of
from vitrail.data.items import Data
from vitrail.errors import ConfigError, DataError
from vitrail.training.runs.run_folder import RunFolder

FREE = {
    "data.source",
    "data.workers",
    "training.checkpoint_every_seconds",
    "training.checkpoint_every_steps",
    "training.device",
    "training.parallel",
    "training.track",
}
"""Settings that may differ when a run goes on: the weights become the same, or, on another device, differ in their last bits."""

PARTS = 64
"""Digests of what is in the files of images, each of a part of them; where most have changed, the images are others."""


def require_same_settings(begun: RunSettings, now: RunSettings) -> None:
    """Refuse to go on with settings that would make other weights, by listing them all."""
    old, new = _flat(begun.model_dump(mode="json")), _flat(now.model_dump(mode="json"))
    changed = [f"{k} was {old.get(k)}, now {new.get(k)}" for k in {**old, **new} if k not in FREE and old.get(k) != new.get(k)]
    if changed:
        raise ConfigError(
            f"the run was begun with other settings: {'; '.join(changed)}",
            where="settings",
            hint="resume it without them, or train anew; what may change is " + ", ".join(sorted(FREE)),
        )


def extended(settings: RunSettings, at: tuple[int, int], like: RunSettings) -> RunSettings:
    """The settings of a finished run that goes on from an epoch and a step, by a schedule for the new epochs.

    How many there are to be, and what else may end it, is ``like`` in other settings.
    """
    ends = {name: getattr(like.training, name) for name in ("epochs", "time_limit", "patience")}
    training = settings.training.changed(min_steps=0, **ends)
    return settings.changed(training=training, schedule=settings.schedule.changed(extended_at=at))


def _flat(values: dict[str, Any], path: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= _flat(value, f"{path}{name}.") if isinstance(value, dict) else {f"{path}{name}": value}
    return flat


def fingerprint(data: Data) -> dict[str, Any]:
    """What identifies a data set when a run is resumed: everything that decides its course, JSON-able.

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
    """Refuse to go on with other items or other targets than the run was begun with, by the fingerprints of both.

    What is in a few files may have changed, since one may have been mended; that is told. A run of an earlier version has no
    ``contents``.
    """
    things = data.things
    if begun == {name: now[name] for name in begun if name in now}:
        return None
    if any(begun[name] != value for name, value in data.kind.items()):
        what = f"the {next(iter(data.kind))} of the data are not those that the run was started with"
    elif begun[things] != now[things]:
        what = f"the run was started with other {things}: {_counts(begun[things])}, now {_counts(now[things])}"
    elif begun["sha256"] != now["sha256"]:
        what = f"the run was started with other {things}: as many, but with other names or labels"
    elif 2 * sum(map(str.__ne__, begun["contents"], now["contents"])) <= len(now["contents"]):
        return f"some {things} have changed since the run was begun; it goes on with them as they are now"
    else:
        what = f"the run was started with other {things}: their names are the same, but not what is in the files"
    raise DataError(what, where=data.source, hint="bring the data back as it was, or train anew")


def _counts(images: dict[str, int]) -> str:
    return ", ".join(f"{split} {count:,}" for split, count in images.items())


def settings_to_resume(run: RunFolder, settings: Values) -> RunSettings:
    """The settings that a run goes on with: its own, or where a finished one is to have more epochs, with a schedule for these.

    Raises:
        ConfigError: settings that may not change.
    """
    begun = run.settings
    check_names(settings)
    resolved = RunSettings.read(deep_merge(begun.model_dump(mode="json"), settings))
    if "epochs" in settings.get("training", {}):
        epochs, found = resolved.training.epochs, run.standing
        if found["state"] != "finished" and epochs != begun.training.epochs:
            what = "the run is not finished, and keeps its number of epochs until it is"
            raise ConfigError(what, where="--epochs", hint=f"{run.resume_command} first, then once more with --epochs")
        if found["state"] == "finished":
            _require_extendable(run, begun, epochs)
            at = (found["epoch"], found["step"])
            begun, resolved = extended(begun, at, resolved), extended(resolved, at, resolved)
    require_same_settings(begun, resolved)
    require_keep_fits_patience(resolved)
    return resolved


def _require_extendable(run: RunFolder, begun: RunSettings, epochs: int) -> None:
    """Refuse more epochs for a finished run that has as many, or that can have none."""
    found = run.standing
    if epochs <= found["epoch"]:
        hint = f"give more than {found['epoch']}"
        raise ConfigError(f"the run has {found['epoch']} epochs already", where="--epochs", hint=hint)
    if begun.training.fast_dev_run:
        raise ConfigError("a fast run for developers has one epoch", where="--epochs", hint="train anew without --fast-dev-run")
    if begun.training.probe and not found["step"]:
        hint = f"vitrail train --from {run.path} --data {begun.data.source}"
        raise ConfigError("a probe has no epochs", where="--epochs", hint=hint)
