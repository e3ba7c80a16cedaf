"""Files below a folder: images, other files, and files that are never data (hidden files, runs)."""

import os
from collections.abc import Callable, Container, Iterable, Sequence
from pathlib import Path
from typing import NoReturn

from vitrail.data.images.decode import SUFFIXES
from vitrail.data.items import Issue, count_by_kind, left_out_notes, natural_key, split_of
from vitrail.errors import DataError

SYSTEM = {
    *("__macosx", "@eadir", "#recycle", "$recycle.bin", "system volume information", "lost+found"),
    *("thumbs.db", "ehthumbs.db", "desktop.ini"),
}
"""Lower-case names of files and folders that operating systems create; they count as hidden, as names with a dot do."""
RUNS = {"run": ("status.json", "config.yaml"), "sweep": ("sweep.json",)}
"""Files that identify the folder of a run or a sweep; the plots in it are no data."""
REASONS = {
    "hidden": "hidden, or created by the operating system",
    "run": "a run folder, whose plots are no data",
    "sweep": "a sweep folder, whose plots are no data",
    "linked": "a link to a folder that is neither a class nor a split",
}
"""Reasons for leaving out a file or folder, with the text of the issue."""


def is_image(file: Path) -> bool:
    """Return True for a file that exists and has the suffix of an image."""
    return file.suffix.lower() in SUFFIXES and os.path.isfile(file)


def is_hidden(name: str) -> bool:
    """Return True for the name of a hidden file or folder, or of one that an operating system creates."""
    return name.startswith(".") or name.lower() in SYSTEM


def images_below(folder: Path) -> list[Path]:
    """Return the images among `files_below`."""
    return [file for file in files_below(folder) if is_image(file)]


def files_below(
    folder: Path, left_out: list[Issue] | None = None, *, follow: Callable[[Path], bool] = lambda place: False
) -> list[Path]:
    """Return all files below a folder at any depth, in natural order.

    Args:
        folder: the folder to search.
        left_out: receives an issue for everything left out: hidden files and folders, runs, and links to folders.
        follow: returns True for a folder in which links to folders are followed.

    Raises:
        DataError: a folder cannot be read; its images would otherwise be missing without notice.
    """
    found: list[Path] = []
    aside = [] if left_out is None else left_out
    for place, folders, names in os.walk(folder, onerror=_refuse_unreadable, followlinks=True):
        _require_entered(place)
        followed, paths = follow(Path(place)), [Path(place, name) for name in folders]
        reasons = [_reason(path) or ("" if followed or not os.path.islink(path) else "linked") for path in paths]
        folders[:] = [path.name for path, reason in zip(paths, reasons, strict=True) if not reason]
        aside += (_left_out(path, reason) for path, reason in zip(paths, reasons, strict=True) if reason)
        aside += (_left_out(Path(place, name), "hidden") for name in names if is_hidden(name))
        found += (Path(place, name) for name in names if not is_hidden(name))
    return sorted(found, key=lambda p: natural_key(p.as_posix()))


def files_of_data(root: Path, left_out: list[Issue] | None = None) -> list[Path]:
    """Return the files below a data folder.

    Links to folders are followed where classes and splits can be: in ``root`` itself, and in its folders named like splits.
    """
    return files_below(root, left_out, follow=lambda at: at == root or (at.parent == root and split_of(at.name) is not None))


def images_of_data(root: Path, left_out: list[Issue] | None = None) -> list[Path]:
    """Return the image files among `files_of_data`; ``left_out`` receives an issue for everything else."""
    files = files_of_data(root, left_out)
    if left_out is not None:
        left_out += not_images(files)
    return [file for file in files if is_image(file)]


def not_images(files: Iterable[Path]) -> list[Issue]:
    """Return an issue for each file that is no image: a broken link, or another type of file."""
    return [
        Issue("unreadable", str(file), "a broken link")
        if file.suffix.lower() in SUFFIXES and file.is_symlink()
        else Issue("ignored", str(file), "not named as an image")
        for file in dict.fromkeys(files)
        if not is_image(file)
    ]


