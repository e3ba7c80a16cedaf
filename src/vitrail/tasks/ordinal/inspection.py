"""A check and samples of images of ordered classes."""

from typing import Any

from vitrail.data.checks.found import Check
from vitrail.runtime.observer import Note
from vitrail.tasks.inspection import Inspection, InspectionRequest


class OrdinalInspection(Inspection):
    """A check of every image and its class."""

    def check(self, request: InspectionRequest) -> Check:
        from vitrail.data.checks.check import check_data

        return check_data(request.data, labelled=True, **request.progress)

    def sheet(self, run: Any, split: str, count: int, note: Note) -> Any:
        from vitrail.study.page.samples import augmentation_sheet
        from vitrail.training.samples import image_samples

        return augmentation_sheet(*image_samples(run, split, count, note))


INSPECTION = OrdinalInspection()
