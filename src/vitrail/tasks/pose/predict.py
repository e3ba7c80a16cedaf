"""``vitrail.predict_poses``: pictures and boxes in Python."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from numbers import Real
from pathlib import Path
from typing import cast

import numpy as np

from vitrail.checks import require_positive
from vitrail.data.images.pictures import Picture, pictures_of
from vitrail.data.loading.prefetch import each_answer
from vitrail.deploy.predict import open_predictor
from vitrail.deploy.predictor import predict_each
from vitrail.errors import ConfigError
from vitrail.runtime.device import Precision
from vitrail.tasks.pose.answer import FoundPerson
from vitrail.tasks.pose.cut_out import Framed
from vitrail.tasks.pose.files.detections import Detection
from vitrail.tasks.pose.predictor import PoseOptions, PosePredictor, of_joints
from vitrail.weights.model_folder.folder import TrainedModel

Boxes = Sequence[Sequence[float]] | np.ndarray
"""Of one picture: left, top, width and height in pixels of each, and perhaps a score."""


def predict_poses(
    model: str | Path | TrainedModel | PosePredictor,
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
    framed = [Framed(*each) for each in zip(pictures, _boxes(boxes, len(pictures)), strict=True)]
    opened = open_predictor(model, precision, engine=engine, images=sum(one.people for one in framed))
    predictor = of_joints(opened, model if isinstance(model, str | Path) else "model")
    predictor = replace(predictor.smoothed_by(smoothing), settings=PoseOptions(mirror=mirror))
    return [list(answer.people) for answer in each_answer(predict_each(predictor, framed, batch_size=batch_size))]


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
