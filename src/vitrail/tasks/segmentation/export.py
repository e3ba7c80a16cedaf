"""Export of segmenters: graphs that give logits at the decoder's stride or at the size of the images, in any precision."""

from collections.abc import Callable
from typing import Any, ClassVar, Self

from pydantic import model_validator
from torch import Tensor

from vitrail.deploy.export.artefact import Description
from vitrail.errors import ConfigError
from vitrail.runtime.observer import Note
from vitrail.tasks.segmentation.judging.judging import MaskJudging
from vitrail.tasks.segmentation.predictor import SegmentationPredictor
from vitrail.tasks.segmentation.weights import TrainedSegmenter, multiple_of


class SegmentationDescription(Description):
    """Description of an exported graph that gives logits for places in an image."""

    task: ClassVar[str] = "segment"
    rounding: ClassVar[float] = 1e-4
    """More than of a vector: a map has a million numbers, and the largest of as many rounding errors counts."""
    sides: ClassVar[tuple[str, ...]] = ("height", "width")
    each: ClassVar[str] = "a map of logits for each of {} classes"
    title: ClassVar[str] = "Classes, their colours"
    commands: ClassVar[str] = "vitrail predict . photo.jpg --masks masks\nvitrail evaluate . --data masks-folder\nvitrail serve ."

    colors: tuple[tuple[int, int, int], ...]
    """The colour of each class."""
    multiple: tuple[int, int]
    """Divisors of the heights and widths that the model takes in whole patches; see `multiple_of`."""
    full_size: bool = False
    """Whether logits have the size of the images, and not the decoder's stride."""

    @model_validator(mode="after")
    def _belong_together(self) -> Self:
        if len(self.colors) != len(self.labels) or self.multi_label:
            raise ValueError("there is not one colour for each class")
        if not all(0 <= value <= 255 for color in self.colors for value in color):
            raise ValueError("a colour has a value beyond 0…255")
        if min(self.multiple) < 1:
            raise ValueError("multiple is below 1")
        return self

    @property
    def signature(self) -> str:
        own, sides = self.preparation, "height, width" if self.any_size else "{}, {}".format(*self.preparation.image_size)
        mean, std = (", ".join(f"{value:g}" for value in values) for values in (own.mean, own.std))
        kind = "uint8, 0 to 255" if self.pixels else f"float32, mean {mean}, std {std}"
        where = "each pixel" if self.full_size else "each place of a coarser grid, to be enlarged"
        given = f"takes `images` ({kind}), (batch, {own.channels}, {sides}), at their own scale"
        return f"{given}, and gives `{self.gives}`, (batch, {len(self.labels)}, height, width), for {where}"

    @classmethod
    def fields_of(cls, trained: Any, *, any_size: bool) -> dict[str, Any]:
        model = trained.model
        own = {"colors": trained.colors, "multiple": multiple_of(model), "full_size": model.full_size}
        return {**super().fields_of(trained, any_size=any_size), **own}

    def predictor(self, network: Callable[[Tensor], Tensor], name: str) -> SegmentationPredictor:
        classes, own = list(self.labels), self.preparation
        return SegmentationPredictor(name, classes, self.colors, own, network, self.multiple, any_size=self.any_size)


FLOATS = ""
"""Reason why ``--precision auto`` does not try int8; segmenters have none."""
judging = MaskJudging
DESCRIPTION = SegmentationDescription


def require_exportable(trained: TrainedSegmenter, to: str, options: dict[str, bool], note: Note) -> None:
    """Raise `ConfigError` for a graph of one size that the model only takes with padding, since windows must meet."""
    size, multiple = trained.config.image_size, multiple_of(trained.model)
    if not options["--image-size"] and any(side % each for side, each in zip(size, multiple, strict=True)):
        rows, columns = (-(-side // each) * each for side, each in zip(size, multiple, strict=True))
        what = f"a graph for {size[0]}×{size[1]} pixels is not in whole patches: the model takes multiples of {multiple}"
        raise ConfigError(what, where="--image-size", hint=f"--image-size {rows}x{columns}")
