"""A check whether mirroring in training would change labels: a mirrored "b" is a "d", a mirrored left hand a right hand."""

import re
from collections.abc import Sequence

import numpy as np
from PIL import Image

from vitrail.data.items import Contents, Issue, Item
from vitrail.data.loading.sampler import pick_items

FEWEST = 3
"""Least number of class names that look like characters for a data set of characters."""
CHARACTER = re.compile(
    r"(?:(?:digit|number|letter|character|char|sample)[\W_]*)?(?:[a-z0-9]|upper[\W_]*[a-z]|lower[\W_]*[a-z])", re.I
)
SIDE = 32
"""Side of the grey images whose nearest neighbours are searched."""
COMPARED = 500
"""Number of images that are compared with their mirror images."""
MARGIN = 0.1
"""Least difference in the fraction of mistakes, between mirrored and plain images, for a notice."""


def harmful_names(classes: Sequence[str]) -> str | None:
    """Return the reason why class names suggest not to mirror images; None if there is none."""
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
    """Return a warning if images are mirrored in training (with probability ``flips``) and perhaps should not be; else None."""
    why = harmful_names(classes) if flips else None
    return why and f"warning: {why}, and images are mirrored in training; train with --no-flip"


def mirrored_mistakes(features: np.ndarray, mirrored: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """Return how often the nearest other image is of another class: the fraction for plain and for mirrored images.

    Args:
        features: features of the images, (N, D).
        mirrored: features of their mirror images, (N, D).
        labels: class indices, (N,).
    """

    def mistakes(queries: np.ndarray) -> float:
        squares = np.square(features).sum(axis=1)
        distances = squares - 2 * queries @ features.T  # up to a constant for each query
        np.fill_diagonal(distances, np.inf)
        return float((labels[distances.argmin(axis=1)] != labels).mean())

    return mistakes(features), mistakes(mirrored)


def harmful_looks(features: np.ndarray, mirrored: np.ndarray, labels: np.ndarray) -> str | None:
    """Return the reason not to mirror if mirrored images resemble other classes more often than plain ones; else None.

    Arguments are those of `mirrored_mistakes`. Classes with a single image are left out.
    """
    kept = np.isin(labels, [label for label, count in zip(*np.unique(labels, return_counts=True), strict=True) if count > 1])
    if len(np.unique(labels[kept])) < 2:
        return None
    plain, turned = mirrored_mistakes(features[kept], mirrored[kept], labels[kept])
    doubt = 3 * np.sqrt((plain * (1 - plain) + turned * (1 - turned)) / kept.sum())
    if turned - plain <= max(MARGIN, doubt):
        return None
    return f"{100 * turned:.0f} % of the mirrored images are nearest to another class, and {100 * plain:.0f} % of the unmirrored"


class MirrorTest:
    """A test on a sample of a data set whether its images may be mirrored."""

    def __init__(self, contents: Contents):
        items = [] if contents.multi_label else [item for items in contents.splits.values() for item in items]
        self.contents = contents
        self.picked = {id(items[place]) for place in pick_items(items, COMPARED, 0)}
        self.greys: list[np.ndarray] = []
        self.labels: list[int] = []

    def add(self, item: Item, image: Image.Image) -> None:
        """Add an image if it is in the sample, as grey float32 (32, 32) with mean 0 and standard deviation 1."""
        if id(item) in self.picked:
            pixels = np.asarray(image.convert("L").resize((SIDE, SIDE), Image.Resampling.BILINEAR), np.float32)
            self.greys.append((pixels - pixels.mean()) / max(float(pixels.std()), 1.0))
            self.labels.append(item.target)

    @property
    def notices(self) -> list[Issue]:
        """Return a notice with the reasons if images should not be mirrored; else an empty list."""
        greys = np.stack(self.greys) if self.greys else np.zeros((0, SIDE, SIDE))
        plain, mirrored = (pictures.reshape(len(greys), SIDE**2) for pictures in (greys, greys[:, :, ::-1]))
        why = (harmful_names(self.contents.classes), harmful_looks(plain, mirrored, np.array(self.labels)))
        words = "; ".join(one for one in why if one)
        return [Issue("mirror", self.contents.source, f"{words}; train with --no-flip")] if words else []
