"""What a model's answers are called."""

from vitrail.data.items import ImageData, Item
from vitrail.data.sources import match_classes
from vitrail.errors import DataError


class Labelled:
    """Whatever answers with labels: a model in Python, or one behind an engine."""

    labels: list[str]
    """A name for every logit, by index; none for a model that gives vectors."""
    multi_label: bool
    """Whether an image may have several labels, or none."""

    def relabelled(self, data: ImageData, items: list[Item]) -> list[Item]:
        """Items of some data with the model's own labels: an index of `labels`, or a tuple of them if it gives several.

        Raises:
            DataError: a class of the data is none of the model's, or images have several labels where the model gives one.
        """
        index = match_classes(data.classes, self.labels, where=data.source)
        if data.multi_label and not self.multi_label:
            raise DataError(
                "the images have several labels each, the model gives one", where=data.source, hint="give images with one label"
            )
        found = [tuple(sorted(index[label] for label in item.labels)) for item in items]
        return [Item(i.name, i.image, own if self.multi_label else own[0]) for i, own in zip(items, found, strict=True)]
