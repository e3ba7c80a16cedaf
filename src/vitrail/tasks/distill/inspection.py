"""A check of images without labels."""

from vitrail.tasks.inspection import Inspection

INSPECTION = Inspection(labelled=False)
