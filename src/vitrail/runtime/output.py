"""The folders that commands write: none is ever overwritten."""

import itertools
import os
import re
from datetime import datetime
from pathlib import Path

from vitrail.errors import ConfigError
from vitrail.files import is_free, is_text, partial_of, path_of
from vitrail.runtime.terminal import note


def require_free(path: Path, *, where: str = "--out", growing: bool = False) -> None:
    """Raise `ConfigError` for a folder that exists, unless it is empty, that cannot be made, or whose files could not be opened.

    A folder that is ``growing`` is `partial_of` its name before it is complete, which must be free, too.
    """
    _require_folder_above(path, where)
    if not is_text(str(path)):  # safetensors opens nothing below it
        raise ConfigError(f"the path {str(path)!r} is not in UTF-8", where=where, hint="give another folder")
    if os.path.exists(path) and (not path.is_dir() or not is_free(path)):
        raise taken(path, where=where)
    if growing:
        _require_no_partial(path, where)


def require_free_file(path: Path, *, where: str, growing: bool = False) -> None:
    """Raise `ConfigError` for a file that exists or cannot be made; ``growing`` as in `require_free`."""
    _require_folder_above(path, where)
    if os.path.lexists(path):
        raise taken(path, where=where, kind="file")
    if growing:
        _require_no_partial(path, where)


def report_partial(path: Path, content: str) -> None:
    """Write a line about the partial output of an interrupted command, if there is some."""
    if os.path.lexists(partial_of(path)):
        note(f"not complete: {content} in {partial_of(path)}")


def require_outside(file: Path, folder: Path, *, where: str) -> None:
    """Raise `ConfigError` for a file inside a folder that is to be made: one of the two would be in the other's way."""
    if Path(os.path.realpath(file)).is_relative_to(os.path.realpath(folder)):
        hint = "give a file outside of it"
        raise ConfigError(f"{str(file)!r} is in the folder {str(folder)!r}, which is to be made", where=where, hint=hint)


def _require_no_partial(path: Path, where: str) -> None:
    if os.path.lexists(partial := partial_of(path)):
        hint = "an interrupted command left it, or another one is writing it: move it away, or give another name"
        raise ConfigError(f"{str(partial)!r} exists", where=where, hint=hint)


def _require_folder_above(path: Path, where: str) -> None:
    above = next((p for p in path.parents if os.path.exists(p)), None)
    if above is not None and not above.is_dir():
        raise ConfigError(f"{str(above)!r} is a file", where=where, hint="give a folder")
    if above is not None and not os.access(above, os.W_OK | os.X_OK):
        raise ConfigError(f"nothing may be written to {str(above)!r}", where=where, hint="give another folder")


def taken(path: Path, *, where: str = "--out", kind: str = "folder") -> ConfigError:
    """Return the error for a folder or file that exists."""
    return ConfigError(f"{str(path)!r} exists", where=where, hint=f"give another {kind}; nothing is ever overwritten")


def name_of(source: str) -> str:
    """Return a short name for data or a model: the last part of an absolute path, anything else unchanged."""
    kind, colon, path = source.rpartition(":")
    return f"{kind}{colon}{Path(path).name}" if os.path.isabs(path) else source


def default_folder(results: str, source: str) -> Path:
    """Return ``results/NAME-DATE-TIME`` for a data set."""
    name = re.sub(r"[^\w.-]+", "-", Path(source).resolve().name).strip("-") or "run"
    return path_of(results) / f"{name}-{datetime.now():%Y%m%d-%H%M%S}"


def free_folder(out: str | Path | None, results: str, source: str) -> Path:
    """Return a folder to write that does not exist: ``out``, or the default one."""
    folder = path_of(out) if out is not None else default_folder(results, source)
    require_free(folder)
    return folder


def free_name(name: str, used: set[str]) -> str:
    """Return a file name that is not among those ``used``, and add it to them: the name itself, or with a number behind it."""
    path = Path(name)
    names = itertools.chain([name], (f"{path.stem} ({number}){path.suffix}" for number in itertools.count(2)))
    free = next(candidate for candidate in names if candidate.casefold() not in used)
    used.add(free.casefold())
    return free
