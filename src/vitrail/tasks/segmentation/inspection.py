"""Check and sample sheet for images with masks."""

from typing import Any

from vitrail.data.checks.found import Found
from vitrail.runtime.observer import Note
from vitrail.tasks.inspection import Inspection, InspectionRequest
from vitrail.tasks.segmentation.files.sources import tells_masks


class MaskInspection(Inspection):
    """A check that reads every image and mask once, and a sheet of sample crops with their masks."""

    options = frozenset({"config", "settings"})

    def tells(self, source: str) -> bool:
        return tells_masks(source)

    def check(self, request: InspectionRequest) -> Found:
        from vitrail.tasks.segmentation.files.check import check_masks

        return check_masks(request.data, _void(request), **request.progress)

    def sheet(self, run: Any, split: str, count: int, note: Note) -> Any:
        from vitrail.data.loading.sampler import some_items
        from vitrail.tasks.segmentation import data as masks
        from vitrail.tasks.segmentation.judging.samples import mask_sheet
        from vitrail.tasks.segmentation.learning.crops import SegmentationDataset

        masks.require_of_masks(run)
        opened = masks.DATA.open_source(run)
        opened.tell(note)
        seed, preparation = run.training.seed, masks.DATA.preparation_of(run, opened)
        picked = some_items(opened.split(split), count, seed)
        return mask_sheet(SegmentationDataset(picked, preparation, opened.coding, run.augmentation, seed))


def _void(request: InspectionRequest) -> tuple[str, ...]:
    """Return the classes that the request's settings make void."""
    if request.config is None and not request.settings:
        return ()
    from vitrail.checks import refuse_given
    from vitrail.config.configuration import nested
    from vitrail.config.request import Request
    from vitrail.tasks.segmentation.settings import SegmentationSettings

    others = {f"--{name}": True for name in request.settings if name != "task.void"}
    refuse_given("of the settings, a check of masks uses only task.void", others)
    values = nested({**request.settings, "data": request.data, "task": "segment"})
    task = Request.read(None, request.config, values).certain.task
    assert isinstance(task, SegmentationSettings)
    return task.void


INSPECTION = MaskInspection()
