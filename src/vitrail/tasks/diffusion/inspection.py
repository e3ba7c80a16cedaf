"""A check of images to make others like."""

from vitrail.tasks.inspection import Inspection


class UnlabelledInspection(Inspection):
    """A check of every image; classes may be there or not."""

    labelled = False


INSPECTION = UnlabelledInspection()
