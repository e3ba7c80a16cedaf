"""The data of a run of masked autoencoding, whose labels do not matter."""

from vitrail.task_registry import task_row
from vitrail.training.images import ImageRunData


class ReconstructionData(ImageRunData):
    """Images whose masked patches are drawn as the data of a run."""

    scored_with_run = True


DATA = ReconstructionData(task_row("mae"))
