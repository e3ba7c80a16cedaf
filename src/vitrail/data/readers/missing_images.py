"""Images that a table names and the disk lacks, compared with those that it has."""

import os
import re
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import takewhile
from pathlib import Path

from vitrail.data.readers.tree import images_below, shown
from vitrail.errors import DataError

URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
"""The beginning of an address, of which nothing is fetched."""
KEYS: tuple[Callable[[str], str], ...] = (
    str,
    str.casefold,
    lambda name: os.path.splitext(name)[0].casefold(),
    lambda name: re.sub(r"0*(\d+)", r"\1", os.path.splitext(name)[0].casefold()),
)
"""A file's name, from to the letter to without capitals, ending and leading zeros: what two alike ones share."""


class MissingImages:
    """Compares names without a file with the images below a folder, which is read when the first is asked for.

    Args:
        folder: names start from it.
    """

    def __init__(self, folder: Path):
        self.folder = folder

    @cached_property
    def _images(self) -> list[dict[str, Path]]:
        """The images by their names, for each of `KEYS`."""
        try:
            files = images_below(self.folder)
        except DataError:
            files = []
        return [{key(file.name): file for file in reversed(files)} for key in KEYS]

    def _find(self, name: str) -> Path | None:
        """Return the image most like a name, by the last part of its path."""
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
