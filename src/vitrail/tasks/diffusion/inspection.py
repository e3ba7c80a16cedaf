"""A check and samples of images to make others like."""

from typing import Any

from vitrail.data.checks.found import Check
from vitrail.runtime.observer import Note
from vitrail.tasks.inspection import Inspection, InspectionRequest


class DiffusionInspection(Inspection):
    """A check of every image; classes may be there or not."""

    def check(self, request: InspectionRequest) -> Check:
        from vitrail.data.checks.check import check_data

        return check_data(request.data, labelled=False, **request.progress)

    def sheet(self, run: Any, split: str, count: int, note: Note) -> Any:
        from vitrail.study.page.samples import augmentation_sheet
        from vitrail.training.samples import image_samples

        return augmentation_sheet(*image_samples(run, split, count, note))


INSPECTION = DiffusionInspection()
