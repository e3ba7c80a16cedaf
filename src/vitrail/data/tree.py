"""What lies below a folder: images, other files, and what is no part of any data."""

import os
from pathlib import Path

from vitrail.data.decode import SUFFIXES
from vitrail.data.items import natural_key

SYSTEM = {
    *("__macosx", "@eadir", "#recycle", "$recycle.bin", "system volume information", "lost+found"),
    *("thumbs.db", "ehthumbs.db", "desktop.ini"),
}
"""Folders and files that systems leave behind, in small letters, beside those whose names begin with a dot."""


def is_image(file: Path) -> bool:
    """Whether a file is named as an image, and is there."""
    return file.suffix.lower() in SUFFIXES and os.path.isfile(file)


def is_hidden(name: str) -> bool:
    """Whether a file or folder is hidden, or a system's own."""
    return name.startswith(".") or name.lower() in SYSTEM


def images_below(folder: Path) -> list[Path]:
    """Image files anywhere below a folder, in natural order; hidden ones and linked folders are left out."""
    return [file for file in files_below(folder) if is_image(file)]


def files_below(folder: Path, hidden: list[Path] | None = None) -> list[Path]:
    """Files anywhere below a folder, in natural order; hidden ones, linked folders and the pictures of runs are left out.

    Hidden files and folders are added to ``hidden``.
    """
    found: list[Path] = []
    for path, folders, names in os.walk(folder):
        if hidden is not None:
            hidden += (Path(path, name) for name in (*folders, *names) if is_hidden(name))
        folders[:] = [name for name in folders if not is_hidden(name) and not _is_a_run(Path(path, name))]
        found += (Path(path, name) for name in names if not is_hidden(name))
    return sorted(found, key=lambda p: natural_key(p.as_posix()))


def folders_of(folder: Path) -> list[Path]:
    """The folders in a folder that can hold images: no hidden ones, no runs."""
    below = (p for p in folder.iterdir() if p.is_dir() and not is_hidden(p.name) and not _holds_a_run(p))
    return sorted(below, key=lambda p: natural_key(p.name))


def files_of(folder: Path) -> list[Path]:
    """The files in a folder itself, hidden ones left out."""
    files = (p for p in folder.iterdir() if not p.is_dir() and not is_hidden(p.name))
    return sorted(files, key=lambda p: natural_key(p.name))


def hidden_in(folder: Path) -> list[Path]:
    """The hidden files and folders in a folder itself."""
    return sorted(p for p in folder.iterdir() if is_hidden(p.name))


def shown(path: Path) -> str:
    """A path as one would type it: from where one stands, if it is below."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


def _holds_a_run(folder: Path) -> bool:
    """Whether a folder is a run, or holds runs: their pictures are no data."""
    return any(_is_a_run(p) for p in (folder, *folder.glob("*/")))


def _is_a_run(folder: Path) -> bool:
    return (folder / "status.json").is_file() and (folder / "config.yaml").is_file()
