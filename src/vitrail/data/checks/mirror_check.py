"""A check if images may be mirrored in training: a mirrored "b" is a "d", and a left hand is a right one."""

import re
from collections.abc import Sequence

import numpy as np
from PIL import Image

from vitrail.data.items import Contents, Issue, Item
from vitrail.data.loading.sampler import pick_items

FEWEST = 3
"""Least number of classes that look like characters before they are taken for some."""
CHARACTER = re.compile(
    r"(?:(?:digit|number|letter|character|char|sample)[\W_]*)?(?:[a-z0-9]|upper[\W_]*[a-z]|lower[\W_]*[a-z])", re.I
)
SIDE = 32
"""Side of the grey pictures whose neighbours are looked for."""
COMPARED = 500
"""Images that are compared with their mirror images."""
MARGIN = 0.1
"""Least difference of the shares of mistakes among mirrored and plain images."""


def harmful_names(classes: Sequence[str]) -> str | None:
    """Return why classes are not to be mirrored by their names; None if nothing in them speaks against it."""
    characters = [name for name in classes if CHARACTER.fullmatch(name)]
    if len(characters) >= max(FEWEST, len(classes) / 2):
        shown = ", ".join(characters[:3]) + (", …" if len(characters) > 3 else "")
        return f"the classes {shown} look like characters"
    for name in classes:
        other = name.replace("left", "right").replace("LEFT", "RIGHT")
        other = re.sub("left", "Right", other, flags=re.I)
        if other != name and other in classes:
            return f"{name!r} mirrored may be {other!r}"
    return None


def flip_warning(classes: Sequence[str], flips: float) -> str | None:
    """Return a warning where a share ``flips`` of the training images is mirrored and perhaps should not be; else None."""
    why = harmful_names(classes) if flips else None
    return why and f"warning: {why}, and images are mirrored in training; train with --no-flip"


def mirrored_mistakes(features: np.ndarray, mirrored: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """Return how often the nearest other image is of another class, for images as they are and mirrored.

    Args:
        features: of the images, (N, D).
        mirrored: of their mirror images, (N, D).
        labels: their classes (N,).
    """

    def mistakes(queries: np.ndarray) -> float:
        squares = np.square(features).sum(axis=1)
        distances = squares - 2 * queries @ features.T  # and a constant for each query
        np.fill_diagonal(distances, np.inf)
        return float((labels[distances.argmin(axis=1)] != labels).mean())

    return mistakes(features), mistakes(mirrored)


def harmful_looks(features: np.ndarray, mirrored: np.ndarray, labels: np.ndarray) -> str | None:
    """Return why images are not to be mirrored by their looks; None if they look like their own class as much as before.

    Arguments as of `mirrored_mistakes`. Images of classes that have one image alone are left out.
    """
    kept = np.isin(labels, [label for label, count in zip(*np.unique(labels, return_counts=True), strict=True) if count > 1])
    if len(np.unique(labels[kept])) < 2:
        return None
    plain, turned = mirrored_mistakes(features[kept], mirrored[kept], labels[kept])
    doubt = 3 * np.sqrt((plain * (1 - plain) + turned * (1 - turned)) / kept.sum())
    if turned - plain <= max(MARGIN, doubt):
        return None
    return f"mirrored, {100 * turned:.0f} % of the images are nearest to another class, and {100 * plain:.0f} % as they are"


class MirrorTest:
    """A test of some images of a data set: may they be mirrored?"""

    def __init__(self, contents: Contents):
        items = [] if contents.multi_label else [item for items in contents.splits.values() for item in items]
        self.contents = contents
        self.picked = {id(items[place]) for place in pick_items(items, COMPARED, 0)}
        self.greys: list[np.ndarray] = []
        self.labels: list[int] = []

    def add(self, item: Item, image: Image.Image) -> None:
        """Take up an image, if it is one of those that are compared: as float32 (32, 32), of mean 0 and deviation 1."""
        if id(item) in self.picked:
            pixels = np.asarray(image.convert("L").resize((SIDE, SIDE), Image.Resampling.BILINEAR), np.float32)
            self.greys.append((pixels - pixels.mean()) / max(float(pixels.std()), 1.0))
            self.labels.append(item.target)

    @property
    def notices(self) -> list[Issue]:
        """Return a notice of images that are not to be mirrored, and why."""
        greys = np.stack(self.greys) if self.greys else np.zeros((0, SIDE, SIDE))
        plain, mirrored = (pictures.reshape(len(greys), SIDE**2) for pictures in (greys, greys[:, :, ::-1]))
        why = (harmful_names(self.contents.classes), harmful_looks(plain, mirrored, np.array(self.labels)))
        words = "; ".join(one for one in why if one)
        return [Issue("mirror", self.contents.source, f"{words}; train with --no-flip")] if words else []
