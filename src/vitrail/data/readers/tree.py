"""Files below a folder: images, others, and those that are no part of any data."""

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
"""Folders and files that systems leave behind, in small letters, beside names that begin with a dot."""
RUNS = {"run": ("status.json", "config.yaml"), "sweep": ("sweep.json",)}
"""Files in every run, and in every folder of a sweep's runs, whose pictures are no data."""
REASONS = {
    "hidden": "hidden, or left behind by a system",
    "run": "a run, whose pictures are no data",
    "sweep": "a sweep, whose pictures are no data",
    "linked": "a link to a folder, and neither a class nor a split",
}
"""Kinds of things left out below a folder, with their words."""


def is_image(file: Path) -> bool:
    """Return True for a file that is there, with the suffix of an image."""
    return file.suffix.lower() in SUFFIXES and os.path.isfile(file)


def is_hidden(name: str) -> bool:
    """Return True for a hidden file or folder, or a system's own."""
    return name.startswith(".") or name.lower() in SYSTEM


def images_below(folder: Path) -> list[Path]:
    """Return the images among `files_below`."""
    return [file for file in files_below(folder) if is_image(file)]


def files_below(
    folder: Path, left_out: list[Issue] | None = None, *, follow: Callable[[Path], bool] = lambda place: False
) -> list[Path]:
    """Return files anywhere below a folder, in natural order.

    Args:
        folder: where.
        left_out: gets the rest: hidden files and folders, runs, and links to folders.
        follow: returns True for a folder whose links to folders are followed.

    Raises:
        DataError: a folder cannot be read, whose images would be missing without a word.
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
    """Return `files_below` the folder of some data.

    Links are followed where classes and splits may be: in the folder itself, and in folders called like splits.
    """
    return files_below(root, left_out, follow=lambda at: at == root or (at.parent == root and split_of(at.name) is not None))


def images_of_data(root: Path, left_out: list[Issue] | None = None) -> list[Path]:
    """Return the image files among `files_of_data`; ``left_out`` gets all else."""
    files = files_of_data(root, left_out)
    if left_out is not None:
        left_out += not_images(files)
    return [file for file in files if is_image(file)]


def not_images(files: Iterable[Path]) -> list[Issue]:
    """Return an issue for each file that is no image: a link to no file, or a file of another kind."""
    return [
        Issue("unreadable", str(file), "a link to no file")
        if file.suffix.lower() in SUFFIXES and file.is_symlink()
        else Issue("ignored", str(file), "not named as an image")
        for file in dict.fromkeys(files)
        if not is_image(file)
    ]


def no_images(folder: Path, left_out: Sequence[Issue], *, hint: str) -> DataError:
    """Return the error for a folder without images, with its content."""
    kinds = count_by_kind(left_out)
    return DataError(f"no images in {folder.name!r}, which {f'holds {kinds}' if kinds else 'is empty'}", where=folder, hint=hint)


def unlisted_notes(root: Path, listed: Iterable[Path]) -> tuple[str, ...]:
    """Return the line that counts files in a folder that are not ``listed``, if there are any."""
    return left_out_notes(unlisted_in(root, {os.path.abspath(file) for file in listed}))


def unlisted_in(root: Path, listed: Container[str]) -> list[Issue]:
    """Return an issue for everything below a folder that is not ``listed``: absolute paths of the files of its data."""
    left_out: list[Issue] = []
    others = [file for file in files_of_data(root, left_out) if os.path.abspath(file) not in listed]
    left_out += not_images(others)
    return left_out + [Issue("unlisted", str(file), "an image that no table names") for file in others if is_image(file)]


def folders_of(folder: Path) -> list[Path]:
    """Return the folders in a folder that can hold images, links among them: no hidden ones, no runs, and none of runs alone."""
    below = (p for p in _entries(folder) if p.is_dir() and not _reason(p) and not _runs_alone(p))
    return sorted(below, key=lambda p: natural_key(p.name))


def files_of(folder: Path) -> list[Path]:
    """Return the files in a folder itself, without hidden ones."""
    files = (p for p in _entries(folder) if not p.is_dir() and not is_hidden(p.name))
    return sorted(files, key=lambda p: natural_key(p.name))


def left_out_of(folder: Path) -> list[Issue]:
    """Return issues for things in a folder that are no data: hidden ones, runs, also in a folder of them, links in a circle."""
    reasons = {path: _reason(path) for path in sorted(_entries(folder))}
    own = [_left_out(path, reason) for path, reason in reasons.items() if reason]
    return own + [run for path, reason in reasons.items() if not reason for run in _runs_alone(path)]


def shown(path: Path) -> str:
    """Return a path as one would type it: relative, if it is below the current folder."""
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
    """Raise `DataError` for a folder whose files can be listed, but not opened: that takes another right."""
    try:
        os.stat(os.path.join(folder, os.curdir))
    except OSError as error:
        _refuse_unreadable(error)


def _refuse_unreadable(error: OSError) -> NoReturn:
    hint = "give yourself the right to read it, or take it out of the data: names that begin with a dot are passed over"
    raise DataError(f"a folder cannot be read: {error.strerror}", where=str(Path(error.filename)), hint=hint) from None


def _reason(path: Path) -> str:
    """Return why a file or folder is no data, a key of `REASONS`; "" where it may be."""
    if is_hidden(path.name):
        return "hidden"
    if os.path.islink(path) and Path(os.path.realpath(path.parent)).is_relative_to(os.path.realpath(path)):
        return "linked"  # around in a circle
    return next((kind for kind, files in RUNS.items() if all(os.path.isfile(path / file) for file in files)), "")


def _runs_alone(folder: Path) -> list[Issue]:
    """Return the runs below a folder that holds runs and no images beside them; none of any other folder."""
    if not any(_reason(path) in RUNS for path in folder.glob("*/")):
        return []
    left_out: list[Issue] = []
    images = any(map(is_image, files_below(folder, left_out)))
    return [] if images else [issue for issue in left_out if issue.kind in RUNS]


def _left_out(path: Path, reason: str) -> Issue:
    return Issue(reason, str(path), REASONS[reason])
