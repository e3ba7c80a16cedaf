"""A check and samples of images with labels."""

from dataclasses import replace
from typing import Any

from vitrail.data.checks.found import Check
from vitrail.files import path_of
from vitrail.runtime.observer import Note
from vitrail.runtime.output import require_free
from vitrail.tasks.inspection import Inspection, InspectionRequest


class ImageInspection(Inspection):
    """A check of every image and label, with a page where a model or a folder is named."""

    options = frozenset({"model", "out"})

    def check(self, request: InspectionRequest) -> Check:
        from vitrail.data.checks.check import check_data
        from vitrail.data.readers.sources import require_there
        from vitrail.weights.locate import require_possible

        if request.model is None and request.out is None:
            return check_data(request.data, labelled=True, **request.progress)
        if request.model is not None:  # all of these before torch is imported
            require_possible(request.model)
        if request.out is not None:
            require_free(path_of(request.out))
        require_there(request.data)
        from vitrail.tasks.classification.study.checked_page import check_with_page

        folder, found = check_with_page(request.data, request.model, request.out, observer=request.observer)
        return replace(found, folder=folder)

    def sheet(self, run: Any, split: str, count: int, note: Note) -> Any:
        from vitrail.study.page.samples import augmentation_sheet
        from vitrail.training.samples import image_samples

        return augmentation_sheet(*image_samples(run, split, count, note))


INSPECTION = ImageInspection()
