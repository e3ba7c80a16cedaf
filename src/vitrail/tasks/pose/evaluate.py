"""Evaluation of predicted joints, in Python or in an engine: in the annotated boxes, or in a detector's boxes."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from vitrail.checks import refuse_given
from vitrail.data.images.box_preparation import Smoothing
from vitrail.deploy.predictor import predict_each
from vitrail.errors import DataError, ModelFileError
from vitrail.runtime.observer import Note
from vitrail.runtime.output import require_free
from vitrail.runtime.processes import ALONE, Processes
from vitrail.tasks.answer_table import Row
from vitrail.tasks.evaluation import Evaluation, Request, TableOptions
from vitrail.tasks.options import OptionPath
from vitrail.tasks.pose.answer import PoseAnswer
from vitrail.tasks.pose.data import open_people_for
from vitrail.tasks.pose.files.detections import Detections
from vitrail.tasks.pose.metrics import average_precision
from vitrail.tasks.pose.people.cut_out import BoxReport, Framed
from vitrail.tasks.pose.people.people import Person, Picture
from vitrail.tasks.pose.people.skeleton import Skeleton
from vitrail.tasks.pose.predictor import PoseOptions, PosePredictor
from vitrail.tasks.pose.weights import no_joints
from vitrail.tasks.task import Metrics


class PoseEvaluationOptions(TableOptions):
    """Options of an evaluation on people; the table has a row per person."""

    boxes: OptionPath | None = None
    """File with a detector's boxes, see `Detections.read`, to use instead of the annotated boxes."""
    mirror: bool = True
    """Average the heatmaps of a box and of its mirror image; by default as in the run."""
    smoothing: Smoothing | None = None
    """Standard deviation of the heatmaps' smoothing before joints are read, in heatmap cells; None for the model's own value."""
    pictures: OptionPath | None = None
    """New folder for images of the worst predictions and a chart of the joints."""

    @classmethod
    def missing(cls, where: object) -> ModelFileError:
        return no_joints(where)


SETTINGS = PoseEvaluationOptions


def evaluation(request: Request) -> Evaluation:
    """Return the evaluation of a predictor on people in their annotated boxes, or in the boxes of a file.

    Raises:
        DataError: there are no people or boxes, or the joints differ from the model's.
        ConfigError: no data is given, and the model is not a run.
    """
    options, note = request.options, request.note
    boxed = options.boxes is not None
    if options.pictures is not None:
        require_free(options.pictures, where="--pictures")
    refuse_given("the pictures of --boxes are read by this process", {"--workers": boxed and bool(options.workers)})
    what = "people who are found in --boxes are not matched with those who are marked"
    refuse_given(what, {"--pictures": boxed and options.pictures is not None})
    predictor: PosePredictor = request.model.smoothed_by(options.smoothing)
    source, split, settings = open_people_for(predictor.skeleton, request.reference, request.data, request.split, note)
    settings = settings.changed(mirror=options.mirror) if "mirror" in options.model_fields_set else settings
    people, size = source.split(split), options.batch_size
    if not boxed:
        found = predictor.evaluation(people, settings, batch_size=size, split=split)
        found.pictures, found.note = options.pictures, note
        return found
    detections = Detections.read(options.boxes)
    detections.tell(note)
    reporting = replace(predictor, settings=PoseOptions(mirror=settings.mirror), report=BoxReport())
    return BoxEvaluation.of(reporting, people, source.pictures_of(split), detections, split=split, batch_size=size, note=note)


@dataclass
class BoxEvaluation(Evaluation):
    """An evaluation on images, in the boxes of a detector."""

    predictor: PosePredictor
    people: Sequence[Person]
    pictures: Sequence[Picture]
    batch_size: int
    note: Note
    metrics: "BoxMetrics | None" = None

    @classmethod
    def of(
        cls, predictor: Any, people: Sequence[Person], pictures: Sequence[Picture], detections: Detections, **fields: Any
    ) -> "BoxEvaluation":
        """Create the evaluation on images with annotated people or with boxes; raises `DataError` if no box is in any image."""
        note = fields["note"]
        boxes = detections.of([(picture.path, picture.known) for picture in pictures])
        detections.tell_of_empty(boxes, note)
        peopled = {person.target.image for person in people}
        looked_at = [(one, some) for one, some in zip(pictures, boxes, strict=True) if some or one.number in peopled]
        there = [(one, some) for one, some in looked_at if one.number in peopled or os.path.isfile(one.path)]
        if missing := len(looked_at) - len(there):
            what = f"{missing:,} pictures in which nobody is marked are not there"
            note(f"{what}: their boxes are left out, which would count as mistakes")
        framed = [Framed(picture.path, some, picture.number) for picture, some in there]
        own: dict[str, Any] = {"predictor": predictor, "people": people, "pictures": [picture for picture, _ in there]}
        return cls(framed, reads_here=True, **own, **fields)

    def run(self, *, workers: int = 0, on_batch: Callable[[int], None] | None = None, group: Processes = ALONE) -> "BoxMetrics":
        """Return the metrics; raises `DataError` if an image cannot be read."""
        own: list[PoseAnswer] = []
        failure: DataError | None = None
        for answers in predict_each(self.predictor, group.part(self.items), batch_size=self.batch_size):
            failures = [answer for answer in answers if isinstance(answer, DataError)]
            if failures:
                failure = failures[0]
                break
            own += [answer for answer in answers if isinstance(answer, PoseAnswer)]
            if on_batch:
                on_batch(len(answers) * group.count)
        group.raise_together(failure)
        found = [InPicture(*each) for each in zip(self.pictures, group.gathered(own), strict=True)]
        self.predictor.finish(self.note, group)
        self.metrics = BoxMetrics(self.people, self.predictor.skeleton, found)
        return self.metrics

    def rows(self) -> list[Row]:
        assert self.metrics is not None
        return [
            ["image", *self.predictor.head],
            *([str(one.picture.path), *row] for one in self.metrics.pictures for row in one.found.rows()),
        ]


class InPicture(NamedTuple):
    """Predicted people of one image."""

    picture: Picture
    found: PoseAnswer


class BoxMetrics(Metrics):
    """COCO's average precision of people in a detector's boxes."""

    def __init__(self, people: Sequence[Person], skeleton: Skeleton, pictures: Sequence[InPicture]):
        self.people, self.skeleton, self.pictures = people, skeleton, pictures

    @property
    def results(self) -> list[dict[str, Any]]:
        """Return the predicted people as COCO's results."""
        return [
            {"image_id": one.picture.number, **each.to_json(self.skeleton)} for one in self.pictures for each in one.found.people
        ]

    @property
    def ignored(self) -> list[dict[str, Any]]:
        """Return COCO's annotations that the evaluation ignores."""
        return [{"image_id": one.picture.number, **each} for one in self.pictures for each in one.picture.ignored]

    def scores(self) -> dict[str, float | int]:
        results = self.results
        scores = average_precision(results, self.people, self.skeleton, ignored=self.ignored)
        return {**scores, "people": len(self.people), "boxes": len(results)}
