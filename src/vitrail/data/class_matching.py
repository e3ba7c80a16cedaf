"""Matching of the classes of a data set to the labels of a model."""

import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import TypeVar

from vitrail.errors import DataError
from vitrail.plain_text import clean
from vitrail.runtime.observer import Note
from vitrail.settings import brief

T = TypeVar("T")

SHOWN = 3
"""Number of pairs of a class and its label that a note shows."""


def match_classes(
    classes: Sequence[str],
    labels: Sequence[str],
    *,
    where: object,
    aliases: Mapping[str, int] | None = None,
    note: Note = lambda text: None,
) -> list[int]:
    """Return the model's index of each class of the data. Classes are matched by name, never by position.

    A class matches, in this order: the label with exactly its name; a label with this name in ``aliases``; a label with the same
    words, ignoring case, hyphens, underscores and blanks. A number matches the label with this number, or, if no label is a
    number, the label with this index.

    Args:
        classes: the names of the data's classes.
        labels: the names of the model's labels.
        where: the data, for errors.
        aliases: further names of labels, in the form of `plain`, with the labels' indices.
        note: receives a line for each way of matching other than by exact name.

    Raises:
        DataError: a class matches no label, or two classes match the same label; the message names both.
    """
    found = _matches(classes, labels, aliases or {})
    if strangers := [name for name, match in zip(classes, found, strict=True) if match is None]:
        raise _strange(strangers, labels, where)
    matched = [match for match in found if match is not None]
    _require_different(classes, [index for _, index in matched], labels, where)
    for line in _notes(classes, matched, labels):
        note(line)
    return [index for _, index in matched]


def plain(name: str) -> str:
    """Return a name in lower case, cleaned, with single blanks between its words."""
    return " ".join(re.split(r"[\s_-]+", clean(name).casefold()))


def single(pairs: Iterable[tuple[str, T]]) -> dict[str, T]:
    """Return the pairs as a dictionary, without names that appear more than once."""
    found: dict[str, T] = {}
    twice = set()
    for name, index in pairs:
        twice |= {name} & found.keys()
        found[name] = index
    return {name: index for name, index in found.items() if name not in twice}


def _matches(classes: Sequence[str], labels: Sequence[str], aliases: Mapping[str, int]) -> list[tuple[str, int] | None]:
    """Return for each class how it matches and the index of its label; None if it matches no label."""
    names = {label: index for index, label in enumerate(labels)}
    alike = single((plain(label), index) for index, label in enumerate(labels))
    numbers = {Decimal(label): index for index, label in enumerate(labels) if label.isdecimal()}
    by_number = numbers or {Decimal(index): index for index in range(len(labels))}
    known = (("by WordNet's id or name", aliases), ("by name, whatever capitals and underscores", alike))

    def match(name: str) -> tuple[str, int] | None:
        if name in names:
            return "by name", names[name]
        if found := next(((way, indices[plain(name)]) for way, indices in known if plain(name) in indices), None):
            return found
        if not name.isdecimal() or Decimal(name) not in by_number:
            return None
        return "by number" if numbers else "by index, from 0", by_number[Decimal(name)]

    return [match(name) for name in classes]


def _strange(strangers: list[str], labels: Sequence[str], where: object) -> DataError:
    hint = "rename the folders to the model's labels or to their indices"
    if any(name.isdecimal() for name in strangers) and not any(label.isdecimal() for label in labels):
        hint += f"; indices begin at 0, and the last is {len(labels) - 1}"
    what = f"classes {_some(strangers)} of the data are none of the model's labels {_some(labels)}"
    return DataError(what, where=where, hint=hint)


def _require_different(classes: Sequence[str], indices: Sequence[int], labels: Sequence[str], where: object) -> None:
    first: dict[int, str] = {}
    for name, index in zip(classes, indices, strict=True):
        if index in first:
            what = f"the classes {brief(first[index])} and {brief(name)} of the data both match the label {brief(labels[index])}"
            raise DataError(what, where=where, hint="give them different names, or one name if they are one class")
        first[index] = name


def _notes(classes: Sequence[str], matched: Sequence[tuple[str, int]], labels: Sequence[str]) -> list[str]:
    """Return a line for each way of matching; exact matches of words need no line."""
    pairs: dict[str, list[str]] = {}
    for name, (way, index) in zip(classes, matched, strict=True):
        if way != "by name" or (name.isdecimal() and list(classes) != list(labels)):
            pairs.setdefault(way, []).append(f"{brief(name)} is {brief(labels[index])}")
    return [
        f"classes matched to the model's labels {way}: "
        + ", ".join(own[:SHOWN] + ([f"{len(own) - SHOWN:,} more"] if len(own) > SHOWN else []))
        for way, own in pairs.items()
    ]


def _some(names: Sequence[str]) -> str:
    return ", ".join(map(brief, names[:12])) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
