"""Whole images as the data of a run: opening and checking them, and what they decide of its settings and its model."""

from collections.abc import Container, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from torch import Tensor, nn

from vitrail.config.run_files import BAD_IMAGES
from vitrail.config.settings import RunSettings
from vitrail.data.checks.duplicates import leak_warning
from vitrail.data.checks.mirror_check import flip_warning
from vitrail.data.images.decode import Source, check_head, decode
from vitrail.data.images.preparation import Preparation
from vitrail.data.items import Data, ImageData
from vitrail.data.readers.sources import open_data
from vitrail.data.readers.unlabelled import open_unlabelled
from vitrail.data.splits import share_of
from vitrail.errors import ConfigError, DataError
from vitrail.models.base import ImageModel
from vitrail.models.configs.base import ImageConfig
from vitrail.models.registry import build
from vitrail.parts import Whitening
from vitrail.runtime.observer import Observer
from vitrail.runtime.processes import Processes
from vitrail.task_registry import ROWS
from vitrail.training.run_data import RunData, check_command
from vitrail.training.runs.run_folder import RunFolder
from vitrail.weights.locate import absolute
from vitrail.weights.model_folder.folder import TrainedModel
from vitrail.weights.reference import open_model
from vitrail.weights.transfer import transfer

FEW_BAD = 3
"""Images that may be left out because they cannot be read, though they are more than one in a hundred."""
FITTED = 500
"""Images that a layer which is not trained is fitted to."""


class ImageRunData(RunData):
    """Whole images as the data of a run, with labels or without, as the row of its task says."""

    def open_start(self, reference: str) -> TrainedModel:
        found = open_model(reference)
        self._require_kind(found.config, "the model", where="--from")
        return found

    def open_source(self, settings: RunSettings, *, run: RunFolder | None = None, start: TrainedModel | None = None) -> ImageData:
        assignment = run.assignment if run else None
        source = open_images(self.row.labels, settings.data.source, **settings.data.splitting, assignment=assignment)
        if run:
            self.require_same_classes(settings, source)
        return source

    def _require_kind(self, config: ImageConfig, name: str, *, where: str) -> None:
        if config.answer != self.row.answers:
            fitting = next((row.name for row in ROWS if (row.reads, row.answers) == (config.reads, config.answer)), None)
            hint = f"take another, or add --task {fitting}"
            raise ConfigError(f"{name} gives {config.answer}; the task needs {self.row.answers}", where=where, hint=hint)

    def require_same_classes(self, settings: RunSettings, source: ImageData) -> None:
        """Refuse data with another number of classes than the run was started with; raises `DataError`."""

    def require_learnable(self, source: ImageData) -> None:
        """Refuse data that nothing can be learned from; raises `DataError`."""
        source.split("train")

    def classes_to_learn(self, source: ImageData) -> int:
        """Return the number of classes that the model has a head for."""
        return 0

    def complete(self, settings: RunSettings, source: ImageData, start: TrainedModel | None) -> RunSettings:
        """Return the settings with what the data decides, and with paths that hold wherever one stands.

        A head for new classes is one linear layer, whatever the model to start from has (section 3.2 of the paper).
        """
        self._require_kind(settings.model.config, settings.model.name, where="--model")
        self.require_learnable(source)
        model = settings.model.changed(num_classes=self.classes_to_learn(source))
        head = getattr(model, "head", None)  # which not every architecture lets one choose
        if start is not None and start.labels != source.classes and head and head == getattr(start.config, "head", None):
            model = model.changed(head="linear")
        return settings.changed(
            model=model,
            data=settings.data.changed(source=source.source),
            preparation=self.preparation_of(settings, source),
            start=absolute(settings.start),
            distillation=settings.distillation.changed(teacher=absolute(settings.distillation.teacher)),
        )

    def check(self, source: ImageData, settings: RunSettings, observer: Observer, group: Processes) -> dict[str, str]:
        return check_images(source, settings, observer, group)

    def used(self, source: ImageData, bad: Container[str], settings: RunSettings) -> ImageData:
        """Return the data without some images, by name, and with the share of the training images that the settings ask for.

        Raises:
            DataError: what is left cannot be learned from.
        """
        source = source.without(bad)
        if bad:
            self.require_learnable(source)
        return learned_images(source, settings)

    def warnings(self, settings: RunSettings, source: ImageData) -> list[str]:
        """Return a line for pictures that stand in two splits, and one for classes that flips may confuse."""
        leak = leak_warning(source, check_command(settings, source=False))
        found = leak, flip_warning(source.classes, settings.augmentation.horizontal_flip)
        return [warning for warning in found if warning]

    def preparation_of(self, settings: RunSettings, source: Any) -> Preparation:
        return preparation_of(settings)

    def start_model(self, settings: RunSettings, start: TrainedModel | None, source: ImageData) -> ImageModel:
        model: ImageModel = build(settings.model.config)
        if start is not None:
            transfer(start.model, model, keep_head=bool(settings.model.config.num_classes) and start.labels == source.classes)
            return model
        fit_whitening(model, self.preparation_of(settings, source), source.split("train"))
        return model

    def card(self, settings: RunSettings, source: ImageData) -> dict[str, Any]:
        return {"labels": source.classes if settings.model.config.num_classes else [], "multi_label": source.multi_label}


