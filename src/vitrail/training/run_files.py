"""The files of a run folder, by name, and whether a folder is one. Imports no torch."""

import os
from pathlib import Path
from typing import Any

from vitrail.errors import ModelFileError
from vitrail.weights.plain_files import read_json

CONFIG, STATUS, SPLITS, BAD_IMAGES = "config.yaml", "status.json", "splits.json", "bad_images.json"


def is_run(path: Path) -> bool:
    """Whether a folder was written by a run."""
    return os.path.isfile(path / CONFIG) and os.path.isfile(path / STATUS)


def require_run(path: Path) -> None:
    """Refuse a folder that is none; raises `ModelFileError`."""
    if not is_run(path):
        raise ModelFileError(f"{str(path)!r} is no run folder", where=path, hint="give a folder that `vitrail train` wrote")


def standing(run: Path) -> dict[str, Any]:
    """What became of a run: what stands in its status.json."""
    return read_json(run / STATUS)


def is_finished(run: Path) -> bool:
    """Whether a run came to its end, its report included."""
    return standing(run).get("state") == "finished"
