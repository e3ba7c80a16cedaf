"""ImageNet-1k's classes: their names, which most files of weights leave out, WordNet's ids and the numbers in ImageNet-22k."""

from collections.abc import Sequence
from importlib.resources import files
from operator import contains

from vitrail.data.class_matching import plain, single

CLASSES = 1000
CLASSES_22K = 21_841
IMAGENET_1K = "imagenet-1k"


def class_names() -> list[str]:
    """Return the first name of each class by index; two cranes and two maillots are among them."""
    return _lines("imagenet_classes.txt")


def class_ids() -> list[str]:
    """Return WordNet's id of each class by its index, ``n01440764`` first; they are sorted."""
    return _lines("imagenet_ids.txt")


def aliases_of(labels: Sequence[str]) -> dict[str, int]:
    """Return further names of a model's labels that are ImageNet-1k's, with their indices, in small letters.

    These are WordNet's id of a label that is a name, the name of a label that is an id, and each name of a label with several,
    ``tench, Tinca tinca``; none that two labels share.
    """
    ids, names = class_ids(), list(map(plain, class_names()))
    id_of, name_of = single(zip(names, ids, strict=True)), dict(zip(ids, names, strict=True))
    several = [[plain(name) for name in label.split(",")] for label in labels]
    in_order = len(labels) == CLASSES and sum(map(contains, several, names)) > 0.9 * CLASSES

    def further_names(index: int) -> list[str]:
        own = several[index]
        if own[0] in name_of:
            return [name_of[own[0]]]
        known = ids[index] if in_order else next((id_of[name] for name in own if name in id_of), None)
        return [] if known is None else [known, *own]

    return single((name, index) for index in range(len(labels)) for name in further_names(index))


def numbers_in_22k() -> list[int]:
    """Return the index of each among the 21,841 classes of autumn 2011, as the authors of Swin have them.

    The teddy bear is not among those; its number is that of a class like it.
    """
    return [int(line) for line in _lines("imagenet_22k_classes.txt")]


def _lines(name: str) -> list[str]:
    return files(__package__).joinpath(name).read_text(encoding="utf-8").splitlines()
