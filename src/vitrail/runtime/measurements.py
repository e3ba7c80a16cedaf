"""A cache file of measurements on this machine, for later processes."""

import contextlib
import json
import os
from pathlib import Path
from typing import Any

import torch

from vitrail.files import path_of, read_text, write_json
from vitrail.runtime.environment import processor

CACHE = "VITRAIL_CACHE"
"""The environment variable that names the folder of the cache file; an empty value switches the cache off."""


def cache_file() -> Path | None:
    """Return the cache file, in ``$VITRAIL_CACHE`` or the user's cache folder; None if ``$VITRAIL_CACHE`` is empty."""
    folder = os.environ.get(CACHE, os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "vitrail"))
    return path_of(folder) / "measurements.json" if folder else None


def machine() -> str:
    """Return the key of this machine's measurements: processor, number of threads and torch's version."""
    return f"{processor()}, {torch.get_num_threads()} threads, torch {torch.__version__}"


def kept() -> Any:
    """Return the saved measurements of this machine, as parsed JSON; None if there are none."""
    return _all_machines().get(machine())


def keep(values: Any) -> None:
    """Save measurements, values for JSON, for this machine; errors of writing are ignored."""
    file = cache_file()
    if file is not None:
        with contextlib.suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            write_json(file, {**_all_machines(), machine(): values})


def _all_machines() -> dict[str, Any]:
    """Return the saved measurements of all machines; an empty dictionary if the file is missing or damaged."""
    file = cache_file()
    with contextlib.suppress(OSError, ValueError):
        found = json.loads(read_text(file)) if file is not None else {}
        return found if isinstance(found, dict) else {}
    return {}
