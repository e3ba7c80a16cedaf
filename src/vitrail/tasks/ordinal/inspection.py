"""A check and samples of images of ordered classes."""

from typing import TYPE_CHECKING, Any

from vitrail.data.checks.check import check_data
from vitrail.data.checks.found import Check
from vitrail.runtime.observer import Note
from vitrail.tasks.inspection import Inspection, InspectionRequest

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class OrdinalInspection(Inspection):
    """A check of every image and its class."""

    def check(self, request: InspectionRequest) -> Check:
        return check_data(request.data, labelled=True, **request.progress)

    def sheet(self, run: Any, split: str, count: int, note: Note) -> "Figure":
        from vitrail.study.page.samples import augmentation_sheet
        from vitrail.training.samples import image_samples

        return augmentation_sheet(*image_samples(run, split, count, note))


INSPECTION = OrdinalInspection()
