"""Images and masks as the data of a run of segmentation."""

import math
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from vitrail.checks import refuse_given
from vitrail.config.settings import RunSettings
from vitrail.data.images.decode import upright_size
from vitrail.data.images.preparation import Preparation
from vitrail.data.items import Item
from vitrail.data.loading.sampler import spread
from vitrail.errors import ConfigError, DataError
from vitrail.models.base import ImageModel
from vitrail.models.registry import build
from vitrail.runtime.observer import Observer
from vitrail.runtime.processes import Processes
from vitrail.task_registry import task_row
from vitrail.tasks.segmentation.files.data import SegmentationData
from vitrail.tasks.segmentation.files.sources import open_masks
from vitrail.tasks.segmentation.settings import SegmentationSettings
from vitrail.tasks.segmentation.windows import MOST_WHOLE, Extent
from vitrail.training.images import ImageRunData, check_images, fit_whitening
from vitrail.training.runs.run_folder import RunFolder
from vitrail.weights.locate import absolute
from vitrail.weights.model_folder.folder import TrainedModel
from vitrail.weights.reference import open_model
from vitrail.weights.transfer import transfer


class MaskRunData(ImageRunData):
    """Images and masks, whose models start from any model of images."""

    def open_start(self, reference: str) -> TrainedModel:
        return open_model(reference)

    def open_source(
        self, settings: RunSettings, *, run: RunFolder | None = None, start: TrainedModel | None = None
    ) -> SegmentationData:
        refuse_given("images with masks are split one by one", {"--data.group": settings.data.group is not None})
        assignment = run.assignment if run else None
        void = task_of(settings).void
        source = open_masks(settings.data.source, void=void, **settings.data.splitting, assignment=assignment)
        if run and len(source.classes) != settings.model.config.num_classes:
            what = f"the masks have {len(source.classes)} classes, the run was started with {settings.model.config.num_classes}"
            raise DataError(what, where=source.source, hint="restore the data of the run, or train a new model")
        return source

    def complete(self, settings: RunSettings, source: SegmentationData, start: TrainedModel | None) -> RunSettings:  # type: ignore[override]
        """Return the settings with an output for each class, and with absolute paths."""
        require_of_masks(settings)
        self._require_kind(settings.model.config, settings.model.name, where="--model")
        source.split("train")
        return settings.changed(
            task=completed(task_of(settings), source, settings.model.config.image_size),
            model=settings.model.changed(num_classes=len(source.classes)),
            data=settings.data.changed(source=source.source),
            preparation=self.preparation_of(settings, source),
            start=absolute(settings.start),
        )

    def check(  # type: ignore[override]
        self, source: SegmentationData, settings: RunSettings, observer: Observer, group: Processes
    ) -> dict[str, str]:
        """Check every image and read its mask; return those to skip."""
        items = {item.name: item for item in source.split("all")}
        return check_images(source, settings, observer, group, also=lambda name: source.mask_of(items[name]))

    def preparation_of(self, settings: RunSettings, source: Any) -> Preparation:
        """Return the preparation of crops: they have the model's size, and are not resized."""
        preparation = super().preparation_of(settings, source)
        return preparation.changed(resize_size=preparation.image_size)

    def start_model(self, settings: RunSettings, start: TrainedModel | None, source: SegmentationData) -> ImageModel:  # type: ignore[override]
        model: Any = build(settings.model.config)
        if start is None:
            fit_whitening(model, self.preparation_of(settings, source), source.split("train"))
        else:
            same = start.config.answer == self.row.answers and start.labels == source.classes
            transfer(start.model, model, keep_head=same)
        return model

    def warnings(self, settings: RunSettings, source: SegmentationData) -> list[str]:  # type: ignore[override]
        """Return warnings as for any images, and a note on images that are evaluated in windows for their size."""
        window = task_of(settings).window
        large = [] if window is None else too_large(source)
        what = f"{len(large):,} images are too large to be evaluated as a whole: task.window is {window}"
        named = replace(source, classes=[name for name in source.classes if not name.isdecimal()])  # values, not digits
        return [*super().warnings(settings, named), *([what] if large else [])]

    def card(self, settings: RunSettings, source: SegmentationData) -> dict[str, Any]:  # type: ignore[override]
        return {"labels": source.classes, "masks": True}


COUNTED = 500
"""Most masks that are read for balanced weights."""
DATA = MaskRunData(task_row("segment"))


def require_of_masks(settings: RunSettings) -> None:
    """Raise `ConfigError` for settings that do not apply to segmentation."""
    a = settings.augmentation
    refused = {
        "augmentation.crop": a.crop not in ("none", "scaled"),
        "augmentation.mixup, augmentation.cutmix": a.mixes,
        "data.crop_ratio": settings.data.crop_ratio is not None,
        "schedule.first_image_size, schedule.last_image_size": settings.schedule.shrinks_images,
        "--batch-size auto": settings.training.batch_size == "auto",
        "training.probe": settings.training.probe,
        "transform": bool(settings.transform),
    }
    refuse_given("it does not go with masks", refused)
    others = {"--teacher": settings.distillation.has_teacher, "--balance": settings.data.balance != "none"}
    refuse_given("segmentation has a class for every pixel and no teacher", others)


def completed(task: SegmentationSettings, source: SegmentationData, image_size: Extent) -> SegmentationSettings:
    """Return the task's settings with a weight for each class, and with windows if an image to evaluate is too large without.

    Raises:
        ConfigError: there is another number of weights than of classes.
    """
    if task.class_weights == "balanced":
        task = task.changed(class_weights=balanced_weights(source))
    if task.weights is not None and len(task.weights) != len(source.classes):
        what = f"{len(task.weights)} weights for {len(source.classes)} classes"
        raise ConfigError(what, where="task.class_weights", hint=f"give one for each of {', '.join(source.classes)}, or balanced")
    return task.changed(window=image_size) if task.window is None and too_large(source) else task


def too_large(source: SegmentationData) -> list[Item]:
    """Return the images beside the training images, or of these if there are no others, that are too large as a whole."""
    others = [item for split, own in source.splits.items() if split != "train" for item in own]
    return [item for item in others or source.splits["train"] if _pixels(item) > MOST_WHOLE]


def _pixels(item: Item) -> int:
    """Return the number of an image's pixels, by its header; 0 if it cannot be read, which the check before training reports."""
    try:
        return math.prod(upright_size(item.image))
    except DataError:
        return 0


def balanced_weights(source: SegmentationData) -> tuple[float, ...]:
    """Return √(median of the classes' frequencies / own frequency) for each class, from at most `COUNTED` training masks.

    A class's frequency is its fraction of the known pixels of the images that show it (Eigen and Fergus 2015,
    https://arxiv.org/abs/1411.4734, without the root: then rare classes take the pixels of common ones). A class that is nowhere
    gets the weight 1.
    """
    items, count = source.splits["train"], len(source.classes)
    pixels, shown = np.zeros((2, count))
    for place in spread(len(items), COUNTED):
        with suppress(DataError):  # the check before training reports them
            own = np.bincount(source.mask_of(items[place]).ravel(), minlength=count)[:count]
            pixels += own
            shown += (own > 0) * own.sum()
    frequency = pixels / np.maximum(shown, 1)
    median = np.median(frequency[frequency > 0]) if frequency.any() else 1.0
    return tuple(round(float(median / each) ** 0.5, 4) if each else 1.0 for each in frequency)


def task_of(settings: RunSettings) -> SegmentationSettings:
    """Return the task's settings of a run of segmentation."""
    assert isinstance(settings.task, SegmentationSettings)
    return settings.task
