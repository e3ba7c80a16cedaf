"""Measurements on this machine, saved for other processes."""

import contextlib
import json
import os
from pathlib import Path
from typing import Any

import torch

from vitrail.files import path_of, read_text, write_json
from vitrail.runtime.environment import processor

CACHE = "VITRAIL_CACHE"
"""Name of the environment variable for their folder; empty for nowhere."""


def cache_file() -> Path | None:
    """Return the file of measurements: in ``$VITRAIL_CACHE``, else in the user's folder of such things; None for none."""
    folder = os.environ.get(CACHE, os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "vitrail"))
    return path_of(folder) / "measurements.json" if folder else None


def machine() -> str:
    """Return the description of what measurements depend on."""
    return f"{processor()}, {torch.get_num_threads()} threads, torch {torch.__version__}"


def kept() -> Any:
    """Return the measurements of this machine, as JSON holds them; None where there are none."""
    return _all_machines().get(machine())


def keep(values: Any) -> None:
    """Save measurements; where nothing can be written they are made again another time."""
    file = cache_file()
    if file is not None:
        with contextlib.suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            write_json(file, {**_all_machines(), machine(): values})


def _all_machines() -> dict[str, Any]:
    """Return measurements by machine; a damaged file holds none."""
    file = cache_file()
    with contextlib.suppress(OSError, ValueError):
        found = json.loads(read_text(file)) if file is not None else {}
        return found if isinstance(found, dict) else {}
    return {}
