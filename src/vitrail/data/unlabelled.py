"""Images without labels: a file, or a folder of files."""

from pathlib import Path

from vitrail.data.decode import Source
from vitrail.data.folder import TABLE, has_class_folders, images_below, is_image
from vitrail.data.items import Item
from vitrail.data.order import spread
from vitrail.files import path_of


def unlabelled_items(data: str | Path, count: int, multi_label: bool = False) -> list[Item]:
    """``count`` images without labels, evenly out of a file or a folder of them; none where the data is of another kind."""
    path = path_of(data)
    if path.is_dir():
        files = [] if (path / TABLE).is_file() or has_class_folders(path) else images_below(path)
    else:
        files = [path] if path.is_file() and is_image(path) else []
    return [unlabelled(files[i].name, files[i], multi_label) for i in spread(len(files), count)]


def unlabelled(name: str, image: Source, multi_label: bool) -> Item:
    """An item whose label means nothing, and is of the kind that the model gives."""
    return Item(name, image, () if multi_label else 0)
