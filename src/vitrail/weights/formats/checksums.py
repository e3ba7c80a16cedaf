"""``SHA256SUMS``: SHA-256 sums of the files in a folder, as ``sha256sum`` of coreutils has them. Imports no torch."""

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
"""Reads of a folder that is replaced meanwhile, and seconds between them."""
T = TypeVar("T")
_LINE = re.compile(r"([0-9a-fA-F]{64}) [ *](.+)")


def checksums(folder: Path, names: Iterable[str] | None = None) -> str:
    """Return the content of `SUMS`: a line for each of some files of a folder, or for every other file in it."""
    names = {file.name for file in folder.iterdir() if not file.is_dir()} - {SUMS} if names is None else names
    return "".join(f"{_digest(folder / name)}  {name}\n" for name in sorted(names))


def model_sums(folder: Path, names: Iterable[str]) -> str:
    """Return the content of `SUMS` of a model folder, without its card, which people may edit."""
    return checksums(folder, (name for name in names if "/" not in name and name not in (SUMS, CARD)))


def write_sums(folder: Path) -> None:
    """Write the sums of a model folder or an exported model, whose other files are all there."""
    write_text(folder / SUMS, model_sums(folder, (file.name for file in folder.iterdir() if not file.is_dir())))


@contextmanager
def new_model_folder(path: str | Path) -> Iterator[Path]:
    """Yield a draft of a model folder, which gets its sums at the end and appears whole or not at all.

    Of what is there already it replaces an older model folder alone, one in which there is nothing but files with a sum.

    Raises:
        ConfigError: there is a file of that name, or a folder that holds anything else.
    """
    folder = path_of(path).resolve()  # of "." the name, too
    if not (folder / SUMS).is_file() or not {file.name for file in folder.iterdir()} <= {*_read(folder), SUMS, CARD}:
        require_free(folder, where="folder")
    with whole_folder(folder) as draft:
        yield draft
        write_sums(draft)


@contextmanager
def verified(folder: Path, names: Collection[str]) -> Iterator[None]:
    """Compare files of a folder with its `SUMS` while they are used; most of the time a second processor does it.

    A folder need not have sums, nor they all of its files. Where `CONFIG` is another it is only said so, as people write
    their labels and thresholds into it, and what is damaged in it is refused by what it says.

    Raises:
        ModelFileError: at the end, a file is another than was written; at once, the sums are damaged, or of files elsewhere.
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
            given_up.set()  # else whoever was refused a file of 40 GB, or pressed Ctrl-C, would wait until all of it is read
            raise
    _require_same(folder, stamp)
    for name in differing.result():
        known = shlex.join(sorted(name for name in sums if os.path.exists(folder / name)))
        renew = f"cd {shlex.quote(str(folder))} && sha256sum -- {known} > {SUMS}"
        what = f"{name} is not the file that {SUMS} was written of"
        if name != CONFIG:
            hint = f"fetch or write the folder again; if you changed the file yourself: {renew}"
            raise ModelFileError(what, where=folder / name, hint=hint)
        note(f"note: {what}; if you changed it yourself: {renew}")


def _require_same(folder: Path, stamp: tuple[int, int] | None) -> None:
    """Refuse what was read while another folder took the place of this one; raises `ModelFileError`."""
    now = _stamp(folder)
    if stamp is None or now is None or now[0] != stamp[0]:
        raise ModelFileError("the folder was replaced while it was read", where=folder, hint="read it again")


def read_again(reference: str | Path, read: Callable[[], T]) -> T:
    """Return what is read of a MODEL; it is read again where its folder is replaced meanwhile, as by a run that goes on."""
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
    """Return what changes where a model's folder or file, or a run's best folder, is written or the folder of a file replaced."""
    parent = _stamp(path.parent)
    return [_stamp(path), _stamp(path / "best"), parent and (parent[0], 0)]  # others may write other files beside a file


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        about = os.stat(path)
    except (OSError, ValueError):
        return None
    return about.st_ino, about.st_mtime_ns


def _read(folder: Path) -> dict[str, str]:
    """Return the sums in a folder, by the names of its files; none where there are none."""
    file, sums = folder / SUMS, {}
    try:
        lines = read_text(file).splitlines()
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ModelFileError(f"{SUMS} cannot be read: {error}", where=file, hint="fetch or write the folder again") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        found = _LINE.fullmatch(line)
        if found is None or found[2] in (".", "..") or "/" in found[2] or "\\" in found[2]:
            what = f"line {number} is no sum of a file in this folder"  # which may be a link to a secret, and is not shown
            raise ModelFileError(what, where=f"{file}:{number}", hint="fetch or write the folder again")
        sums[found[2]] = found[1].lower()
    return sums


def _differing(folder: Path, sums: Mapping[str, str], given_up: Event) -> list[str]:
    """Return the files that are others than their sums say; anything, once it is given up."""
    return [name for name, digest in sums.items() if _digest(folder / name, given_up) != digest]


def _digest(file: Path, given_up: Event | None = None) -> str:
    digest, block = hashlib.sha256(), memoryview(bytearray(BLOCK))
    with regular_file(file) as content:
        while not (given_up and given_up.is_set()) and (count := content.readinto(block)):
            digest.update(block[:count])
    return digest.hexdigest()
