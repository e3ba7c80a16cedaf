"""What a run of masked autoencoding does with its images, whose labels do not matter."""

from vitrail.task_registry import task_row
from vitrail.training.images import ImageRunData


class ReconstructionData(ImageRunData):
    """What a run does with images whose masked patches are drawn."""

    scored_with_run = True


DATA = ReconstructionData(task_row("mae"))
