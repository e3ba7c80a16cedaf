"""``SHA256SUMS``: SHA-256 sums of the files in a folder, in the format of ``sha256sum`` (coreutils). Imports no torch."""

import hashlib
import os
import re
import shlex
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import TypeVar

from vitrail.errors import ModelFileError
from vitrail.files import path_of, read_text, regular_file, whole_folder, write_text
from vitrail.runtime.output import require_free
from vitrail.runtime.terminal import note
from vitrail.weights.formats.safe_files import CARD, CONFIG

SUMS = "SHA256SUMS"
BLOCK = 2**20
"""Bytes that are read at a time."""
ATTEMPTS, PAUSE = 20, 0.02
"""Most attempts to read a folder that is replaced during the read, and seconds between them."""
T = TypeVar("T")
_LINE = re.compile(r"([0-9a-fA-F]{64}) [ *](.+)")


def checksums(folder: Path, names: Iterable[str] | None = None) -> str:
    """Return the content of `SUMS`: a line for each file in ``names``, by default all files in the folder except `SUMS`."""
    names = {file.name for file in folder.iterdir() if not file.is_dir()} - {SUMS} if names is None else names
    return "".join(f"{_digest(folder / name)}  {name}\n" for name in sorted(names))


def model_sums(folder: Path, names: Iterable[str]) -> str:
    """Return the content of `SUMS` for a model folder, without the model card, which users may edit."""
    return checksums(folder, (name for name in names if "/" not in name and name not in (SUMS, CARD)))


def write_sums(folder: Path) -> None:
    """Write `SUMS` for a model folder or an exported model, after all its other files."""
    write_text(folder / SUMS, model_sums(folder, (file.name for file in folder.iterdir() if not file.is_dir())))


@contextmanager
def new_model_folder(path: str | Path) -> Iterator[Path]:
    """Yield a temporary folder, then write its `SUMS` and rename it to ``path``. On an error ``path`` stays as it was.

    An older model folder at ``path`` is replaced, if each file in it has a sum.

    Raises:
        ConfigError: ``path`` is a file, or a folder with other files.
    """
    folder = path_of(path).resolve()  # "." has no name
    if not (folder / SUMS).is_file() or not {file.name for file in folder.iterdir()} <= {*_read(folder), SUMS, CARD}:
        require_free(folder, where="folder")
    with whole_folder(folder) as draft:
        yield draft
        write_sums(draft)


@contextmanager
def verified(folder: Path, names: Collection[str]) -> Iterator[None]:
    """Compare files of a folder with its `SUMS` in a second thread, while the caller uses them.

    Files without a sum are not checked. A changed `CONFIG` gives a note only, as users write labels and thresholds into it;
    its reader refuses a damaged one.

    Raises:
        ModelFileError: at the end, a file differs from its sum; at once, `SUMS` is damaged or names files elsewhere.
    """
    stamp, sums = _stamp(folder), _read(folder)
    there = {name: sums[name] for name in names if name in sums and os.path.exists(folder / name)}
    if not there:
        yield
        _require_same(folder, stamp)
        return
    with ThreadPoolExecutor(1) as beside:
        given_up = Event()
        differing = beside.submit(_differing, folder, there, given_up)
        try:
            yield
        except BaseException:
            given_up.set()  # otherwise an error or Ctrl-C would wait until a file of 40 GB is read to its end
            raise
    _require_same(folder, stamp)
    for name in differing.result():
        known = shlex.join(sorted(name for name in sums if os.path.exists(folder / name)))
        renew = f"cd {shlex.quote(str(folder))} && sha256sum -- {known} > {SUMS}"
        what = f"{name} differs from its checksum in {SUMS}"
        if name != CONFIG:
            hint = f"download or write the folder again; if you changed the file yourself: {renew}"
            raise ModelFileError(what, where=folder / name, hint=hint)
        note(f"note: {what}; if you changed it yourself: {renew}")


def _require_same(folder: Path, stamp: tuple[int, int] | None) -> None:
    """Raise `ModelFileError` if the folder was replaced by another one since ``stamp``."""
    now = _stamp(folder)
    if stamp is None or now is None or now[0] != stamp[0]:
        raise ModelFileError("the folder was replaced while it was read", where=folder, hint="read it again")


def read_again(reference: str | Path, read: Callable[[], T]) -> T:
    """Return the result of ``read``, and call it again if the MODEL's folder is replaced during the call, as by a live run."""
    for _ in range(ATTEMPTS):
        before = _state(path_of(reference))
        try:
            return read()
        except (ModelFileError, OSError):
            if _state(path_of(reference)) == before:
                raise
        time.sleep(PAUSE)
    return read()


def _state(path: Path) -> list[tuple[int, int] | None]:
    """Return stamps that change when a model's file or folder or a run's ``best`` is written, or the parent is replaced."""
    parent = _stamp(path.parent)
    return [_stamp(path), _stamp(path / "best"), parent and (parent[0], 0)]  # the parent's time changes with unrelated files


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        about = os.stat(path)
    except (OSError, ValueError):
        return None
    return about.st_ino, about.st_mtime_ns


def _read(folder: Path) -> dict[str, str]:
    """Return the sums in a folder's `SUMS` by file name; empty if it has no `SUMS`."""
    file, sums = folder / SUMS, {}
    try:
        lines = read_text(file).splitlines()
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ModelFileError(f"{SUMS} cannot be read: {error}", where=file, hint="download or write the folder again") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        found = _LINE.fullmatch(line)
        if found is None or found[2] in (".", "..") or "/" in found[2] or "\\" in found[2]:
            what = f"line {number} is no sum of a file in this folder"  # not quoted: the file may be a link to a secret
            raise ModelFileError(what, where=f"{file}:{number}", hint="download or write the folder again")
        sums[found[2]] = found[1].lower()
    return sums


def _differing(folder: Path, sums: Mapping[str, str], given_up: Event) -> list[str]:
    """Return the names of files that differ from their sums; the result has no meaning once ``given_up`` is set."""
    return [name for name, digest in sums.items() if _digest(folder / name, given_up) != digest]


def _digest(file: Path, given_up: Event | None = None) -> str:
    digest, block = hashlib.sha256(), memoryview(bytearray(BLOCK))
    with regular_file(file) as content:
        while not (given_up and given_up.is_set()) and (count := content.readinto(block)):
            digest.update(block[:count])
    return digest.hexdigest()
