"""The images of a study: which of some data are looked at, and which teach and try probes."""

from dataclasses import dataclass, field
from pathlib import Path

from vitrail.data.folder import TABLE, has_class_folders, images_below, is_image
from vitrail.data.items import ImageData, Item, count_classes
from vitrail.data.order import pick_items, spread
from vitrail.errors import DataError
from vitrail.files import path_of
from vitrail.weights.folder import TrainedModel

KNOWN, ASKED = 1000, 500
"""Images at most that probes are fitted to, and tried on."""
FEWEST = 5
"""Images that every class has at least where there are to be probes."""


@dataclass(frozen=True)
class Subjects:
    """The images of a study.

    Args:
        items: the images.
        split: where they come from; "all" where there are no splits.
        labelled: whether the labels of the items are the model's own; if not they mean nothing.
        why: why they are not.
        known: labelled images to fit probes on; their labels may be of any classes, also of ones that the model does not have.
        asked: others of the same classes, to try the probes on.
    """

    items: list[Item]
    split: str = "all"
    labelled: bool = False
    why: str = ""
    known: list[Item] = field(default_factory=list)
    asked: list[Item] = field(default_factory=list)


def plain_subjects(data: str | Path, count: int, multi_label: bool = False) -> Subjects | None:
    """``count`` images without labels, evenly out of a file or a folder of them; None where the data is of another kind."""
    path = path_of(data)
    if path.is_dir():
        if (path / TABLE).is_file() or has_class_folders(path):
            return None
        files = images_below(path)
    else:
        files = [path] if path.is_file() and is_image(path) else []
    nothing: tuple[int, ...] | int = () if multi_label else 0
    return Subjects([Item(files[i].name, files[i], nothing) for i in spread(len(files), count)]) if files else None


def labelled_subjects(trained: TrainedModel, data: ImageData, split: str, count: int) -> Subjects:
    """``count`` images of a split, of as many classes as possible, and those for probes."""
    every, why = data.split(split), ""
    items = [every[i] for i in pick_items(every, count, 0)]
    known, asked = _for_probes(data)
    try:
        items = trained.relabelled(data, items)
    except DataError as error:
        why = f"errors are left out: {error.what}"
        items = [Item(item.name, item.image, () if trained.multi_label else 0) for item in items]
    return Subjects(items, split, not why, why, known, asked)


def _for_probes(data: ImageData) -> tuple[list[Item], list[Item]]:
    """Training images and others, as far as there are enough."""
    train, rest = data.splits.get("train", []), data.splits.get(data.evaluation_split, [])
    if data.multi_label or not rest or min(count_classes(train, len(data.classes))) < FEWEST:
        return [], []
    return [train[i] for i in pick_items(train, KNOWN, 0)], [rest[i] for i in pick_items(rest, ASKED, 0)]
