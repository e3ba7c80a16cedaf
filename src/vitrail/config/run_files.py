"""The files of a run folder, and their checks. This module imports no torch."""

import os
from collections.abc import Container
from pathlib import Path
from typing import Any

from vitrail.errors import ModelFileError
from vitrail.files import LARGE, read_text
from vitrail.tasks.metrics import COUNTS, main_metric
from vitrail.tasks.metrics import METRICS as SCORES
from vitrail.weights.formats.safe_files import parse_json, read_json

CONFIG, STATUS, SPLITS, BAD_IMAGES, METRICS = "config.yaml", "status.json", "splits.json", "bad_images.json", "metrics.jsonl"
FEATURES = "features"
"""Folder with features of the images: those of a probe, removed when it has been fitted to them, and latents."""
STANDING = {"state": str, "split": str, "scores": dict, "epoch": int, "step": int}
"""The types of the values in status.json."""
HINT = "restore the file from a copy"


def is_run(path: Path) -> bool:
    """Return whether a path is a run folder."""
    return os.path.isfile(path / CONFIG) and os.path.isfile(path / STATUS)


def require_run(path: Path) -> None:
    """Raise `ModelFileError` if a path is not a run folder."""
    if not is_run(path):
        raise ModelFileError(f"{str(path)!r} is no run folder", where=path, hint="give a folder that `vitrail train` wrote")


def standing(run: Path) -> dict[str, Any]:
    """Return the content of a run's status.json; raises `ModelFileError` if it is damaged.

    If the file cannot be read, as after a power cut, but there is a checkpoint, the state is ``running``.
    """
    try:
        values = read_json(run / STATUS, any_name=True)
    except ModelFileError:
        if not any((run / "checkpoints").glob("step-*")):
            raise
        return {"state": "running"}
    wrong = [name for name, kind in STANDING.items() if not isinstance(values.get(name, kind()), kind)]
    if values.get("best") is not None and not is_row(values["best"]):
        wrong.append("best")
    if values.get("state") == "finished":
        wrong += [name for name in STANDING if name not in values]
    if wrong or not values.get("state") or not _are_scores(values.get("scores", {})):
        raise ModelFileError(f"{STATUS} is damaged: {', '.join(wrong) or 'state or scores'}", where=run / STATUS, hint=HINT)
    return values


def rows_of(run: Path) -> list[dict[str, Any]]:
    """Return the metrics of each epoch of a run, in order; raises `ModelFileError` if the file is damaged."""
    file = run / METRICS
    try:
        rows = [parse_json(line) for line in read_text(file, LARGE).splitlines()]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, RecursionError) as error:
        raise ModelFileError(f"{METRICS} is damaged: {error}", where=file, hint=HINT) from None
    for number, row in enumerate(rows, 1):
        if not is_row(row):
            raise ModelFileError(f"{METRICS} is damaged: the line has no metrics", where=f"{file}:{number}", hint=HINT)
    return rows


def is_row(value: Any) -> bool:
    """Return whether a value is a dictionary with the metrics of an epoch."""
    return isinstance(value, dict) and {"epoch", "seconds"} <= value.keys() and are_numbers(value)


def texts(file: Path, known: Container[str] | None = None) -> dict[str, str]:
    """Read a JSON file of a text for each image name, such as its split; raises `ModelFileError` for one not in ``known``."""
    values = read_json(file, LARGE, any_name=True)
    if any(not isinstance(value, str) or (known is not None and value not in known) for value in values.values()):
        what = f"{file.name} names splits that do not exist" if known else f"{file.name} is damaged"
        raise ModelFileError(what, where=file, hint=HINT)
    return values


def _are_scores(values: dict[str, Any]) -> bool:
    """Return whether scores are empty, or contain the main metric and the number of items."""
    numbers = {name: value for name, value in values.items() if not isinstance(value, str) or name in (*SCORES, *COUNTS)}
    whole = main_metric(values).name in values and any(name in values for name in COUNTS)
    return not values or (whole and are_numbers(numbers))


def are_numbers(values: dict[str, Any]) -> bool:
    """Return whether all values are floats or integers of 64 bits."""
    return all(isinstance(value, float) or (isinstance(value, int) and abs(value) < 2**63) for value in values.values())


def is_finished(run: Path) -> bool:
    """Return whether a run is finished, including its report."""
    return standing(run).get("state") == "finished"
