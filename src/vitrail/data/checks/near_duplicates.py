"""Pictures that are nearly the same: saved smaller, compressed anew, brighter, a little cropped, or mirrored."""

from collections.abc import Iterator

import numpy as np
from PIL import Image, ImageOps

SIDE = 12
"""Side of the grey miniature that a picture is compared by."""
SMALLEST = 16
"""Shortest side of a picture that a miniature can tell from others."""
ALIKE = 0.85
"""The least correlation of two pictures that are nearly the same.

Of a hundred photographs every copy that was halved, saved at quality 40, cropped by 5 %, mirrored, or made brighter or
darker by 30 % reaches 0.85, and no two different ones 0.61.
"""
TOO_ALIKE = 0.2
"""The median correlation above which copies cannot be recognized: it is 0.05 of photographs, 0.37 of digits."""
MOST = 50_000
"""Most pictures that are compared: the time grows with their square."""
SAMPLE, FEWEST = 1000, 100
"""Pictures whose pairs show how alike all are, and the least number of them."""


def miniature(image: Image.Image) -> np.ndarray | None:
    """Return a picture's miniature and its mirror image, uint8 (2, 12, 12); None of a picture that is too small."""
    if min(image.size) < SMALLEST:
        return None
    grey = image.convert("L").resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    return np.stack([np.asarray(grey), np.asarray(ImageOps.mirror(grey))])


def near_duplicates(miniatures: np.ndarray) -> list[list[int]]:
    """Return the positions of pictures that are nearly the same, a group for every picture that is there more than once.

    Two pictures are compared by the correlation of the changes of brightness between neighbours, which neither light nor size nor
    compression alters much; the second one also mirrored.

    Args:
        miniatures: uint8 (N, 2, 12, 12) of `miniature`; N is at most `MOST`.
    """
    if len(miniatures) < 2:
        return []
    plain, mirrored = _changes(miniatures[:, 0]), _changes(miniatures[:, 1])
    group = np.arange(len(plain))  # the first picture of each one's group
    for place, others in _alike(plain, mirrored):
        joined = np.unique(group[np.append(others, place)])
        if len(joined) > 1:
            group[np.isin(group, joined)] = joined[0]
    groups: dict[int, list[int]] = {}
    for place, first in enumerate(group.tolist()):
        groups.setdefault(first, []).append(place)
    return [places for places in groups.values() if len(places) > 1]


def too_alike(miniatures: np.ndarray) -> bool:
    """Return True if pictures have so much in common, as characters have, that copies cannot be recognized."""
    some = miniatures[:: -(-len(miniatures) // SAMPLE)] if len(miniatures) >= FEWEST else miniatures[:0]
    if not len(some):
        return False
    plain, mirrored = _changes(some[:, 0]), _changes(some[:, 1])
    found = np.maximum(plain @ plain.T, plain @ mirrored.T)[np.triu_indices(len(some), 1)]
    return float(np.median(found)) > TOO_ALIKE


def _changes(miniatures: np.ndarray) -> np.ndarray:
    """Compute differences between neighbours, of length 1 as a whole: float32 (N, 264); zero for a picture of one colour."""
    pixels = miniatures.astype(np.float32)
    across, down = np.diff(pixels, axis=2), np.diff(pixels, axis=1)
    changes = np.concatenate([across.reshape(len(pixels), -1), down.reshape(len(pixels), -1)], axis=1)
    length: np.ndarray = np.linalg.norm(changes, axis=1, keepdims=True)
    return changes / np.maximum(length, 1)


def _alike(plain: np.ndarray, mirrored: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the position of each picture that later ones are like, with their positions."""
    rows = max(1, 2**23 // len(plain))
    for start in range(0, len(plain), rows):
        part = plain[start : start + rows]
        found = np.maximum(part @ plain[start:].T, part @ mirrored[start:].T) >= ALIKE
        later = np.triu(found, 1)
        for row in later.any(axis=1).nonzero()[0].tolist():
            yield start + row, start + later[row].nonzero()[0]
