"""Image files by the names in tables and annotations, and similar files for a name without a file."""

import os
import re
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from unicodedata import normalize
from urllib.parse import unquote

from vitrail.data.images.decode import SUFFIXES
from vitrail.data.readers.tree import folders_of, images_below, shown
from vitrail.errors import DataError
from vitrail.plain_text import clean

TRIED = 100
"""Number of names that are looked up in each possible folder."""
OF_A_SPLIT = ("person_keypoints_", "captions_", "instances_")
"""Prefixes before the split in the names of COCO's files."""
URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
"""The beginning of a URL; nothing is downloaded."""
KEYS: tuple[Callable[[str], str], ...] = (
    str,
    str.casefold,
    lambda name: os.path.splitext(name)[0].casefold(),
    lambda name: re.sub(r"0*(\d+)", r"\1", os.path.splitext(name)[0].casefold()),
)
"""Functions from a file name to a key; similar names have the same key. From strict to loose: the exact name, without case,
without suffix, without leading zeros."""


def find_image(folder: Path, name: str) -> Path | None:
    """Return the file of an image name, None if there is none.

    The name may lack the suffix, or have backslashes of Windows, URL escapes (``my%20cat.png``), invisible characters, or
    another Unicode form than the file (é as one character, or as e with a combining accent).
    """
    plain = clean(name.replace("\\", "/"))
    spellings = [name, plain, unquote(plain), normalize("NFD", plain)]
    for image in (folder / spelling for spelling in dict.fromkeys(spellings)):
        if os.path.isfile(image):
            return image
        whole = with_suffixes(image) if name else []
        if len(whole) == 1:
            return whole[0]
    return None


def with_suffixes(image: Path) -> list[Path]:
    """Return the existing files that have a path's name with an image suffix; none if the path has such a suffix itself."""
    if image.suffix.lower() in SUFFIXES:
        return []
    whole = [Path(f"{image}{end}") for suffix in SUFFIXES for end in (suffix, suffix.upper()) if os.path.isfile(f"{image}{end}")]
    return [file for place, file in enumerate(whole) if not any(os.path.samefile(file, other) for other in whole[:place])]


def folder_of(file: Path, names: Sequence[str]) -> Path:
    """Return the folder that the image names in a table or annotation file are relative to.

    It is the usual folder that contains the most of the first names. If none contains any, it is the only other folder next to
    the file that contains the first image; else the file's own folder.
    """
    split = file.stem
    for prefix in OF_A_SPLIT:
        split = split.removeprefix(prefix)
    near, above = file.parent, file.parent.parent
    usual = [near, near / "images", near / split, above / split, above / "images"]
    usual += [near / "images" / split, above / "images" / split]
    tried = [name for name in names if name][:TRIED]
    count = {place: sum(find_image(place, name) is not None for name in tried) for place in usual if os.path.isdir(place)}
    best = max(count, key=count.__getitem__, default=near)
    if not tried or count.get(best):
        return best
    holders = [below for below in folders_of(near) if find_image(below, tried[0])]
    return holders[0] if len(holders) == 1 else near


class MissingImages:
    """A search for names without a file among the images below a folder, which is listed at the first search.

    Args:
        folder: the folder that names are relative to.
    """

    def __init__(self, folder: Path):
        self.folder = folder

    @cached_property
    def _images(self) -> list[dict[str, Path]]:
        try:
            files = images_below(self.folder)
        except DataError:
            files = []
        return [{key(file.name): file for file in reversed(files)} for key in KEYS]

    def _find(self, name: str) -> Path | None:
        own = re.split(r"[/\\]", name.partition("?")[0] if URL.match(name) else name)[-1]
        found = (images[key(own)] for key, images in zip(KEYS, self._images, strict=True) if own and key(own) in images)
        return next(found, None)

    def near(self, name: str) -> str:
        """Return the end of an error message about a missing name: the most similar image on the disk, if there is one."""
        file = self._find(name)
        url = "; it is a URL, and nothing is downloaded" if URL.match(name) else ""
        return url + (f"; there is {os.path.relpath(file, self.folder)}" if file else "")

    def prefix(self, names: Sequence[str]) -> str | None:
        """Return an error message if all names are missing since they begin with a folder that does not exist; else None."""
        parts = [name.replace("\\", "/").split("/")[:-1] for name in names]
        shared = [same[0] for same in takewhile(lambda same: len(set(same)) == 1, zip(*parts, strict=False))]
        length = len("/".join([*shared, ""])) if shared else 0
        start = names[0][:length] if names else ""
        if len(names) < 2 or not start.strip("./\\") or os.path.isdir(self.folder / start):
            return None
        what = f"none of the {len(names):,} images exists: their names begin with '{start}', and there is no such folder"
        folders = {file.parent for name in names if (file := self._find(name))}
        if not folders:
            return f"{what}, nor any image of these names below {shown(self.folder)}"
        holder = Path(os.path.commonpath(folders))
        return f"{what}; images of these names are in {shown(holder)}: remove '{start}' from the names in the table"
