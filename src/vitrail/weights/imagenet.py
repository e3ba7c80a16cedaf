"""The names of ImageNet-1k's classes, which most files of weights with 1,000 classes leave out."""

from importlib.resources import files

CLASSES = 1000


def class_names() -> list[str]:
    """By index; two cranes and two maillots are among them. The first name of each class, where it has several."""
    return files("vitrail.weights").joinpath("imagenet_classes.txt").read_text(encoding="utf-8").splitlines()
