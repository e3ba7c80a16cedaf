"""Pictures in, people with their joints out, by whatever model."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from numbers import Real
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
import torch

from vitrail.checks import require_positive
from vitrail.data.images.box_preparation import Box, BoxPreparation
from vitrail.data.images.decode import Source
from vitrail.data.images.pictures import Picture, pictures_of
from vitrail.data.images.plan import Extent
from vitrail.data.images.warp import Warp
from vitrail.data.loading.prefetch import each_answer, read_ahead
from vitrail.deploy.predict import open_pose_predictor
from vitrail.errors import ConfigError, DataError
from vitrail.runtime.device import Precision
from vitrail.runtime.observer import Note
from vitrail.runtime.processes import Processes
from vitrail.tasks.pose.files.detections import Detection, counted_errors, errors_outside
from vitrail.tasks.pose.files.suspicions import corners_note
from vitrail.tasks.pose.metrics import person_score
from vitrail.tasks.pose.predictor import AnyPredictor, FoundPerson, PosePredictor
from vitrail.weights.model_folder.folder import TrainedModel

Boxes = Sequence[Sequence[float]] | np.ndarray
"""Of one picture: left, top, width and height in pixels of each, and perhaps a score."""
Framed = tuple[Source, Sequence[Detection] | None]
"""A picture and the boxes in it; None where the picture is one person from rim to rim."""
SEEN = 1000
"""Boxes by which it is judged whether they are corners."""


class CutOut(NamedTuple):
    """The people that were cut out of a picture."""

    boxes: Sequence[Detection]
    warps: Sequence[Warp]
    pixels: np.ndarray
    """uint8 (N, C, H, W)."""
    size: Extent
    """Of the picture."""
    given: Sequence[Detection] = ()
    """Boxes from outside, with those that are left out."""
    wrong: Sequence[DataError] = ()
    """Why boxes are left out."""


@dataclass
class BoxReport:
    """What is seen of the boxes in a file when their pictures are opened."""

    wrong: list[DataError] = field(default_factory=list)
    """Why boxes are left out."""
    boxes: list[tuple[Box, Extent]] = field(default_factory=list)
    """Boxes with the sizes of their pictures, not more than `SEEN`."""
    kept: int = 0
    """Boxes that people are looked for in."""

    def add(self, pictures: Sequence[CutOut]) -> None:
        """Take up the boxes in some pictures."""
        self.wrong += [error for cut in pictures for error in cut.wrong]
        self.kept += sum(len(cut.boxes) for cut in pictures)
        self.boxes += [(box, cut.size) for cut in pictures for box, _ in cut.given][: SEEN - len(self.boxes)]

    def tell(self, note: Note, group: Processes) -> None:
        """Tell which boxes are left out, and whether they are corners; raises `DataError` where no box is left."""
        wrong, boxes = group.gathered(self.wrong), group.gathered(self.boxes)
        if wrong and not any(group.gathered([self.kept])):
            raise wrong[0]
        if wrong:
            note(f"boxes that are left out: {counted_errors(wrong)}")
        if what := corners_note(boxes):
            note(what)


def predict_poses(
    model: str | Path | TrainedModel | AnyPredictor,
    images: Picture | Iterable[Picture],
    boxes: Boxes | Sequence[Boxes] | None = None,
    *,
    mirror: bool = False,
    smoothing: float | None = None,
    batch_size: int = 32,
    precision: Precision | None = None,
    engine: str = "auto",
) -> list[list[FoundPerson]]:
    """The people in every picture with their joints.

    >>> people = predict_poses("runs/pose", "photo.jpg", [[48, 20, 110, 260], [210, 31, 95, 240]])  # doctest: +SKIP

    Args:
        model: a run folder, a model folder, an exported or a loaded model, which finds joints.
        images: as in `vitrail.predict`.
        boxes: in which to look for people, of each picture or of the only one: left, top, width and height in pixels of the
            upright picture, and perhaps a score; None for pictures that are one person each.
        mirror: whether the mean of the answers to a box and to its mirror image is taken, which takes twice the time.
        smoothing: deviation by which heatmaps are smoothed before a joint is read from them, in places; 0 for none. By default as
            the model keeps it.
        batch_size: boxes per batch, whichever pictures they are in.
        precision, engine: as in `vitrail.predict`.

    Raises:
        ModelFileError: a model that finds no joints.
        ConfigError: boxes of another number of pictures.
        DataError: an image that cannot be read, a box that is empty, outside of its picture or far beyond it, or what is none.
    """
    require_positive(batch_size=batch_size)
    pictures = pictures_of(images)
    framed = list(zip(pictures, _boxes(boxes, len(pictures)), strict=True))
    predictor = open_pose_predictor(model, precision, engine=engine, images=boxes_in(framed)).smoothed_by(smoothing)
    return list(each_answer(poses_each(predictor, framed, batch_size=batch_size, mirror=mirror)))


def poses_each(
    predictor: PosePredictor,
    pictures: Sequence[Framed],
    *,
    batch_size: int,
    mirror: bool = False,
    report: BoxReport | None = None,
) -> Iterator[list[list[FoundPerson] | DataError]]:
    """`predict_poses`, some pictures at a time, with the error in place of one that cannot be read or has a box outside.

    Every picture is decoded once. Boxes of several pictures are answered together, as many as a batch has room for.
    With a ``report`` boxes outside are left out, and stand in it.
    """
    read = partial(_cut_out, predictor.preparation, strict=report is None)
    answer = partial(predictor.joints, mirror=mirror)
    for group in read_ahead(read, _groups(pictures, batch_size)):
        cut = [one for one in group if isinstance(one, CutOut)]
        if report is not None:
            report.add(cut)
        people = iter(_found(cut, answer, batch_size))
        yield [one if isinstance(one, DataError) else [next(people) for _ in one.boxes] for one in group]


def boxes_in(pictures: Sequence[Framed]) -> int:
    """How many boxes some pictures have."""
    return sum(_count(picture) for picture in pictures)


def _cut_out(preparation: BoxPreparation, picture: Framed, *, strict: bool) -> CutOut:
    """Cut out the people in a picture, which is decoded once; raises `DataError`, if ``strict`` for a box outside, too."""
    source, given = picture
    image = preparation.decode(source)
    boxes = [Detection(Box.of_picture(image.size))] if given is None else given
    wrong = errors_outside([box for box, _ in boxes], image.size, where=source if isinstance(source, Path) else "image")
    if wrong and strict:
        raise next(iter(wrong.values()))
    boxes = [box for place, box in enumerate(boxes) if place not in wrong]
    pixels = [preparation.cut_out(image, box) for box, _ in boxes]
    shape = (0, preparation.channels, *preparation.image_size)
    stacked = np.stack(pixels) if pixels else np.zeros(shape, np.uint8)
    errors = [_in_picture(error, source) for error in wrong.values()]
    return CutOut(boxes, [preparation.warp(box) for box, _ in boxes], stacked, image.size, given or (), errors)


def _in_picture(error: DataError, source: Source) -> DataError:
    """An error about a box that names its picture."""
    return DataError(f"{Path(str(source)).name}: {error.what}", where=error.where, hint=error.hint)


def _found(
    cut: Sequence[CutOut], answer: Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]], batch_size: int
) -> list[FoundPerson]:
    """The people in all boxes of some pictures, in their order; ``answer`` as `PosePredictor.joints`."""
    if not any(one.boxes for one in cut):
        return []
    pixels = torch.from_numpy(np.concatenate([one.pixels for one in cut]))
    batches = [answer(batch) for batch in pixels.split(batch_size)]
    places, scores = (torch.cat(parts).numpy() for parts in zip(*batches, strict=True))
    boxes = [box for one in cut for box in one.boxes]
    warps = [warp for one in cut for warp in one.warps]
    sure = person_score(scores, np.array([box.score for box in boxes]))
    return [
        FoundPerson(box.box, warp.outside(joints), own, float(score))
        for box, warp, joints, own, score in zip(boxes, warps, places, scores, sure, strict=True)
    ]


def _groups(pictures: Sequence[Framed], most: int) -> Iterator[list[Framed]]:
    """Pictures in their order, so many at a time as have at most so many boxes, or one that has more."""
    group: list[Framed] = []
    for picture in pictures:
        if group and boxes_in(group) + _count(picture) > most:
            yield group
            group = []
        group.append(picture)
    if group:
        yield group


def _count(picture: Framed) -> int:
    """How many people are looked for in a picture; one that has no boxes takes time too."""
    return 1 if picture[1] is None else max(1, len(picture[1]))


def _boxes(boxes: Boxes | Sequence[Boxes] | None, count: int) -> list[list[Detection] | None]:
    """The boxes of each of so many pictures, as they may be given."""
    if boxes is None:
        return [None] * count
    if isinstance(boxes, str | bytes | Path) or any(isinstance(box, Real) for box in boxes):
        hint = (
            "give a list of boxes for each picture, such as [[48, 20, 110, 260]]; a file of them goes to vitrail predict --boxes"
        )
        raise ConfigError("that is no list of boxes", where="boxes", hint=hint)
    single = count == 1 and (len(boxes) == 0 or (len(boxes[0]) > 0 and isinstance(boxes[0][0], Real)))
    each = [boxes] if single else list(boxes)
    if len(each) != count:
        what = f"there are boxes for {len(each)} pictures, and {count} pictures"
        raise ConfigError(what, where="boxes", hint="give a list of boxes for each picture")
    return [[Detection.of(box) for box in cast(Boxes, some)] for some in each]
