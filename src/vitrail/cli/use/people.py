"""``vitrail predict`` of a model that finds joints."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitrail.checks import refuse_given
from vitrail.cli.console import note, printed, report_unreadable
from vitrail.cli.use.answers import Answers
from vitrail.runtime.terminal import one_line

if TYPE_CHECKING:
    from vitrail.runtime.processes import Processes
    from vitrail.tasks.pose.predictor import AnyPredictor, FoundPerson, PosePredictor

MANY = 1000
"""Boxes that a file of them is taken to have before it is read."""


@dataclass(frozen=True)
class People:
    """What is asked of people and their joints."""

    boxes: Path | None
    """A file of the boxes to look for people in."""
    mirror: bool
    smoothing: float | None
    """By how many places heatmaps are smoothed; None as the model keeps it."""
    pictures: Path | None
    """A folder to write images with skeletons to."""
    table: Path | None
    """A CSV file to write."""
    batch_size: int
    json: bool

    def require_fit(self, predictor: "AnyPredictor", of_labels: dict[str, bool], model: str) -> None:
        """Refuse what means nothing to this kind of model.

        Raises:
            ModelFileError: joints are asked of a model that finds none.
            ConfigError: labels are asked of a model that finds joints.
        """
        from vitrail.tasks.pose.predictor import PosePredictor, of_joints

        if any(asked is not None for asked in (self.boxes, self.smoothing, self.pictures)):
            of_joints(predictor, model)
        if isinstance(predictor, PosePredictor):
            refuse_given("the model finds joints, and gives no labels", of_labels)

    def predict(self, predictor: "PosePredictor", files: Sequence[Path], group: "Processes") -> None:
        """Find the people in some images and tell of them; with several processes each takes its share."""
        from vitrail.cli.progress import counting
        from vitrail.tasks.answer_table import growing_table
        from vitrail.tasks.pose.files.detections import Detections, number_in
        from vitrail.tasks.pose.predict import BoxReport, poses_each
        from vitrail.tasks.pose.predictor import people_rows

        with group.together():
            detections = None if self.boxes is None else Detections.read(self.boxes)
            given = [None] * len(files) if detections is None else detections.of([(file, None) for file in files])
            if detections is None:
                note("no --boxes: each image is taken for one person, from rim to rim")
            else:
                detections.tell(note)
                detections.tell_of_empty([boxes or () for boxes in given], note)
            predictor = predictor.smoothed_by(self.smoothing)
        number_of = number_in if detections is None else detections.number
        numbers = dict(zip(files, _numbers([number_of(file) for file in files]), strict=True))

        def entries(file: Path, people: "Sequence[FoundPerson]") -> Iterator[dict[str, Any]]:
            for person in people:
                found = person.to_json(predictor.skeleton)
                yield {"image": str(file), "image_id": numbers[file], "box": list(person.box), **found}

        with counting("predicting") as progress, Answers() as answers:
            answers.to(printed(json=self.json), entries if self.json else partial(_lines, predictor))
            if self.table is not None:
                head, *_ = people_rows([], predictor.skeleton)
                rows = growing_table(self.table, head)
                answers.to(rows, lambda file, people: people_rows([(str(file), people)], predictor.skeleton)[1:])
            if self.pictures is not None:
                from vitrail.tasks.pose.draw_poses import drawn_pictures
                from vitrail.tasks.pose.study.skeletons import draw_people

                answers.to(drawn_pictures(self.pictures, predictor.skeleton, draw_people), lambda *answered: [answered])
            progress.start(len(files))
            framed = group.dealt(list(zip(files, given, strict=True)))
            report = BoxReport()
            own = poses_each(predictor, framed, batch_size=self.batch_size, mirror=self.mirror, report=report)
            unreadable = answers.add_each(files, group.in_order(own), progress.advance)
            report.tell(note, group)
        report_unreadable(unreadable)


def _lines(predictor: "PosePredictor", file: Path, people: "Sequence[FoundPerson]") -> Iterator[str]:
    """Yield a line for each person."""
    for number, person in enumerate(people, 1):
        rows = zip(predictor.skeleton.joints, person.joints.tolist(), person.scores.tolist(), strict=True)
        joints = ", ".join(f"{name} {x:.1f} {y:.1f} ({score:.2f})" for name, (x, y), score in rows)
        yield f"{one_line(file)}: person {number} ({person.score:.2f}): {joints}"
    if not people:
        yield f"{one_line(file)}: nobody"


def _numbers(told: Sequence[Any]) -> list[int]:
    """A number for each picture: as it is told where each has one of its own, else counted from 1."""
    known = None not in told and len(set(told)) == len(told)
    return [int(number) for number in told] if known else list(range(1, len(told) + 1))
