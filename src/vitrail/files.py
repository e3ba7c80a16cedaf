"""Files and folders that appear only when they are complete."""

import errno
import json
import os
import re
import secrets
import shutil
import stat
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader, TextIOWrapper
from pathlib import Path
from typing import IO, Any

from vitrail.errors import ConfigError, DiskFullError
from vitrail.plain_text import clean

FULL = {errno.ENOSPC, errno.EDQUOT}
LOCK = ".lock"
SMALL, LARGE = 12 * 2**20, 2**31
"""Most bytes of a file that describes a model, since JSON of more may take over 300 MB, and of one with a line per image."""
MODULE = "give vitrail.TrainedModel(module, labels, preparation) to predict, evaluate and save_pretrained; see docs/python.md"
"""Hint for a module of torch, which has no labels and no preparation."""
SLACK = 2**20
"""Bytes that a folder takes beside the tensors in it."""
PARTIAL = ".partial"
"""Suffix of a file or a folder that a command still adds to, or was interrupted at."""


def partial_of(path: Path) -> Path:
    """Return where a file or a folder grows before it takes its name."""
    path = Path(os.path.realpath(path)) if path.is_symlink() else path
    return path.with_name(f"{path.name}{PARTIAL}")


def path_of(text: str | Path) -> Path:
    """Return a path, with ``~`` as the home folder (``~nobody`` stays as it is).

    An empty text becomes a path that does not exist: ``Path("")`` would mean the current folder, which nobody named.

    Raises:
        ConfigError: it is neither text nor a path; for a module of torch with a hint.
    """
    if not isinstance(text, str | os.PathLike):
        hint = MODULE if hasattr(text, "state_dict") else "give a name, a file or a folder"
        raise ConfigError(f"{type(text).__name__} is neither text nor a path", hint=hint)
    if not str(text):
        return Path(os.devnull, "empty path")
    return Path(os.path.expanduser(text))


@contextmanager
def regular_file(file: Path, most: int | None = None) -> Iterator[BufferedReader]:
    """Open a file that may be a stranger's.

    Raises `OSError` for a pipe or a device, which may never end or never begin, and for a file of more than ``most`` bytes.
    """

    def at_once(path: str, flags: int) -> int:
        return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # does not wait for a pipe's writer

    with open(file, "rb", opener=at_once) as content:
        about = os.fstat(content.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(file))
        if most is not None and about.st_size > most:
            raise OSError(errno.EFBIG, f"it has {about.st_size:,} bytes, more than the {most:,} that are read", str(file))
        yield content


@contextmanager
def text_file(file: Path, most: int = LARGE, *, newline: str = "", errors: str = "strict") -> Iterator[TextIOWrapper]:
    """Open a `regular_file` in UTF-8, with or without a mark, with the ends of its lines as they are: for tables.

    UTF-16 with a mark, in which Excel saves "Unicode text", is understood, too.
    """
    with regular_file(file, most) as content:
        encoding = "utf-16" if content.peek(2)[:2] in (BOM_UTF16_LE, BOM_UTF16_BE) else "utf-8-sig"
        with TextIOWrapper(content, encoding=encoding, errors=errors, newline=newline) as text:
            yield text


def read_bytes(file: Path, most: int = SMALL) -> bytes:
    """Return all of a file that may be a stranger's; raises `OSError` for more bytes than ``most``, and for no regular file."""
    with regular_file(file, most) as content:
        return content.read(most)


def read_text(file: Path, most: int = SMALL, *, encoding: str = "utf-8") -> str:
    """Return `read_bytes` as text; raises `UnicodeDecodeError`, a `ValueError`, where it is none."""
    return read_bytes(file, most).decode(encoding).replace("\r\n", "\n").replace("\r", "\n")


def read_lines(file: Path, most: int = SMALL) -> list[str]:
    """Return the lines of a text, clean and without empty ones; it may begin with a byte-order mark. Raises as `read_text`."""
    return [line for line in map(clean, read_text(file, most, encoding="utf-8-sig").split("\n")) if line]


