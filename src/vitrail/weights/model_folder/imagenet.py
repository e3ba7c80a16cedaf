"""ImageNet-1k's classes: their names (most weights files hold none), WordNet ids, and indices in ImageNet-22k."""

from collections.abc import Sequence
from importlib.resources import files
from operator import contains

from vitrail.data.class_matching import plain, single

CLASSES = 1000
CLASSES_22K = 21_841
IMAGENET_1K = "imagenet-1k"


def class_names() -> list[str]:
    """Return the first name of each class, by index; "crane" and "maillot" occur twice."""
    return _lines("imagenet_classes.txt")


def class_ids() -> list[str]:
    """Return the WordNet id of each class, by index; they are sorted, ``n01440764`` is the first."""
    return _lines("imagenet_ids.txt")


def aliases_of(labels: Sequence[str]) -> dict[str, int]:
    """Return alternative names, in lower case, of a model's labels that are ImageNet-1k classes, with the labels' indices.

    For a label that is a name, this is the WordNet id; for an id, the name; for a label with several names
    (``tench, Tinca tinca``), each name. Names that two labels share are left out.
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
    """Return the index of each ImageNet-1k class in ImageNet-22k (21,841 classes of autumn 2011), as in Swin's repository.

    ImageNet-22k has no teddy bear; the index is that of a similar class.
    """
    return [int(line) for line in _lines("imagenet_22k_classes.txt")]


def _lines(name: str) -> list[str]:
    return files(__package__).joinpath(name).read_text(encoding="utf-8").splitlines()
