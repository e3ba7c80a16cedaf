"""``vitrail predict`` of a model that finds joints."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitrail.checks import refuse_given
from vitrail.cli.console import is_first, note, report_unreadable, result, result_json
from vitrail.errors import DataError
from vitrail.runtime.terminal import one_line

if TYPE_CHECKING:
    from vitrail.deploy.poses import AnyPredictor, FoundPerson, PosePredictor
    from vitrail.runtime.processes import Processes

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
        from vitrail.deploy.poses import PosePredictor, of_joints

        if any(asked is not None for asked in (self.boxes, self.smoothing, self.pictures)):
            of_joints(predictor, model)
        if isinstance(predictor, PosePredictor):
            refuse_given("the model finds joints, and gives no labels", of_labels)

    def predict(self, predictor: "PosePredictor", files: Sequence[Path], group: "Processes") -> None:
        """Find the people in some images and tell of them; with several processes each takes its share."""
        from vitrail.cli.progress import counting
        from vitrail.data.poses.detections import Detections, number_in
        from vitrail.deploy.poses import people_rows
        from vitrail.deploy.predict_poses import BoxReport, poses_each

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
        with counting("predicting") as progress:
            progress.start(len(files))
            own: list[list[FoundPerson] | DataError] = []
            framed = group.part(list(zip(files, given, strict=True)))
            report = BoxReport()
            for answers in poses_each(predictor, framed, batch_size=self.batch_size, mirror=self.mirror, report=report):
                own += answers
                progress.advance(len(answers) * group.count)
        found = list(zip(files, group.gathered(own), strict=True))
        report.tell(note, group)
        answered = [(file, people) for file, people in found if not isinstance(people, DataError)]
        if self.json:
            numbers = _numbers([number_of(file) for file in files])
            result_json([
                {"image": str(file), "image_id": number, "box": list(person.box), **person.to_json(predictor.skeleton)}
                for (file, people), number in zip(found, numbers, strict=True) if not isinstance(people, DataError)
                for person in people
            ])  # fmt: skip
        else:
            self._tell(predictor, answered)
        if self.table is not None and is_first():
            from vitrail.tasks.answer_table import write_table

            write_table(self.table, people_rows([(str(file), people) for file, people in answered], predictor.skeleton))
        if self.pictures is not None and answered and is_first():
            from vitrail.deploy.drawn import write_pictures
            from vitrail.study.skeletons import draw_people

            write_pictures(self.pictures, answered, predictor.skeleton, draw_people)
            note(f"{len(answered):,} images with skeletons: {self.pictures}")
        report_unreadable([people for _, people in found if isinstance(people, DataError)])

    def _tell(self, predictor: "PosePredictor", answered: "Sequence[tuple[Path, list[FoundPerson]]]") -> None:
        """A line for each person."""
        for file, people in answered:
            for number, person in enumerate(people, 1):
                rows = zip(predictor.skeleton.joints, person.joints.tolist(), person.scores.tolist(), strict=True)
                joints = ", ".join(f"{name} {x:.1f} {y:.1f} ({score:.2f})" for name, (x, y), score in rows)
                result(f"{one_line(file)}: person {number} ({person.score:.2f}): {joints}")
            if not people:
                result(f"{one_line(file)}: nobody")


def _numbers(told: Sequence[Any]) -> list[int]:
    """A number for each picture: as it is told where each has one of its own, else counted from 1."""
    known = None not in told and len(set(told)) == len(told)
    return [int(number) for number in told] if known else list(range(1, len(told) + 1))
