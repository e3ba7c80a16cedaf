"""Images by the names that tables and annotations give them: in which folder they lie, and how the name is spelled there."""

import os
from collections.abc import Sequence
from pathlib import Path
from unicodedata import normalize
from urllib.parse import unquote

from vitrail.data.images.decode import SUFFIXES
from vitrail.data.readers.tree import folders_of
from vitrail.plain_text import clean

TRIED = 100
"""Images that are looked for in each folder they may be in."""
OF_A_SPLIT = ("person_keypoints_", "captions_")
"""What stands before the name of the split in the names of COCO's files."""


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
