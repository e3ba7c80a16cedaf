"""A check of images to make others like, whose classes may be there or not."""

from vitrail.tasks.inspection import Inspection

INSPECTION = Inspection(labelled=False)
