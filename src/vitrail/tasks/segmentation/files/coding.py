"""The coding of masks: the class that each value or colour of a file means."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from PIL import Image

from vitrail.data.class_matching import match_classes, plain
from vitrail.data.images.decode import VALUES, Source, mask_image
from vitrail.data.images.plan import Extent
from vitrail.data.items import Item
from vitrail.errors import ConfigError, DataError
from vitrail.runtime.observer import Note

Color = tuple[int, int, int]
"""Red, green and blue, 0…255 each."""
VOID, WIDE_VOID = 255, 65_535
"""Pixels without a class, in masks of 8 bits and of 16 bits; masks of more than 255 classes have 16."""
VOID_NAMES = frozenset({"void", "unlabeled", "unlabelled", "ignore", "ignored"})
"""Names of classes that are void, in lower case. A background is a class like others."""
NO_CLASS, UNKNOWN = -1, -2
"""Entries of `Coding.indices` for void, and for values that the coding does not know."""


def void_of(classes: int) -> int:
    """Return the value of void in masks of this number of classes."""
    return VOID if classes <= VOID else WIDE_VOID


@dataclass(frozen=True)
class Row:
    """A row of `classes.csv`: a class with its value and its colour in masks."""

    name: str
    value: int | None = None
    color: Color | None = None


@dataclass(frozen=True)
class Coding:
    """The classes of masks, and the values and colours that stand for them in files."""

    classes: tuple[str, ...]
    colors: tuple[Color, ...]
    """The colour of each class in pictures."""
    by_value: Mapping[int, int]
    """The index of the class, or `NO_CLASS`, for each value of grey and indexed masks; empty if only colours are known."""
    by_color: Mapping[Color, int]
    """The same for each colour of RGB masks; a colour of two classes with values is left out."""

    @classmethod
    def of(cls, rows: Iterable[Row], void: Iterable[str] = (), *, where: object = None) -> "Coding":
        """Build the coding from a table of classes; rows of one name are one class.

        Args:
            rows: the classes, with a value or a colour each.
            void: further void classes: names, values, or colours such as ``#00ff00``.
            where: the table, for errors.

        Raises:
            DataError: fewer than two classes remain, or a value or a colour stands for two classes.
            ConfigError: an entry of ``void`` is no class, value or colour.
        """
        rows = list(rows)
        chosen = _void_names(rows, void)
        classes = [name for name in dict.fromkeys(row.name for row in rows) if plain(name) not in chosen]
        index = {name: number for number, name in enumerate(classes)}
        by_value: dict[int, int] = {}
        by_color: dict[Color, int] = {}
        colors = {n: (0, 0, 0) if plain(name) == "background" else default_color(n) for n, name in enumerate(classes)}
        unclear = set[Color]()
        for row in reversed(rows):
            number = index.get(row.name, NO_CLASS)
            if row.color is not None:
                colors[number] = row.color
                unclear |= {row.color} if by_color.setdefault(row.color, number) != number else set()
            if by_value.setdefault(row.value, number) != number if row.value is not None else row.color in unclear:
                what = f"the value or colour of {row.name!r} stands for another class, too"
                raise DataError(what, where=where, hint="give every class values or colours of its own")
        by_color = {color: number for color, number in by_color.items() if color not in unclear}
        if by_value:
            by_value |= {int(entry): NO_CLASS for entry in void if entry.isdecimal()}
        if by_color:
            by_color |= {color: NO_CLASS for entry in void if (color := color_in(entry))}
        if len(classes) < 2:
            only = f"only the class {classes[0]!r}" if classes else "no class"
            hint = "list two classes or more in classes.csv, index,name: a background is a class, too"
            raise DataError(f"{only} is left beside void", where=where, hint=hint)
        return cls(tuple(classes), tuple(colors[number] for number in range(len(classes))), by_value, by_color)

    @property
    def void(self) -> int:
        """The value of void in the masks that `read` returns."""
        return void_of(len(self.classes))

    def mask_of(self, item: Item, size: Extent) -> np.ndarray:
        """Return the mask of an item whose upright image has this width and height; see `read`.

        Raises:
            DataError: the item has no mask, or the mask cannot be read or has another size than the image.
        """
        if item.mask is None:
            raise DataError("the image has no mask", where=item.name, hint="give the image a mask, or remove it")
        try:
            mask = self.read(item.mask)
        except DataError as error:
            raise DataError(f"the mask of {item.name}: {error.what}", where=error.where, hint=error.hint) from None
        if mask.shape[::-1] != size:
            (height, width), own = mask.shape, size
            what = f"the mask has {width}×{height} pixels, its image {own[0]}×{own[1]}"
            raise DataError(what, where=item.name, hint="give a mask of the size that the image has after its EXIF rotation")
        return mask

    def read(self, source: Source) -> np.ndarray:
        """Decode a mask to the indices of its classes and void, uint8 or uint16 (H, W), whatever the file's coding.

        Raises:
            DataError: the mask cannot be read without loss, or has a value or colour that stands for no class.
        """
        image = mask_image(source)
        try:
            indices = self.indices(image)
        except DataError as error:
            raise DataError(error.what, where=_name(source), hint=error.hint) from None
        if strange := self.strange(image, indices):
            value, count = next(iter(strange.items()))
            more = f", nor of {len(strange) - 1:,} more values" if len(strange) > 1 else ""
            what = f"the value {value} of {count:,} pixels is of no class{more}"
            hint = "add it to classes.csv, or make it void with --task.void; vitrail data check --task segment counts them all"
            raise DataError(what, where=_name(source), hint=hint)
        indices[indices == NO_CLASS] = self.void
        return indices.astype(np.uint8 if self.void == VOID else np.uint16)

    def indices(self, image: Image.Image) -> np.ndarray:
        """Return the class of every pixel of a decoded mask: int32 (H, W), `NO_CLASS` for void, `UNKNOWN` for other values.

        Raises:
            DataError: the mask has colours, and the coding has values alone.
        """
        if self._has_values(image):
            return self._of_values[np.asarray(image).astype(np.uint16)]
        if not self.by_color:
            what = f"the mask is {image.mode}, and the classes have no colours"
            hint = "save masks as indexed or grey PNG; or add the columns red, green, blue to classes.csv"
            raise DataError(what, hint=hint)
        known, classes = self._of_colors
        packed = _packed(image)
        place = np.searchsorted(known, packed).clip(max=len(known) - 1)
        return np.where(known[place] == packed, classes[place], UNKNOWN)

    def strange(self, image: Image.Image, indices: np.ndarray) -> dict[str, int]:
        """Return the values or colours of a mask that stand for no class, the most frequent first, with their pixels."""
        unknown = indices == UNKNOWN
        if not unknown.any():
            return {}
        has_values = self._has_values(image)
        values = np.asarray(image) if has_values else _packed(image)
        found, counts = np.unique(values[unknown], return_counts=True)
        names = [str(int(value)) if has_values else f"#{value:06x}" for value in found]
        return {names[place]: int(counts[place]) for place in np.argsort(-counts, kind="stable")}

    def _has_values(self, image: Image.Image) -> bool:
        """Return whether a mask is read by its values, not by its colours."""
        return bool(self.by_value) and image.mode in VALUES

    def matched(self, labels: list[str], *, where: object, note: Note = lambda text: None) -> "Coding":
        """Return the coding with the indices of a model's ``labels``; classes are matched by name, see `match_classes`.

        Raises:
            DataError: a class is none of the labels.
        """
        order = match_classes(self.classes, labels, where=where, note=note)
        index = {NO_CLASS: NO_CLASS, **dict(enumerate(order))}
        colors = {place: default_color(place) for place in range(len(labels))} | dict(zip(order, self.colors, strict=True))
        by_value = {value: index[number] for value, number in self.by_value.items()}
        by_color = {color: index[number] for color, number in self.by_color.items()}
        return replace(self, classes=tuple(labels), colors=tuple(colors.values()), by_value=by_value, by_color=by_color)

    def to_json(self) -> dict[str, Any]:
        """Return the values and colours of classes, which determine what a run learns."""
        return {
            "values": [[value, number] for value, number in sorted(self.by_value.items())],
            "colors": [[shown(color), number] for color, number in sorted(self.by_color.items())],
        }

    @cached_property
    def _of_values(self) -> np.ndarray:
        table = np.full(WIDE_VOID + 1, UNKNOWN, np.int32)
        table[[VOID, WIDE_VOID]] = NO_CLASS
        table[list(self.by_value)] = list(self.by_value.values())
        return table

    @cached_property
    def _of_colors(self) -> tuple[np.ndarray, np.ndarray]:
        pairs = sorted(((red << 16 | green << 8 | blue), number) for (red, green, blue), number in self.by_color.items())
        known, classes = np.array(pairs, np.int32).T
        return known, classes


def default_color(index: int) -> Color:
    """Return a colour for a class without one: Pascal VOC's colour map, whose first is black and is left out."""
    color = [0, 0, 0]
    for bit in range(24):
        color[bit % 3] |= ((index + 1) >> bit & 1) << (7 - bit // 3)
    return color[0], color[1], color[2]


def color_in(text: str) -> Color | None:
    """Return the colour in a text such as ``#00ff00`` or ``0 255 0``; None for other text."""
    digits = text.strip().removeprefix("#")
    if text.strip().startswith("#") and len(digits) == 6 and all(digit in "0123456789abcdefABCDEF" for digit in digits):
        numbers = [int(digits[place : place + 2], 16) for place in (0, 2, 4)]
    else:
        parts = text.strip("()[] ").replace(",", " ").replace(";", " ").split()
        numbers = [int(part) for part in parts if part.isdecimal()] if len(parts) == 3 else []
    return (numbers[0], numbers[1], numbers[2]) if len(numbers) == 3 and max(numbers) <= 255 else None


def shown(key: int | Color) -> str:
    """Return a value or a colour as text: 7, or #00ff00."""
    return str(key) if isinstance(key, int) else "#{:02x}{:02x}{:02x}".format(*key)


def _void_names(rows: list[Row], void: Iterable[str]) -> set[str]:
    """Return the names of void classes, as `plain` writes them."""
    found = set(VOID_NAMES)
    for entry in void:
        value, color = int(entry) if entry.isdecimal() else None, color_in(entry)
        own = [row for row in rows if plain(row.name) == plain(entry)]
        own = own or [row for row in rows if (value is not None and row.value == value) or (color and row.color == color)]
        if not own and value is None and color is None:
            known = ", ".join(dict.fromkeys(row.name for row in rows))
            raise ConfigError(
                f"no class is called {entry!r}", where="task.void", hint=f"classes: {known}; or a value, or #rrggbb"
            )
        found |= {plain(row.name) for row in own}
    return found


def _packed(image: Image.Image) -> np.ndarray:
    """Return the colours of an image as numbers 0xRRGGBB, int32 (H, W); raises `DataError` for partly transparent masks."""
    if "A" in image.getbands() and image.getchannel("A").getextrema() != (255, 255):
        raise DataError("the mask is partly transparent", hint="save it without transparency")
    red, green, blue = (np.asarray(channel, np.int32) for channel in image.convert("RGB").split())
    return red << 16 | green << 8 | blue


def _name(source: Source) -> object:
    return source if isinstance(source, str) or hasattr(source, "parent") else getattr(source, "name", "mask")
