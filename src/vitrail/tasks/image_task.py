"""A task whose items are images."""

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.data.images.augment import Augmentation
from vitrail.data.images.preparation import Preparation
from vitrail.data.images.transform import Transform
from vitrail.data.items import ImageData, Item
from vitrail.data.loading.batches import Batch
from vitrail.data.loading.dataset import ImageDataset
from vitrail.data.targets import Targets
from vitrail.models.base import ImageModel
from vitrail.runtime.processes import Processes
from vitrail.tasks.image_schedule import image_size_at, patch_dropout_at, require_smaller_images
from vitrail.tasks.settings import ScheduleSettings
from vitrail.tasks.task import Options, Progress, Task
from vitrail.weights.model_folder.folder import TrainedModel


class ImageTask(Task):
    """A model of images and its training.

    Args:
        model: the model that is saved and exported.
        preparation: the preparation that normalizes the pixels.
    """

    model: ImageModel
    scored_dataset: ClassVar[type[ImageDataset]] = ImageDataset
    """Class of the data set of images without augmentation, which are scored."""

    def __init__(self, model: ImageModel, preparation: Preparation):
        super().__init__(model)
        self.preparation = preparation
        self.schedule = ScheduleSettings()
        self.image_size: tuple[int, int] | None = None
        """Height and width of the images in this step of training; None keeps their size."""
        self._any_size: tuple[nn.Module, ...] = ()  # in a tuple, so that its parameters are not registered twice
        self._drops_fewer = False
        """True if patch dropout decreases during the run."""

    @classmethod
    def create(cls, model: ImageModel, preparation: Preparation, data: ImageData, options: Options) -> Self:
        raise NotImplementedError

    def targets(self, *, mixed: bool = False) -> Targets:
        """Return the function from an item to its targets; with ``mixed`` the targets can be mixed."""
        raise NotImplementedError

    def learned_targets(self, *, mixed: bool) -> Targets:
        """Return the function from a training item to its targets; by default `targets`."""
        return self.targets(mixed=mixed)

    def dataset(
        self,
        items: Sequence[Item],
        augmentation: Augmentation | None = None,
        *,
        seed: int = 0,
        transform: Transform | None = None,
    ) -> ImageDataset:
        """Return a data set of prepared images; a user's ``transform`` is applied first."""
        if augmentation is None:
            return self.scored_dataset(items, self.preparation, None, seed, targets=self.targets(), transform=transform)
        targets = self.learned_targets(mixed=augmentation.mixes)
        return ImageDataset(items, self.preparation, augmentation, seed, targets=targets, transform=transform)

    def units(self, batch: Batch) -> int:
        return len(batch["images"])

    def follow_schedule(self, schedule: ScheduleSettings) -> None:
        """Take the schedule of image sizes and patch dropout.

        Raises:
            ConfigError: images would shrink during the run, or the model takes only one size.
        """
        self.schedule = schedule
        self._config: Any = self.model.config
        self._drops_fewer = schedule.patch_dropout == "falling" and bool(getattr(self._config, "patch_dropout", 0.0))
        if schedule.shrinks_images:
            require_smaller_images(schedule, self._config.image_size)
            self.allow_any_size()

    def before_step(self, progress: Progress) -> None:
        """Set the image size of this step, and the model's patch dropout, which the model reads from its configuration."""
        schedule, step, total = self.schedule, progress.done, progress.total
        if schedule.shrinks_images:
            c = self._config
            self.image_size = image_size_at(schedule, c.image_size, c.size_multiple, step, total=total)
        if self._drops_fewer:
            dropped = patch_dropout_at(schedule, self._config.patch_dropout, step, total=total)
            self.model.config = self._config.changed(patch_dropout=dropped)

    def after_step(self, progress: Progress, group: Processes) -> None:
        """Restore the model's configuration."""
        if self._drops_fewer:
            self.model.config = self._config

    def trained(self, model: ImageModel) -> TrainedModel:
        raise NotImplementedError

    def allow_any_size(self) -> None:
        """Prepare the model for images of other sizes; raises `ConfigError` for a model that takes only one size."""
        self._any_size = (self.model.at_any_size(),)

    @property
    def network(self) -> Any:
        """The module to call: the model, or its version for images of any size."""
        return self._any_size[0] if self._any_size else self.model

    def images(self, batch: Batch) -> Tensor:
        """Return the normalized images of a batch, (B, C, H, W), in training resized to the size of this step."""
        images = self.preparation.normalize(batch["images"])
        if not self.training or self.image_size in (None, self.model.config.image_size):
            return images
        return F.interpolate(images, self.image_size, mode="bilinear", antialias=True)
