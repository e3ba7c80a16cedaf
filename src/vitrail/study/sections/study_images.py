"""Selection of a study's images, and of the images that probes are fitted to and tested on."""

from dataclasses import dataclass, field
from typing import Any

from vitrail.data.items import ImageData, Item, count_classes
from vitrail.data.loading.sampler import pick_items, shuffled
from vitrail.data.readers.unlabelled import unlabelled, unlabelled_items
from vitrail.errors import ConfigError, DataError
from vitrail.runtime.observer import Note
from vitrail.study.sections.request import StudyRequest
from vitrail.weights.model_folder.folder import TrainedModel

KNOWN, TESTED = 1000, 500
"""Maximum number of images that probes are fitted to, and tested on."""
PER_CLASS, MOST_KNOWN = 10, 10_000
"""Images per class for probes of many classes, and their maximum over all classes."""
FEWEST = 5
"""Least number of training images of a class in probes."""


@dataclass(frozen=True)
class Subjects:
    """The images of a study.

    Args:
        items: the images, or people in images.
        split: their split; "all" for data without splits.
        labelled: True if their labels or joints are the model's own, so that predictions can be compared with them.
        why: the reason why they are not.
        known, tested: images to fit probes to and to test them on; their labels may be of any classes.
        rare, beyond: number of classes without probes: for too few training images, and because none of ``known`` has them.
        unprobed: the reason why there are no probes.
    """

    items: list[Any]
    split: str = "all"
    labelled: bool = False
    why: str = ""
    known: list[Item] = field(default_factory=list)
    tested: list[Item] = field(default_factory=list)
    rare: int = 0
    beyond: int = 0
    unprobed: str = ""


def plain_items(request: StudyRequest, lacking: str, *, multi_label: bool = False) -> list[Item]:
    """Return the images of a request for data without labels or joints; an empty list for other data.

    Raises:
        ConfigError: the request names a split.
    """
    if request.data is None:
        return []
    plain = unlabelled_items(request.data, request.images, multi_label, note=request.observer.note)
    if plain and request.split is not None:
        raise ConfigError(f"images without {lacking} have no splits", where="--split", hint="remove --split")
    return plain


def labelled_subjects(trained: TrainedModel, data: ImageData, split: str, count: int, note: Note = lambda text: None) -> Subjects:
    """Return ``count`` random images of a split, and the images for probes."""
    every, why = data.split(split), ""
    items = [every[i] for i in _at_random(len(every), count)]
    probed = _for_probes(data)
    try:
        items = trained.relabelled(data, items, note)
    except DataError as error:
        why = f"errors are left out: {error.what}"
        items = [unlabelled(item.name, item.image, trained.multi_label) for item in items]
    return Subjects(items, split, not why, why, **probed)


def _for_probes(data: ImageData) -> dict[str, Any]:
    """Return the fields of `Subjects` for probes."""
    train, rest = data.splits.get("train", []), data.splits.get(data.evaluation_split, [])
    if data.multi_label or not train or not rest:
        return {}
    counts = count_classes(train, len(data.classes))
    enough = {label for label, count in enumerate(counts) if count >= FEWEST}
    if len(enough) < 2:
        what = f"probes need two classes with {FEWEST} training images; only {len(enough)} of {len(counts)} have as many"
        return {"unprobed": what}
    train = [item for item in train if item.target in enough]
    known = [train[i] for i in pick_items(train, min(max(KNOWN, PER_CLASS * len(enough)), MOST_KNOWN), 0)]
    classes = {item.target for item in known}
    rest = [item for item in rest if item.target in classes]
    if not rest:
        what = f"no test image is of a class with at least {FEWEST} training images"
        return {"unprobed": what}
    tested = [rest[i] for i in _at_random(len(rest), TESTED)]
    return {"known": known, "tested": tested, "rare": len(counts) - len(enough), "beyond": len(enough) - len(classes)}


def _at_random(count: int, wanted: int) -> list[int]:
    return sorted(shuffled(count, 0, 0)[:wanted])
