"""What of a report is about the task: a file for each, found by the name of the task."""

from vitrail.lazy import lazily
from vitrail.study.reports.part import Part, Reported

PARTS = {
    "classification": "classification",
    "mae": "reconstruction",
    "translate": "translation",
    "pose": "pose",
    "caption": "captioning",
}
"""The file of each task, which has a function of the task's name."""

_part_of = lazily("vitrail.study.reports", PARTS)


def part_of(run: Reported) -> Part:
    """The part of a run's report that is about its task, with its pictures written."""
    part: Part = _part_of(run.task.name)(run)
    return part