def no_images(folder: Path, left_out: Sequence[Issue], *, hint: str) -> DataError:
    """Return the error for a folder without images; the message counts what the folder holds instead."""
    kinds = count_by_kind(left_out)
    return DataError(f"no images in {folder.name!r}, which {f'holds {kinds}' if kinds else 'is empty'}", where=folder, hint=hint)


def unlisted_notes(root: Path, listed: Iterable[Path]) -> tuple[str, ...]:
    """Return a line that counts the files of a data folder that are not in ``listed``; empty if there are none."""
    return left_out_notes(unlisted_in(root, {os.path.abspath(file) for file in listed}))


def unlisted_in(root: Path, listed: Container[str]) -> list[Issue]:
    """Return an issue for each file of a data folder that is not in ``listed``, a container of absolute paths."""
    left_out: list[Issue] = []
    others = [file for file in files_of_data(root, left_out) if os.path.abspath(file) not in listed]
    left_out += not_images(others)
    return left_out + [Issue("unlisted", str(file), "an image that no table names") for file in others if is_image(file)]


def folders_of(folder: Path) -> list[Path]:
    """Return the subfolders that can hold images, including links: not hidden folders, runs, or folders that hold only runs."""
    below = (p for p in _entries(folder) if p.is_dir() and not _reason(p) and not _runs_alone(p))
    return sorted(below, key=lambda p: natural_key(p.name))


def files_of(folder: Path) -> list[Path]:
    """Return the files directly in a folder, without hidden files."""
    files = (p for p in _entries(folder) if not p.is_dir() and not is_hidden(p.name))
    return sorted(files, key=lambda p: natural_key(p.name))


def left_out_of(folder: Path) -> list[Issue]:
    """Return issues for entries of a folder that are no data: hidden ones, runs, folders of runs, links to a parent folder."""
    reasons = {path: _reason(path) for path in sorted(_entries(folder))}
    own = [_left_out(path, reason) for path, reason in reasons.items() if reason]
    return own + [run for path, reason in reasons.items() if not reason for run in _runs_alone(path)]


def shown(path: Path) -> str:
    """Return the path for a message: relative if it is below the current folder, else unchanged."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


def _entries(folder: Path) -> list[Path]:
    try:
        found = list(folder.iterdir())
    except OSError as error:
        _refuse_unreadable(error)
    _require_entered(folder)
    return found


def _require_entered(folder: str | Path) -> None:
    """Raise `DataError` for a folder whose files can be listed but not opened, which needs another permission."""
    try:
        os.stat(os.path.join(folder, os.curdir))
    except OSError as error:
        _refuse_unreadable(error)


def _refuse_unreadable(error: OSError) -> NoReturn:
    hint = "give yourself permission to read it, or exclude it: names that begin with a dot are ignored"
    raise DataError(f"a folder cannot be read: {error.strerror}", where=str(Path(error.filename)), hint=hint) from None


def _reason(path: Path) -> str:
    """Return the reason why a file or folder is no data, a key of `REASONS`; "" if it can be data."""
    if is_hidden(path.name):
        return "hidden"
    if os.path.islink(path) and Path(os.path.realpath(path.parent)).is_relative_to(os.path.realpath(path)):
        return "linked"  # a link to a parent folder: endless
    return next((kind for kind, files in RUNS.items() if all(os.path.isfile(path / file) for file in files)), "")


def _runs_alone(folder: Path) -> list[Issue]:
    """Return issues for the runs in a folder that contains runs and no other images; empty for any other folder."""
    if not any(_reason(path) in RUNS for path in folder.glob("*/")):
        return []
    left_out: list[Issue] = []
    images = any(map(is_image, files_below(folder, left_out)))
    return [] if images else [issue for issue in left_out if issue.kind in RUNS]


def _left_out(path: Path, reason: str) -> Issue:
    return Issue(reason, str(path), REASONS[reason])
