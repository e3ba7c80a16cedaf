"""The data of a run of diffusion: images, and their classes where they have some."""

from vitrail.config.settings import RunSettings
from vitrail.data.items import ImageData
from vitrail.errors import DataError
from vitrail.task_registry import Labels, task_row
from vitrail.tasks.diffusion.settings import DiffusionSettings
from vitrail.training.images import ImageRunData


class DiffusionData(ImageRunData):
    """Images that a model learns to make, with classes unless the settings say otherwise."""

    counts_batch_memory = True
    scored_with_run = True

    def labels_for(self, settings: RunSettings) -> Labels:
        """Return "none" where the settings leave the classes out."""
        assert isinstance(settings.task, DiffusionSettings)
        return self.row.labels if settings.task.classes else "none"

    def require_learnable(self, source: ImageData) -> None:
        """Refuse data without training images, or whose images have several labels; raises `DataError`."""
        super().require_learnable(source)
        if source.classes and source.multi_label:
            hint = "give images with one class each, or add --task.classes false"
            raise DataError("images have several labels each, and a sample is made of one class", where=source.source, hint=hint)


DATA = DiffusionData(task_row("diffusion"))
