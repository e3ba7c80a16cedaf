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
"""Size limits in bytes: of a file that describes a model (parsing larger JSON may take over 300 MB), and of one with a line
per image."""
MODULE = "give vitrail.TrainedModel(module, labels, preparation) to predict, evaluate and save_pretrained; see docs/python.md"
"""Hint for a plain torch module, which has no labels and no preparation."""
SLACK = 2**20
"""Estimated bytes of the other files in a folder of tensors."""
PARTIAL = ".partial"
"""Suffix of a file or folder that is not complete: a command still writes it, or was interrupted."""


def partial_of(path: Path) -> Path:
    """Return the path that a file or folder has until it is complete: the name with `PARTIAL`."""
    path = Path(os.path.realpath(path)) if path.is_symlink() else path
    return path.with_name(f"{path.name}{PARTIAL}")


def path_of(text: str | Path) -> Path:
    """Return the path with ``~`` expanded to the home folder (``~name`` of an unknown user is left unchanged).

    An empty text becomes a path that does not exist, since ``Path("")`` would silently mean the current folder.

    Raises:
        ConfigError: ``text`` is neither text nor a path.
    """
    if not isinstance(text, str | os.PathLike):
        hint = MODULE if hasattr(text, "state_dict") else "give a name, a file or a folder"
        raise ConfigError(f"{type(text).__name__} is neither text nor a path", hint=hint)
    if not str(text):
        return Path(os.devnull, "empty path")
    return Path(os.path.expanduser(text))


@contextmanager
def regular_file(file: Path, most: int | None = None) -> Iterator[BufferedReader]:
    """Open an untrusted file for reading bytes.

    Raises `OSError` for a pipe or device, which could block or never end, and for a file of more than ``most`` bytes.
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
    """Open a `regular_file` as text in UTF-8, with or without a byte-order mark; line ends are not translated.

    UTF-16 with a byte-order mark, in which Excel saves "Unicode text", is read, too.
    """
    with regular_file(file, most) as content:
        encoding = "utf-16" if content.peek(2)[:2] in (BOM_UTF16_LE, BOM_UTF16_BE) else "utf-8-sig"
        with TextIOWrapper(content, encoding=encoding, errors=errors, newline=newline) as text:
            yield text


def read_bytes(file: Path, most: int = SMALL) -> bytes:
    """Return the content of an untrusted file; raises `OSError` as `regular_file` does."""
    with regular_file(file, most) as content:
        return content.read(most)


def read_text(file: Path, most: int = SMALL, *, encoding: str = "utf-8") -> str:
    """Return a file's content as text, with ``\\n`` as line ends; raises `OSError`, or `UnicodeDecodeError`, a `ValueError`."""
    return read_bytes(file, most).decode(encoding).replace("\r\n", "\n").replace("\r", "\n")


def read_lines(file: Path, most: int = SMALL) -> list[str]:
    """Return the lines of a text file, each through `clean`, without empty ones. Raises as `read_text`.

    The file may begin with a byte-order mark.
    """
    return [line for line in map(clean, read_text(file, most, encoding="utf-8-sig").split("\n")) if line]


def write_text(file: Path, text: str) -> None:
    """Write a text file completely or not at all."""
    write_bytes(file, text.encode())


def write_bytes(file: Path, content: bytes) -> None:
    """Write a file completely or not at all."""
    with whole_file(file) as draft:
        draft.write_bytes(content)


@contextmanager
def whole_file(file: Path) -> Iterator[Path]:
    """Yield the path of a draft to write. At the end the draft replaces ``file``; after an error it is removed.

    The draft is flushed to the disk before it is renamed: otherwise a power cut could leave an empty file.
    """
    draft = file.with_name(f".{file.name}.draft")
    try:
        yield draft
        flush(draft)
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)


def is_text(name: str) -> bool:
    """Return whether a file name can be written in UTF-8; Python represents bytes that cannot as lone surrogates."""
    return name.isprintable() or not re.search("[\ud800-\udfff]", name)


def write_json(file: Path, values: Any) -> None:
    """Write JSON completely or not at all; lone surrogates, from file names that are not UTF-8, become ``\\udcff``."""
    write_bytes(file, (json.dumps(values, indent=2, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace"))


@contextmanager
def whole_folder(folder: Path, *, replace: bool = True, keep: bool = False) -> Iterator[Path]:
    """Yield a draft folder to fill. At the end the draft replaces ``folder``; after an error it is removed.

    Parent folders that did not exist are created, and removed again after an error. The draft is flushed to the disk before it
    is renamed, and renamed before the old folder is removed, so that even a power cut leaves one of the two. A link is followed.
    A mount point cannot be renamed: it must be empty, and the files are moved into it one by one.

    Args:
        folder: the folder to write.
        replace: if False, a folder that is not empty is an error.
        keep: name the draft `partial_of` the folder and keep it after an error; not for a mount point.
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
    """Remove the drafts of a killed `whole_folder`, and restore the old folder if the new one is not in its place."""
    for old in folder.parent.glob(f".{folder.name}-*-old"):
        if not folder.exists():
            old.rename(folder)
    for rest in (*folder.parent.glob(f".{folder.name}-*"), *folder.parent.glob(f".{folder.name}.draft")):
        shutil.rmtree(rest, ignore_errors=True) if rest.is_dir() else rest.unlink(missing_ok=True)


def flush(path: Path) -> None:
    """Wait until a file's content, or a folder's list of names, is physically on the disk (fsync)."""
    if os.name == "nt" and path.is_dir():
        return  # Windows opens no folders
    number = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)  # a copied file may be read-only
    try:
        os.fsync(number)
    finally:
        os.close(number)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder for this process; raises `ConfigError` if another process has locked it."""
    try:
        import fcntl
    except ImportError:  # Windows has no such locks
        yield
        return
    busy = ConfigError("another process is at work in the folder", where=folder, hint="wait until it has ended, or stop it")
    with (folder / LOCK).open("w") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            raise busy from None
        except OSError:
            pass  # a file system without locks
        if not _is_at(folder / LOCK, file):
            raise busy  # its owner removed it between our open and lock; another process may have created it again
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
    """Raise an error if a folder's disk has no room for ``size`` bytes, at once or when a write inside the block fails.

    Raises:
        DiskFullError: the disk is full, with the bytes needed and free; or the file is larger than the user's limit.
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
            what = f"a file would exceed the system's limit on file size; {size:,} bytes are to be written in total"
            raise DiskFullError(what, where=folder, hint=f"raise the limit (ulimit -f) or take another disk; {hint}") from None
        raise


def _number(error: Exception) -> int | None:
    """Return the system's error number (errno), also from the message of a library's own error; None if there is none."""
    found = re.search(r"os error (\d+)", str(error))
    return error.errno if isinstance(error, OSError) else int(found[1]) if found else None