class LabelledRunData(ImageRunData):
    """Images and their classes as the data of a run."""

    def classes_to_learn(self, source: ImageData) -> int:
        return len(source.classes)

    def require_learnable(self, source: ImageData) -> None:
        """Refuse data of less than two classes, or with a class that has no training images; raises `DataError`."""
        if len(source.classes) < 2:
            found = f"only the class {source.classes[0]!r}" if source.classes else "no class"
            raise DataError(
                f"{found} found; a classifier needs two or more",
                where=source.source,
                hint="sort the images into one folder per class: FOLDER/CLASS/image.jpg or FOLDER/train/CLASS/image.jpg",
            )
        super().require_learnable(source)
        unseen = [name for name, count in zip(source.classes, source.counts("train"), strict=True) if not count]
        if unseen:
            raise DataError(
                f"the classes {', '.join(map(repr, unseen[:8]))} have no training images",
                where=source.source,
                hint="add some, or take the classes out of the other splits",
            )

    def require_same_classes(self, settings: RunSettings, source: ImageData) -> None:
        if len(source.classes) != settings.model.config.num_classes:
            raise DataError(
                f"the data has {len(source.classes)} classes, the run was started with {settings.model.config.num_classes}",
                where=settings.data.source,
                hint="bring the data back as it was, or train anew",
            )


def open_images(labels: Literal["required", "optional", "none"], source: str | Path, **options: Any) -> ImageData:
    """Open images with the ``labels`` that a task needs, with those that there are, or without; raises `DataError`.

    Options are those of `vitrail.data.readers.sources.open_data`.
    """
    if labels == "none":
        return open_unlabelled(source, **options)
    try:
        return open_data(source, **options)
    except DataError:
        if labels == "required":
            raise
        return open_unlabelled(source, **options)


def learned_images(source: ImageData, settings: RunSettings) -> ImageData:
    """Return the data with the share of its training images, of every class alike, that the settings ask for."""
    if settings.data.train_share == 1:
        return source
    kept = share_of(source.splits["train"], settings.data.train_share, settings.data.split_seed)
    return replace(source, splits={**source.splits, "train": kept})


def preparation_of(settings: RunSettings) -> Preparation:
    """Return how the images of a run are prepared: as for the model to start from, at its own size, if it sees the same colours.

    The crop is rounded as transformers rounds it, so that its processors prepare images for the saved model just so.
    """
    model, crop_ratio = settings.model.config, settings.data.crop_ratio
    size, channels = model.image_size, model.channels
    theirs = settings.preparation
    if theirs is None or theirs.channels != channels:
        return Preparation.standard(size, channels, crop_ratio or 1.0, crop_rounding="down")
    if crop_ratio is None:
        return theirs.at(size).changed(crop_rounding="down")
    colours = {"mean": theirs.mean, "std": theirs.std, "resampling": theirs.resampling}
    return Preparation.standard(size, channels, crop_ratio, crop_rounding="down", **colours)


def fit_whitening(model: nn.Module, preparation: Preparation, items: Sequence[Any]) -> None:
    """Fit the first layers of a new model that are fitted, and not trained, to some of the images to learn from."""
    for layer in model.modules():
        if isinstance(layer, Whitening):
            layer.fit(_some_images(preparation, items))


def _some_images(preparation: Preparation, items: Sequence[Any]) -> Iterator[Tensor]:
    """Yield training images as the model sees them, (1, C, H, W), evenly chosen."""
    for item in items[:: -(-len(items) // FITTED)]:
        with suppress(DataError):  # whose images may be left out is decided where they are read to be learned from
            yield preparation(item.image)


def check_images(source: Data, settings: RunSettings, observer: Observer, group: Processes) -> dict[str, str]:
    """Look at every image, so that one that is none stops a run at its beginning, not at its end.

    Of a file its head is read; where images that cannot be read are to be left out, all of it. These are returned by their
    names, with the reason.
    """
    items = source.split("all")
    found = unreadable([(item.name, item.image) for item in items], settings, observer, group)
    if found:
        observer.note(f"{len(found):,} of {len(items):,} images cannot be read and are left out; {BAD_IMAGES} lists them")
    return {name: error.what for name, error in found}


def unreadable(
    images: Sequence[tuple[str, Source]], settings: RunSettings, observer: Observer, group: Processes
) -> list[tuple[str, DataError]]:
    """Return the names of images that cannot be read, and why; raises `DataError` unless they may be left out and are few."""
    skip = settings.data.bad_images == "skip"
    observer.begin("reading images" if skip else "checking images", len(images))
    damaged: list[tuple[str, DataError]] = []
    for name, image in group.part(images):
        try:
            decode(image) if skip else check_head(image)
        except DataError as error:
            damaged.append((name, error))
        observer.advance(group.count)
    found = group.gathered(damaged)
    require_few_bad([error for _, error in found], len(images), settings)
    return found


def require_few_bad(
    found: list[DataError], count: int, settings: RunSettings, *, things: str = "images", wrong: str = "cannot be read"
) -> None:
    """Refuse data of so many ``things`` of which some are ``wrong``, unless these may be left out and are few.

    Raises:
        DataError: what is wrong with the first.
    """
    if not found:
        return
    first, most = found[0], _most_bad(count)
    if settings.data.bad_images != "skip":
        more = f" (and {len(found) - 1} more {things})" if len(found) > 1 else ""
        advice = f"; --bad-images skip leaves up to {most:,} out" if len(found) <= most else ""
        raise DataError(first.what + more, where=first.where, hint=f"{first.hint}{advice}")
    if len(found) > most:
        raise DataError(
            f"{len(found):,} of {count:,} {things} {wrong}, and at most {most:,} are left out; the first: {first.what}",
            where=first.where,
            hint=f"{check_command(settings)} lists them",
        )


def _most_bad(images: int) -> int:
    """Return how many of the ``images`` may be left out: one in a hundred, or a few, if they are no more than one in ten."""
    return max(images // 100, min(FEW_BAD, images // 10))
