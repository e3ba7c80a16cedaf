"""Search for images that are nearly the same: resized, compressed again, brighter, slightly cropped, or mirrored."""

from collections.abc import Iterator

import numpy as np
from PIL import Image, ImageOps

SIDE = 12
"""Side of the grey miniatures that are compared."""
SMALLEST = 16
"""Least side of an image for a useful miniature; smaller images are not compared."""
ALIKE = 0.85
"""Least correlation of two images that count as nearly the same.

Measured on a hundred photographs: copies of half the size, at JPEG quality 40, cropped by 5 %, mirrored, or brighter or darker by
30 % all reach 0.85; no two different photographs reach 0.61.
"""
TOO_ALIKE = 0.2
"""Median correlation above which copies cannot be recognized; it is 0.05 for photographs and 0.37 for digits."""
MOST = 50_000
"""Largest number of images that are compared, since the time grows quadratically."""
SAMPLE, FEWEST = 1000, 100
"""Number of images for the estimate of the median correlation, and the least number of images for which it is made."""


def miniature(image: Image.Image) -> np.ndarray | None:
    """Return an image's miniature and the mirrored miniature, uint8 (2, 12, 12); None for an image that is too small."""
    if min(image.size) < SMALLEST:
        return None
    grey = image.convert("L").resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    return np.stack([np.asarray(grey), np.asarray(ImageOps.mirror(grey))])


def near_duplicates(miniatures: np.ndarray) -> list[list[int]]:
    """Return groups of positions of images that are nearly the same; each group has two or more.

    Two images are compared by the correlation of their brightness differences between neighbouring pixels, which brightness, size
    and compression change little. The second image is compared mirrored, too.

    Args:
        miniatures: results of `miniature`, uint8 (N, 2, 12, 12); N is at most `MOST`.
    """
    if len(miniatures) < 2:
        return []
    plain, mirrored = _changes(miniatures[:, 0]), _changes(miniatures[:, 1])
    group = np.arange(len(plain))  # for each image, the first image of its group
    for place, others in _alike(plain, mirrored):
        joined = np.unique(group[np.append(others, place)])
        if len(joined) > 1:
            group[np.isin(group, joined)] = joined[0]
    groups: dict[int, list[int]] = {}
    for place, first in enumerate(group.tolist()):
        groups.setdefault(first, []).append(place)
    return [places for places in groups.values() if len(places) > 1]


def too_alike(miniatures: np.ndarray) -> bool:
    """Return True if all images are so similar, as images of characters are, that copies cannot be recognized."""
    some = miniatures[:: -(-len(miniatures) // SAMPLE)] if len(miniatures) >= FEWEST else miniatures[:0]
    if not len(some):
        return False
    plain, mirrored = _changes(some[:, 0]), _changes(some[:, 1])
    found = np.maximum(plain @ plain.T, plain @ mirrored.T)[np.triu_indices(len(some), 1)]
    return float(np.median(found)) > TOO_ALIKE


def _changes(miniatures: np.ndarray) -> np.ndarray:
    """Compute differences of neighbouring pixels as vectors of norm 1, float32 (N, 264); zero for an image of one colour."""
    pixels = miniatures.astype(np.float32)
    across, down = np.diff(pixels, axis=2), np.diff(pixels, axis=1)
    changes = np.concatenate([across.reshape(len(pixels), -1), down.reshape(len(pixels), -1)], axis=1)
    length: np.ndarray = np.linalg.norm(changes, axis=1, keepdims=True)
    return changes / np.maximum(length, 1)


def _alike(plain: np.ndarray, mirrored: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the position of each image that has similar later ones, with the positions of those."""
    rows = max(1, 2**23 // len(plain))
    for start in range(0, len(plain), rows):
        part = plain[start : start + rows]
        found = np.maximum(part @ plain[start:].T, part @ mirrored[start:].T) >= ALIKE
        later = np.triu(found, 1)
        for row in later.any(axis=1).nonzero()[0].tolist():
            yield start + row, start + later[row].nonzero()[0]
