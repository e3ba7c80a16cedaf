"""Data of runs that learn features without labels: images, and labels that measure the features, where there are some."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from vitrail.config.settings import RunSettings
from vitrail.data.items import ImageData
from vitrail.data.readers.sources import open_data
from vitrail.data.readers.unlabelled import open_unlabelled
from vitrail.errors import DataError
from vitrail.tasks.settings import FeatureSettings
from vitrail.training.images import ImageRunData
from vitrail.training.runs.run_folder import RunFolder
from vitrail.weights.locate import absolute
from vitrail.weights.model_folder.folder import TrainedModel


class FeatureData(ImageRunData):
    """Images that features are learned from. Labels are not learned: they only measure the features."""

    scored_with_run = True

    def open_source(self, settings: RunSettings, *, run: RunFolder | None = None, start: TrainedModel | None = None) -> ImageData:
        options: dict[str, Any] = {**settings.data.splitting, "assignment": run.assignment if run else None}
        source = open_with_labels(settings.data.source, **options)
        assert isinstance(settings.task, FeatureSettings)
        if settings.task.probe is None:
            return source
        labelled = open_data(settings.task.probe)
        return replace(
            source,
            classes=labelled.classes,
            multi_label=labelled.multi_label,
            splits={"train": source.split("train"), "val": labelled.split("all")},
        )

    def complete(self, settings: RunSettings, source: ImageData, start: TrainedModel | None) -> RunSettings:
        completed = super().complete(settings, source, start)
        assert isinstance(completed.task, FeatureSettings)
        task = completed.task.changed(probe=absolute(completed.task.probe))
        return completed.changed(model=completed.model.changed(num_classes=0), task=task)

    def require_learnable(self, source: ImageData) -> None:
        """Raise `DataError` where there are no training images; classes do not matter."""
        source.split("train")


def open_with_labels(source: str | Path, **options: Any) -> ImageData:
    """Open images with their labels where all images have one, else without; raises `DataError` for no images.

    In a folder of folders that is not sorted by class, reading classes would leave images out.
    """
    images = open_unlabelled(source, **options)
    try:
        labelled = open_data(source, **options)
    except DataError:
        return images
    return labelled if len(labelled.split("all")) >= len(images.split("all")) else images
