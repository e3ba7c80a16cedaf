"""The data of a run of diffusion: images, and their classes where they have some."""

from vitrail.config.settings import RunSettings
from vitrail.data.items import ImageData
from vitrail.errors import DataError
from vitrail.task_registry import task_row
from vitrail.tasks.diffusion.settings import DiffusionSettings
from vitrail.training.images import ImageRunData, open_images
from vitrail.training.runs.run_folder import RunFolder
from vitrail.weights.model_folder.folder import TrainedModel


class DiffusionData(ImageRunData):
    """Images that a model learns to make, with classes unless the settings say otherwise."""

    counts_batch_memory = True
    scored_with_run = True

    def open_source(self, settings: RunSettings, *, run: RunFolder | None = None, start: TrainedModel | None = None) -> ImageData:
        assert isinstance(settings.task, DiffusionSettings)
        labels = self.row.labels if settings.task.classes else "none"
        assignment = run.assignment if run else None
        source = open_images(labels, settings.data.source, **settings.data.splitting, assignment=assignment)
        if run:
            self.require_same_classes(settings, source)
        return source

    def require_learnable(self, source: ImageData) -> None:
        """Refuse data without training images, or whose images have several labels; raises `DataError`."""
        super().require_learnable(source)
        if source.classes and source.multi_label:
            hint = "give images with one class each, or add --task.classes false"
            raise DataError("images have several labels each, and a sample is made of one class", where=source.source, hint=hint)

    def classes_to_learn(self, source: ImageData) -> int:
        return len(source.classes)


DATA = DiffusionData(task_row("diffusion"))
