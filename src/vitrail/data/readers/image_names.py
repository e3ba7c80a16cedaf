"""Images by the names that tables and annotations give them: the files they mean, and those nearest to a name without a file."""

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
"""Images that are looked for in each folder they may be in."""
OF_A_SPLIT = ("person_keypoints_", "captions_")
"""Prefixes of the split in the names of COCO's files."""
URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
"""The beginning of an address, of which nothing is fetched."""
KEYS: tuple[Callable[[str], str], ...] = (
    str,
    str.casefold,
    lambda name: os.path.splitext(name)[0].casefold(),
    lambda name: re.sub(r"0*(\d+)", r"\1", os.path.splitext(name)[0].casefold()),
)
"""A file's name, from to the letter to without capitals, ending and leading zeros: what two alike ones share."""


def find_image(folder: Path, name: str) -> Path | None:
    """Return the file of an image, None where there is none.

    The name may lack its suffix, have the backslashes of Windows, the per cent signs of a URL (``my%20cat.png``) or invisible
    characters, or hold letters that look alike: an é is one letter on some systems, and an e with an accent on others.
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
    """Return the different files that an image without suffix could be, with one in small letters or in capitals."""
    if image.suffix.lower() in SUFFIXES:
        return []
    whole = [Path(f"{image}{end}") for suffix in SUFFIXES for end in (suffix, suffix.upper()) if os.path.isfile(f"{image}{end}")]
    return [file for place, file in enumerate(whole) if not any(os.path.samefile(file, other) for other in whole[:place])]


def folder_of(file: Path, names: Sequence[str]) -> Path:
    """Return the folder that the names in a table or a file of annotations start from.

    It is the one of the usual folders with the most of the first images; where they have none, the only other folder beside the
    file that has the first image; else the file's own.
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
    """Compares names without a file with the images below a folder, which is read when the first is asked for.

    Args:
        folder: names start from it.
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
        """Return what an error adds about a name: the image on the disk that is most like it."""
        file = self._find(name)
        url = "; it is a URL, and nothing is fetched" if URL.match(name) else ""
        return url + (f"; there is {os.path.relpath(file, self.folder)}" if file else "")

    def prefix(self, names: Sequence[str]) -> str | None:
        """Return what is wrong with names that are all missing, if they begin with the same folder and the disk lacks it."""
        parts = [name.replace("\\", "/").split("/")[:-1] for name in names]
        shared = [same[0] for same in takewhile(lambda same: len(set(same)) == 1, zip(*parts, strict=False))]
        length = len("/".join([*shared, ""])) if shared else 0
        start = names[0][:length] if names else ""
        if len(names) < 2 or not start.strip("./\\") or os.path.isdir(self.folder / start):
            return None
        what = f"none of the {len(names):,} images is there: their names begin with '{start}', and there is no such folder"
        folders = {file.parent for name in names if (file := self._find(name))}
        if not folders:
            return f"{what}, nor any image of these names below {shown(self.folder)}"
        holder = Path(os.path.commonpath(folders))
        return f"{what}; images of these names are in {shown(holder)}: take '{start}' out of the table's names"
