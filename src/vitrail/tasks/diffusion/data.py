"""The data of a run of diffusion: images, and their classes where they have some."""

from vitrail.config.settings import RunSettings
from vitrail.data.images.decode import upright_size
from vitrail.data.items import ImageData
from vitrail.data.loading.sampler import spread
from vitrail.errors import DataError
from vitrail.task_registry import Labels, task_row
from vitrail.tasks.diffusion.settings import DiffusionSettings
from vitrail.training.images import ImageRunData

LOOKED_AT = 200
"""Training images whose size is compared with the model's."""


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

    def warnings(self, settings: RunSettings, source: ImageData) -> list[str]:
        """Return a line for images below the model's size, which would be enlarged, beside what every run of images warns of."""
        assert settings.preparation is not None
        lines, size = super().warnings(settings, source), settings.preparation.image_size
        items = source.split("train")
        some = [items[place].image for place in spread(len(items), LOOKED_AT)]
        small = sum(width < size[1] or height < size[0] for width, height in map(upright_size, some))
        if small:
            what = f"{small} of {len(some)} training images that were looked at are smaller than the model's {size[0]}×{size[1]}"
            lines.append(f"{what}: enlarged images are blurred, and so are those that are learned from them; lower --image-size")
        return lines


DATA = DiffusionData(task_row("diffusion"))