def write_text(file: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    write_bytes(file, text.encode())


def write_bytes(file: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    with whole_file(file) as draft:
        draft.write_bytes(content)


@contextmanager
def whole_file(file: Path) -> Iterator[Path]:
    """Yield a draft to write; it replaces ``file`` at the end, and goes away if anything fails before.

    It is on the disk before it takes the name, which a power cut would else leave on an empty file.
    """
    draft = file.with_name(f".{file.name}.draft")
    try:
        yield draft
        flush(draft)
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)


def is_text(name: str) -> bool:
    """Return whether a name can be written in UTF-8; bytes of a file's name that cannot are lone surrogates in Python."""
    return name.isprintable() or not re.search("[\ud800-\udfff]", name)


def write_json(file: Path, values: Any) -> None:
    """Write JSON whole or not at all; lone surrogates, of a file's name that is not in UTF-8, become ``\\udcff``."""
    write_bytes(file, (json.dumps(values, indent=2, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace"))


@contextmanager
def whole_folder(folder: Path, *, replace: bool = True, keep: bool = False) -> Iterator[Path]:
    """Yield a draft folder to fill; it replaces ``folder`` at the end, and goes away if anything fails before.

    The same holds for the folders above it that were not there. All of it is on the disk before it takes the name, and the name
    before the old folder goes, so that even a power cut leaves one of the two. Without ``replace``, a folder with something in it
    is an error. A link is followed. A mount point, which cannot be renamed, must be empty, and gets the files one after the
    other.

    With ``keep`` the draft is `partial_of` the folder, and stays if anything fails, but not in a mount point.
    """
    folder = Path(os.path.realpath(folder)) if folder.is_symlink() else folder
    made = [parent for parent in folder.parents if not parent.exists()]
    folder.parent.mkdir(parents=True, exist_ok=True)
    is_mount = os.path.ismount(folder)
    draft = (folder / "draft" if is_mount else folder).with_name(f".{folder.name}-{secrets.token_hex(4)}")
    old = draft.with_name(f"{draft.name}-old")
    keep = keep and not is_mount
    draft = partial_of(folder) if keep else draft
    draft.mkdir()
    try:
        yield draft
        for path in (*draft.rglob("*"), draft):
            flush(path)
        if is_mount:
            if not is_free(folder):
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(folder))
            for path in draft.iterdir():
                path.rename(folder / path.name)
        else:
            if replace and folder.exists():
                folder.rename(old)
            draft.rename(folder)
        flush(folder if is_mount else folder.parent)
    except BaseException:
        if old.exists() and not folder.exists():
            old.rename(folder)
        raise
    finally:
        if keep:
            with suppress(OSError):
                draft.rmdir()  # where it is empty
        else:
            shutil.rmtree(draft, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
        for parent in made if not folder.exists() else []:
            with suppress(OSError):  # something else may be in it by now
                parent.rmdir()


def is_free(folder: Path) -> bool:
    """Return whether a folder is empty, apart from a mount point's lost+found and drafts of a killed `whole_folder`."""
    names = [path.name for path in folder.iterdir()]
    return not names or (
        os.path.ismount(folder) and all(name == "lost+found" or name.startswith(f".{folder.name}-") for name in names)
    )


def recover_folder(folder: Path) -> None:
    """Remove what a killed `whole_folder` left beside its folder, and give the folder its name back."""
    for old in folder.parent.glob(f".{folder.name}-*-old"):
        if not folder.exists():
            old.rename(folder)
    for rest in (*folder.parent.glob(f".{folder.name}-*"), *folder.parent.glob(f".{folder.name}.draft")):
        shutil.rmtree(rest, ignore_errors=True) if rest.is_dir() else rest.unlink(missing_ok=True)


def flush(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk and not only on their way to it."""
    if os.name == "nt" and path.is_dir():
        return  # Windows opens no folders
    number = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)  # a copy of what is read-only is read-only, too
    try:
        os.fsync(number)
    finally:
        os.close(number)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder for this process; raises `ConfigError` where another one works in it."""
    try:
        import fcntl
    except ImportError:  # Windows has no such locks
        yield
        return
    busy = ConfigError("another process is at work in the folder", where=folder, hint="wait for it, or stop it")
    with (folder / LOCK).open("w") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            raise busy from None
        except OSError:
            pass  # a file system without locks
        if not _is_at(folder / LOCK, file):
            raise busy  # it was let go of and removed between opening and locking, and may be somebody's anew
        try:
            yield
        finally:
            (folder / LOCK).unlink(missing_ok=True)


def _is_at(path: Path, file: IO[str]) -> bool:
    """Return whether an open file still has its name."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


@contextmanager
def room_for(size: int, folder: Path, *, hint: str) -> Iterator[None]:
    """Raise an error before ``size`` bytes are written that the disk has no room for, and where it fills up meanwhile.

    Raises:
        DiskFullError: with the bytes that are needed and those that are free, or where files may not be so large.
    """
    size += SLACK

    def full(free: int) -> DiskFullError:
        return DiskFullError(f"the disk is full: {size:,} bytes are needed, {free:,} are free", where=folder, hint=hint)

    free = shutil.disk_usage(folder).free
    if free < size:
        raise full(free)
    try:
        yield
    except Exception as error:
        if (number := _number(error)) in FULL:
            raise full(shutil.disk_usage(folder).free) from None
        if number == errno.EFBIG:
            what = f"a file would be larger than is allowed here, of {size:,} bytes in all"
            raise DiskFullError(what, where=folder, hint=f"raise the limit (ulimit -f) or take another disk; {hint}") from None
        raise


def _number(error: Exception) -> int | None:
    """Return the system's number for an error, which may be one that a library made of it."""
    found = re.search(r"os error (\d+)", str(error))
    return error.errno if isinstance(error, OSError) else int(found[1]) if found else None
