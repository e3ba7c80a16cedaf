"""A check of images of ordered classes."""

from vitrail.tasks.inspection import Inspection

INSPECTION = Inspection()
