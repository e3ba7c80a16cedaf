"""The check of labelled images."""

from dataclasses import replace

from vitrail.data.checks.found import Check, Found
from vitrail.files import path_of
from vitrail.runtime.output import require_free
from vitrail.tasks.inspection import Inspection, InspectionRequest


class ImageInspection(Inspection):
    """The check of every image and label; with a model or an output folder, also an HTML page."""

    options = frozenset({"model", "out"})

    def check(self, request: InspectionRequest) -> Found:
        from vitrail.data.readers.sources import require_there
        from vitrail.weights.locate import require_possible

        if request.model is None and request.out is None:
            return super().check(request)
        if request.model is not None:  # report mistakes before torch is imported
            require_possible(request.model)
        if request.out is not None:
            require_free(path_of(request.out))
        require_there(request.data)
        from vitrail.tasks.classification.study.checked_page import check_with_page

        check: Check
        folder, check = check_with_page(request.data, request.model, request.out, observer=request.observer)
        return replace(check, folder=folder)


INSPECTION = ImageInspection()
