"""Several labels of an image in one cell of a table: read if they are certain, reported in a note if they are likely."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from vitrail.settings import brief

SEPARATOR = ";"
READ = {SEPARATOR: "';'", "|": "'|'", ",": "commas"}
"""Separators that are read, and their names in messages; commas are read only if `_Joined.certain`."""
NOTED = {"/": "'/'", "+": "'+'", "&": "'&'", " ": "blanks", "_": "'_'", "-": "'-'"}
"""Separators that are only reported, since names of single classes contain them, too."""
MOST, SOME = 0.8, 0.5
"""Least fraction of parts that must recur in different cells: for reading several labels, and for a note."""
NO_LABEL = {"", "nan", "<na>"}
"""Lower-case contents of cells without a label: empty, or as pandas writes it. ``None`` is not among them: it may be a class."""
_LIST = re.compile(r"\[.*\]|\(.*,.*\)|\{.*\}", re.DOTALL)
_PART = re.compile(r"""'([^']*)'|"([^"]*)"|([^\s,'"][^,'"]*)""")


class CellLabels(NamedTuple):
    """The labels in the cells of a label column."""

    labels: list[tuple[str, ...]]
    """The distinct labels of each cell."""
    multi_label: bool
    """True if a cell may hold several labels, or none."""
    said: str = ""
    """A note on how the cells were read; "" for the usual way."""
    doubt: str = ""
    """A note on cells that were read as one label each but look like several."""


def labels_in_cells(cells: Sequence[str]) -> CellLabels:
    """Return the labels of each cell: ``cat;dog``, ``cat|dog``, ``['cat', 'dog']``, or ``cat, dog`` if the parts recur."""
    cells = ["" if cell.lower() in NO_LABEL else cell for cell in cells]
    named = [cell for cell in cells if cell]
    if named and all(map(_LIST.fullmatch, named)):
        labels = [_distinct("".join(part) for part in _PART.findall(cell[1:-1])) for cell in cells]
        return CellLabels(labels, any(len(own) != 1 for own in labels), "labels in lists")
    for separator, called in READ.items():
        if any(separator in cell for cell in named) and (separator != "," or _Joined(named, separator).certain):
            said = "" if separator == SEPARATOR else f"several labels between {called}"
            return CellLabels([_distinct(cell.split(separator)) for cell in cells], True, said)
    return CellLabels([(cell,) if cell else () for cell in cells], False, doubt=_doubt(named))


def _distinct(parts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))


def _doubt(cells: Sequence[str]) -> str:
    for separator, called in {",": READ[","], **NOTED}.items():
        joined = _Joined(cells, separator)
        if joined.likely:
            parts = sorted(joined.parts, key=lambda part: -joined.holders[part])
            names = ", ".join(map(repr, parts[:4])) + (", …" if len(parts) > 4 else "")
            return (
                f"cells may hold several labels, separated by {called}: {names} recur in {len(joined.cells):,} combinations, "
                f"and each combination is read as one class. Write '{SEPARATOR}' between labels to read them as several"
            )
    if whole := dict.fromkeys(cell for cell in cells if "," in cell):
        example = brief(next(iter(whole)))
        return f"a label with a comma is one class, such as {example}: write '{SEPARATOR}' between labels if they are several"
    return ""


class _Joined:
    """Statistics on the parts of cells around a separator: labels recur in several combinations, parts of names rarely do."""

    def __init__(self, cells: Sequence[str], separator: str):
        distinct = {cell: _distinct(cell.split(separator)) for cell in cells if cell}
        self.holders = Counter(part for parts in distinct.values() for part in parts)
        self.cells = [cell for cell, parts in distinct.items() if len(parts) > 1]
        self.parts = {part for cell in self.cells for part in distinct[cell]}
        recurring = sum(self.holders[part] > 1 for part in self.parts)
        self.share = recurring / len(self.parts) if self.parts else 0.0
        places = {(part, place) for parts in distinct.values() for place, part in enumerate(parts) if part in self.parts}
        alone = any(len(parts) == 1 and parts[0] in self.parts for parts in distinct.values())
        self.free = alone or len(places) > len(self.parts)  # parts of a name usually keep their position
        self.many = len(distinct) >= len(self.holders)
        self.separator = separator

    @property
    def certain(self) -> bool:
        return self.free and self.many and self.share >= MOST

    @property
    def likely(self) -> bool:
        if self.separator in NOTED:
            return self.certain
        return self.share >= SOME and (self.free or self.many)
