"""How well a model finds joints, in Python or in an engine: in the boxes of marked people, or in a detector's boxes."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from vitrail.checks import refuse_given
from vitrail.deploy.predictor import OnBatch
from vitrail.errors import DataError
from vitrail.runtime.observer import Note
from vitrail.runtime.processes import ALONE, Processes
from vitrail.tasks.answer_table import Row, write_table
from vitrail.tasks.pose.files.detections import Detections
from vitrail.tasks.pose.metrics import Found, average_precision
from vitrail.tasks.pose.people.people import PeopleData, Person, Picture
from vitrail.tasks.pose.people.skeleton import Skeleton
from vitrail.tasks.pose.predict import BoxReport, poses_each
from vitrail.tasks.pose.predictor import FoundPerson, PosePredictor, people_rows
from vitrail.tasks.pose.settings import PoseSettings
from vitrail.tasks.pose.table import judged_rows
from vitrail.tasks.task import Metrics

OpenPeople = Callable[[Skeleton], tuple[PeopleData, str, PoseSettings]]
"""Of a model's skeleton, the people that it is evaluated on, which split of them is meant, and how joints are read."""
OnFound = Callable[[Sequence[Person], Skeleton, Found], None]
"""What is done with people, and the joints of each that were found."""


def evaluate_poses(
    predictor: PosePredictor,
    open_people: OpenPeople,
    *,
    boxes: Path | None = None,
    mirror: bool | None = None,
    batch_size: int = 64,
    workers: int = 0,
    table: Path | None = None,
    on_found: OnFound | None = None,
    on_start: OnBatch | None = None,
    on_batch: OnBatch | None = None,
    on_note: Note = lambda line: None,
    group: Processes = ALONE,
) -> tuple[Metrics, str]:
    """Scores of a model that finds joints, and the split of the people; see `vitrail.evaluate`.

    Args:
        predictor: what answers.
        open_people: gives the people, which split of them is meant, and how joints are read.
        boxes: a file of boxes, as `Detections.read` has it, in which people are looked for in place of their own.
        mirror: whether the answers to mirror images are taken into the mean; as in `PoseSettings` by default.
        batch_size, workers: people per batch; processes that prepare them.
        table: a CSV file to write.
        on_found: called by the first process with people in their own boxes, when all are found.
        on_start, on_batch: called with the number of people or pictures; with the size of every finished batch.
        on_note: called with what else is worth to know of the boxes.
        group: the processes that do it together.
    """
    with group.together():
        refuse_given("the pictures of --boxes are read by this process", {"--workers": boxes is not None and workers > 0})
        what = "people who are found in --boxes are not matched with those who are marked"
        refuse_given(what, {"--pictures": boxes is not None and on_found is not None})
        source, split, settings = open_people(predictor.skeleton)
        settings = settings if mirror is None else settings.changed(mirror=mirror)
        people = source.split(split)
        detections = None if boxes is None else Detections.read(boxes)
        if detections is not None:
            detections.tell(on_note)
    options: dict[str, Any] = {"batch_size": batch_size, "on_batch": on_batch, "group": group}
    if detections is not None:
        told: dict[str, Any] = {"on_start": on_start, "on_note": on_note, **options}
        found = evaluate_boxes(predictor, people, source.pictures_of(split), detections, settings, **told)
        rows = found.rows
    else:
        if on_start:
            on_start(len(people))
        marked = predictor.evaluate(people, settings, workers=workers, **options)
        answered = [people[row.number] for row in marked.rows]
        rows = judged_rows(answered, marked.found, predictor.skeleton)
        if on_found is not None and group.first:
            on_found(answered, predictor.skeleton, marked.found)
    if table is not None and group.first:
        write_table(table, rows)
    return (marked if detections is None else found), split


def evaluate_boxes(
    predictor: PosePredictor,
    people: Sequence[Person],
    pictures: Sequence[Picture],
    detections: Detections,
    settings: PoseSettings,
    *,
    batch_size: int,
    on_start: OnBatch | None = None,
    on_batch: OnBatch | None = None,
    on_note: Note = lambda line: None,
    group: Processes = ALONE,
) -> "BoxMetrics":
    """Average precision of the people that are found in the boxes of a detector.

    Args:
        predictor: what answers.
        people: who is to be found.
        pictures: where; those with neither people nor boxes are not read.
        detections: the boxes.
        settings: whether mirror images are asked, too.
        batch_size, on_start, on_batch, on_note, group: as in `evaluate_poses`.

    Raises:
        DataError: a picture that cannot be read; no box is in any of the pictures.
    """
    with group.together():
        boxes = detections.of([(picture.path, picture.known) for picture in pictures])
        detections.tell_of_empty(boxes, on_note)
    peopled = {person.target.image for person in people}
    looked_at = [(one, some) for one, some in zip(pictures, boxes, strict=True) if some or one.number in peopled]
    there = [(one, some) for one, some in looked_at if one.number in peopled or os.path.isfile(one.path)]
    if missing := len(looked_at) - len(there):
        what = f"{missing:,} pictures in which nobody is marked are not there"
        on_note(f"{what}: their boxes are left out, which would count as mistakes")
    framed = [(picture.path, some) for picture, some in there]
    if on_start:
        on_start(len(framed))
    own: list[list[FoundPerson]] = []
    failure: DataError | None = None
    report = BoxReport()
    for answers in poses_each(predictor, group.part(framed), batch_size=batch_size, mirror=settings.mirror, report=report):
        failures = [answer for answer in answers if isinstance(answer, DataError)]
        if failures:
            failure = failures[0]
            break
        own += [answer for answer in answers if not isinstance(answer, DataError)]
        if on_batch:
            on_batch(len(answers) * group.count)
    group.raise_together(failure)
    found = group.gathered(own)
    report.tell(on_note, group)
    answered = [InPicture(picture, some) for (picture, _), some in zip(there, found, strict=True)]
    return BoxMetrics(people, predictor.skeleton, answered)


class InPicture(NamedTuple):
    """The people that were found in a picture."""

    picture: Picture
    people: list[FoundPerson]


class BoxMetrics(Metrics):
    """COCO's average precision of people who were found in boxes of a detector.

    Args:
        people: who is to be found.
        skeleton: their joints.
        pictures: what was found.
    """

    def __init__(self, people: Sequence[Person], skeleton: Skeleton, pictures: Sequence[InPicture]):
        self.people, self.skeleton, self.pictures = people, skeleton, pictures

    @property
    def results(self) -> list[dict[str, Any]]:
        """In COCO's format."""
        return [{"image_id": one.picture.number, **each.to_json(self.skeleton)} for one in self.pictures for each in one.people]

    @property
    def ignored(self) -> list[dict[str, Any]]:
        """COCO's annotations whom to find is no mistake."""
        return [{"image_id": one.picture.number, **each} for one in self.pictures for each in one.picture.ignored]

    def scores(self) -> dict[str, float | int]:
        results = self.results
        scores = average_precision(results, self.people, self.skeleton, ignored=self.ignored)
        return {**scores, "people": len(self.people), "boxes": len(results)}

    @property
    def rows(self) -> list[Row]:
        """As `people_rows`."""
        return people_rows([(str(one.picture.path), one.people) for one in self.pictures], self.skeleton)
