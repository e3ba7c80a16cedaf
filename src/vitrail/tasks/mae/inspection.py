"""A check of images without labels."""

from vitrail.tasks.inspection import Inspection


class UnlabelledInspection(Inspection):
    """A check of every image, whatever its label."""

    labelled = False


INSPECTION = UnlabelledInspection()
