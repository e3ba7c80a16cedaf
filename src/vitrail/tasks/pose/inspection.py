"""Check and sample sheet for data of people in images."""

from typing import Any

from vitrail.checks import refuse_given
from vitrail.data.checks.found import Found
from vitrail.runtime.observer import Note
from vitrail.tasks.inspection import Inspection, InspectionRequest
from vitrail.tasks.pose.files.sources import tells_people
from vitrail.tasks.pose.people.skeleton import Skeleton


class PeopleInspection(Inspection):
    """A check that reads every person and image once, and a sheet of sample people with their joints."""

    options = frozenset({"config", "settings"})

    def tells(self, source: str) -> bool:
        return tells_people(source)

    def check(self, request: InspectionRequest) -> Found:
        from vitrail.tasks.pose.files.check import check_people

        return check_people(request.data, _skeleton(request), **request.progress)

    def sheet(self, run: Any, split: str, count: int, note: Note) -> Any:
        from vitrail.data.loading.sampler import some_items
        from vitrail.tasks.pose import data as people
        from vitrail.tasks.pose.people.dataset import PersonDataset
        from vitrail.tasks.pose.study.samples import people_sheet

        people.require_of_people(run)
        opened = people.DATA.open_source(run)
        opened.tell(note)
        for line in people.warnings_at_a_glance(run, opened):
            note(line)
        picked = some_items(opened.split(split), count, run.training.seed)
        seed, preparation = run.training.seed, people.DATA.preparation_of(run, opened)
        return people_sheet(PersonDataset(picked, preparation, opened.skeleton, run.augmentation, seed))


def _skeleton(request: InspectionRequest) -> Skeleton | None:
    if request.config is None and not request.settings:
        return None
    from vitrail.config.configuration import nested
    from vitrail.config.request import Request
    from vitrail.tasks.pose.settings import PoseSettings

    values = nested({**request.settings, "data": request.data, "task": "pose"})
    task = Request.read(None, request.config, values).certain.task
    others = {f"--{name}": True for name in request.settings if not name.startswith("task.skeleton")}
    refuse_given("of the settings, a check of people uses only the skeleton", others)
    assert isinstance(task, PoseSettings)
    return task.skeleton


INSPECTION = PeopleInspection()
