"""Search for images that are stored several times, by the bytes of their files, without decoding."""

import hashlib
import os
from collections.abc import Callable, Hashable, Iterable, Sequence
from io import BytesIO
from pathlib import Path
from typing import IO

import numpy as np
from PIL import Image

from vitrail.data.images.decode import Source
from vitrail.data.items import Data
from vitrail.errors import DataError

ENDING = 4096
"""Number of bytes at the end of files of the same length that are compared before complete files are."""
BLOCK = 2**20

Place = tuple[str, str]
"""A split and the name of an image in it."""


def same_files(images: Sequence[Source]) -> list[list[int]]:
    """Return groups of positions of images whose files are equal byte by byte; each group has two or more.

    Most files are compared by length and end alone; those that agree in both are read completely. Unreadable files are left out.
    `vitrail.data.checks.check.check_data` compares pixels, and so finds copies in another format, too.
    """
    groups = _alike(images, range(len(images)), _ending)
    return [group for candidates in groups for group in _alike(images, candidates, _content)]


def leaks(images: Iterable[tuple[str, str, Source]]) -> list[tuple[Place, Place]]:
    """Return images with the same bytes in several splits: pairs of the first place and the first place in another split.

    Args:
        images: the split, name and source of each image.
    """
    places = list(images)
    found = []
    for group in same_files([image for *_, image in places]):
        (split, name), *others = (places[number][:2] for number in group)
        if other := next((place for place in others if place[0] != split), None):
            found.append(((split, name), other))
    return found


def leak_warning(data: Data, check: str = "vitrail data check") -> str | None:
    """Return a warning about images that are in several splits; None if there are none. ``check`` is the command to name."""
    leaking = leaks((split, name, image) for split in data.splits for name, image in data.images_of(split).items())
    if not leaking:
        return None
    (split, first), (other, copy) = leaking[0]
    count = "1 image is" if len(leaking) == 1 else f"{len(leaking):,} images are"
    return (
        f"warning: {count} in several splits, such as {first} ({split}) and {copy} ({other}): "
        f"scores will be too good; {check} lists all"
    )


def digest_of(images: Iterable[Source]) -> str:
    """Return a SHA-256 digest of the lengths and ends of all files, in order."""
    digest = hashlib.sha256()
    for image in images:
        try:
            digest.update(repr(_ending(image)).encode())
        except (OSError, DataError) as error:
            digest.update(type(error).__name__.encode())
    return digest.hexdigest()


def _alike(images: Sequence[Source], places: Iterable[int], key: Callable[[Source], Hashable]) -> list[list[int]]:
    """Return groups of positions whose images have the same key; each group has two or more."""
    groups: dict[Hashable, list[int]] = {}
    for place in places:
        try:
            groups.setdefault(key(images[place]), []).append(place)
        except (OSError, DataError):
            continue
    return [group for group in groups.values() if len(group) > 1]


def _ending(source: Source) -> Hashable:
    with _open(source) as file:
        length = file.seek(0, os.SEEK_END)
        file.seek(max(0, length - ENDING))
        return length, file.read(ENDING)


def _content(source: Source) -> Hashable:
    digest = hashlib.blake2b(digest_size=16)
    with _open(source) as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.digest()


def _open(source: Source) -> IO[bytes]:
    """Open the bytes of an image: its file, or for pixels in memory their shape, type and values."""
    if isinstance(source, bytes):
        return BytesIO(source)
    if isinstance(source, np.ndarray):
        return BytesIO(repr((source.shape, source.dtype.str)).encode() + source.tobytes())
    if isinstance(source, Image.Image):
        return BytesIO(repr((source.size, source.mode)).encode() + source.tobytes())
    return Path(source).open("rb") if isinstance(source, str | Path) else source.open()
