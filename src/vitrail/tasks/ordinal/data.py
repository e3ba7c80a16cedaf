"""Images and their ordered classes as the data of a run."""

from vitrail.task_registry import task_row
from vitrail.training.images import ImageRunData


class OrdinalData(ImageRunData):
    """Images of ordered classes, whose models are scored by the order that the run knows."""

    counts_batch_memory = True
    scored_with_run = True


DATA = OrdinalData(task_row("ordinal"))
