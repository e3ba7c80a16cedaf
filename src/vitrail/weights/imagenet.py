"""The names of ImageNet-1k's classes, which most files of weights leave out, and their numbers in ImageNet-22k."""

from importlib.resources import files

CLASSES = 1000
CLASSES_22K = 21_841
IMAGENET_1K = "imagenet-1k"


def class_names() -> list[str]:
    """By index; two cranes and two maillots are among them. The first name of each class, where it has several."""
    return _lines("imagenet_classes.txt")


def numbers_in_22k() -> list[int]:
    """Where each of them stands among the 21,841 classes of the autumn of 2011, as the authors of Swin found them.

    The teddy bear is not among those; its number is that of a class like it.
    """
    return [int(line) for line in _lines("imagenet_22k_classes.txt")]


def _lines(name: str) -> list[str]:
    return files("vitrail.weights").joinpath(name).read_text(encoding="utf-8").splitlines()
