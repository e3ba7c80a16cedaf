"""The files and folders that commands write; existing ones are never overwritten."""

import itertools
import os
import re
from datetime import datetime
from pathlib import Path

from vitrail.errors import ConfigError
from vitrail.files import is_free, is_text, partial_of, path_of
from vitrail.runtime.terminal import note


def require_free(path: Path, *, where: str = "--out", growing: bool = False) -> None:
    """Raise `ConfigError` unless a folder can be written: it must be absent or empty, and its parent writable.

    Pass ``growing`` for a folder that is written under the name `partial_of`: that name must be free, too.
    """
    _require_folder_above(path, where)
    if not is_text(str(path)):  # safetensors opens nothing below it
        raise ConfigError(f"the path {str(path)!r} is not in UTF-8", where=where, hint="give another folder")
    if os.path.exists(path) and (not path.is_dir() or not is_free(path)):
        raise taken(path, where=where)
    if growing:
        _require_no_partial(path, where)


def require_free_file(path: Path, *, where: str, growing: bool = False) -> None:
    """Raise `ConfigError` for a file that exists or cannot be created; ``growing`` as in `require_free`."""
    _require_folder_above(path, where)
    if os.path.lexists(path):
        raise taken(path, where=where, kind="file")
    if growing:
        _require_no_partial(path, where)


def report_partial(path: Path, content: str) -> None:
    """Write a line on stderr if an interrupted command left a partial output; ``content`` names what it holds."""
    if os.path.lexists(partial_of(path)):
        note(f"not complete: {content} in {partial_of(path)}")


def require_outside(file: Path, folder: Path, *, where: str) -> None:
    """Raise `ConfigError` for an output file inside an output folder, which must be empty when it is created."""
    if Path(os.path.realpath(file)).is_relative_to(os.path.realpath(folder)):
        hint = "give a file outside of the folder"
        raise ConfigError(f"{str(file)!r} is in the folder {str(folder)!r}, which will be created", where=where, hint=hint)


def _require_no_partial(path: Path, where: str) -> None:
    if os.path.lexists(partial := partial_of(path)):
        hint = "an interrupted command left it, or another command is writing it: move it away, or give another name"
        raise ConfigError(f"{str(partial)!r} exists", where=where, hint=hint)


def _require_folder_above(path: Path, where: str) -> None:
    above = next((p for p in path.parents if os.path.exists(p)), None)
    if above is not None and not above.is_dir():
        raise ConfigError(f"{str(above)!r} is a file", where=where, hint="give a folder")
    if above is not None and not os.access(above, os.W_OK | os.X_OK):
        raise ConfigError(f"no permission to write to {str(above)!r}", where=where, hint="give another folder")


def taken(path: Path, *, where: str = "--out", kind: str = "folder") -> ConfigError:
    """Return the error for a folder or file that exists."""
    return ConfigError(f"{str(path)!r} exists", where=where, hint=f"give another {kind}; nothing is ever overwritten")


def name_of(source: str) -> str:
    """Return a short name for data or a model: the last part of an absolute path; any other source is unchanged."""
    kind, colon, path = source.rpartition(":")
    return f"{kind}{colon}{Path(path).name}" if os.path.isabs(path) else source


def default_folder(results: str, source: str) -> Path:
    """Return the path ``results/NAME-DATE-TIME``; NAME is the last part of ``source``."""
    name = re.sub(r"[^\w.-]+", "-", Path(source).resolve().name).strip("-") or "run"
    return path_of(results) / f"{name}-{datetime.now():%Y%m%d-%H%M%S}"


def free_folder(out: str | Path | None, results: str, source: str) -> Path:
    """Return the folder to write: ``out``, or `default_folder`; raises `ConfigError` if it is taken."""
    folder = path_of(out) if out is not None else default_folder(results, source)
    require_free(folder)
    return folder


def free_name(name: str, used: set[str]) -> str:
    """Return ``name``, or ``name (2)``, ``name (3)`` … if it is in ``used``, and add the result to ``used``."""
    path = Path(name)
    names = itertools.chain([name], (f"{path.stem} ({number}){path.suffix}" for number in itertools.count(2)))
    free = next(candidate for candidate in names if candidate.casefold() not in used)
    used.add(free.casefold())
    return free
