"""Data of runs on whole images: opening and checking them, and the settings and model that follow from them."""

from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

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
from vitrail.models.configs.base import ModelConfig
from vitrail.models.registry import build
from vitrail.parts import Whitening
from vitrail.runtime.observer import Observer
from vitrail.runtime.processes import Processes
from vitrail.task_registry import Labels, row_of_kind
from vitrail.training.run_data import RunData, check_command, learned_from
from vitrail.training.runs.run_folder import RunFolder
from vitrail.weights.locate import absolute
from vitrail.weights.model_folder.folder import TrainedModel
from vitrail.weights.reference import open_model
from vitrail.weights.transfer import transfer

FEW_BAD = 3
"""Number of unreadable images that may be skipped, even if they are more than one in a hundred."""
FITTED = 500
"""Number of images that whitening filters are computed from."""


class ImageRunData(RunData):
    """Data of a run on whole images, with classes if the task requires labels."""

    def open_start(self, reference: str) -> TrainedModel:
        start = open_model(reference)
        self._require_kind(start.config, "the model", where="--from")
        return start

    def open_source(self, settings: RunSettings, *, run: RunFolder | None = None, start: TrainedModel | None = None) -> ImageData:
        assignment = run.assignment if run else None
        source = open_images(self.labels_for(settings), settings.data.source, **settings.data.splitting, assignment=assignment)
        if run and self.row.labels != "none" and len(source.classes) != settings.model.config.num_classes:
            raise DataError(
                f"the data has {len(source.classes)} classes, the run was started with {settings.model.config.num_classes}",
                where=settings.data.source,
                hint="restore the data of the run, or train a new model",
            )
        return source

    def labels_for(self, settings: RunSettings) -> Labels:
        """Return whether images need labels: as in the task registry, unless the run excludes them."""
        return self.row.labels

    def complete(self, settings: RunSettings, source: ImageData, start: TrainedModel | None) -> RunSettings:
        """Return the settings completed from the data, with absolute paths.

        A head for new classes is one linear layer, whatever head the model to start from has (section 3.2 of the paper).
        """
        self._require_kind(settings.model.config, settings.model.name, where="--model")
        self.require_learnable(source)
        model = settings.model.changed(num_classes=len(source.classes) if self.row.labels != "none" else 0)
        head = getattr(model, "head", None)  # not every architecture has the field
        if start is not None and start.labels != source.classes and head and head == getattr(start.config, "head", None):
            model = model.changed(head="linear")
        return settings.changed(
            model=model,
            data=settings.data.changed(source=source.source),
            preparation=self.preparation_of(settings, source),
            start=absolute(settings.start),
            distillation=settings.distillation.changed(teacher=absolute(settings.distillation.teacher)),
        )

    def _require_kind(self, config: ModelConfig, name: str, *, where: str) -> None:
        if config.answer != self.row.answers:
            hint = f"take another model, or add --task {row_of_kind(config.reads, config.answer).name}"
            raise ConfigError(f"{name} outputs {config.answer}; the task needs {self.row.answers}", where=where, hint=hint)

    def check(self, source: ImageData, settings: RunSettings, observer: Observer, group: Processes) -> dict[str, str]:
        return check_images(source, settings, observer, group)

    def used(self, source: ImageData, bad: Container[str], settings: RunSettings) -> ImageData:
        """Return the data without the ``bad`` images, and with the requested fraction of each class's training images.

        Raises:
            DataError: the remaining data is not enough to train on.
        """
        source = source.without(bad)
        if bad:
            self.require_learnable(source)
        used: ImageData = learned_from(source, settings, share_of)
        return used

    def require_learnable(self, source: ImageData) -> None:
        """Raise `DataError` for no training images, fewer than two classes, or a class without training images."""
        if self.row.labels == "required" and len(source.classes) < 2:
            classes = f"only the class {source.classes[0]!r}" if source.classes else "no class"
            raise DataError(
                f"{classes} found; a classifier needs at least two classes",
                where=source.source,
                hint="sort the images into one folder per class: FOLDER/CLASS/image.jpg or FOLDER/train/CLASS/image.jpg",
            )
        source.split("train")
        counts = zip(source.classes, source.counts("train"), strict=True) if self.row.labels != "none" else ()
        if unseen := [name for name, count in counts if not count]:
            raise DataError(
                f"the classes {', '.join(map(repr, unseen[:8]))} have no training images",
                where=source.source,
                hint="add some, or remove these classes from the other splits",
            )

    def warnings(self, settings: RunSettings, source: ImageData) -> list[str]:
        """Return warnings: for images that are in two splits, and for classes that horizontal flips may confuse."""
        leak = leak_warning(source, check_command(settings, source=False))
        lines = leak, flip_warning(source.classes, settings.augmentation.horizontal_flip)
        return [line for line in lines if line]

    def preparation_of(self, settings: RunSettings, source: Any) -> Preparation:
        return preparation_of(settings)

    def start_model(self, settings: RunSettings, start: TrainedModel | None, source: ImageData) -> ImageModel:
        model: ImageModel = build(settings.model.config)
        if start is None:
            fit_whitening(model, self.preparation_of(settings, source), source.split("train"))
        else:
            transfer(start.model, model, keep_head=bool(settings.model.config.num_classes) and start.labels == source.classes)
        return model

    def card(self, settings: RunSettings, source: ImageData) -> dict[str, Any]:
        return {"labels": source.classes if settings.model.config.num_classes else [], "multi_label": source.multi_label}


def open_images(labels: Labels, source: str | Path, **options: Any) -> ImageData:
    """Open images for a task whose ``labels`` are required, optional or none; raises `DataError`.

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


def preparation_of(settings: RunSettings) -> Preparation:
    """Return the preparation of images: that of the model to start from, at the run's size, if the number of channels is equal.

    The crop is rounded as transformers rounds it, so that its processors prepare images for the saved model in the same way.
    """
    model, crop_ratio = settings.model.config, settings.data.crop_ratio
    size, channels = model.image_size, model.channels
    start = settings.preparation
    if start is None or start.channels != channels:
        return Preparation.standard(size, channels, crop_ratio or 1.0, crop_rounding="down")
    if crop_ratio is None:
        return start.at(size).changed(crop_rounding="down")
    colours = {"mean": start.mean, "std": start.std, "resampling": start.resampling}
    return Preparation.standard(size, channels, crop_ratio, crop_rounding="down", **colours)


def fit_whitening(model: nn.Module, preparation: Preparation, items: Sequence[Any]) -> None:
    """Compute the whitening filters of a new model, which are not trained, from some of the training images."""

    def images() -> Iterator[Tensor]:
        for item in items[:: -(-len(items) // FITTED)]:
            with suppress(DataError):  # unreadable images are reported by the check before training
                yield preparation(item.image)  # (1, C, H, W)

    for layer in model.modules():
        if isinstance(layer, Whitening):
            layer.fit(images())


def check_images(
    source: Data,
    settings: RunSettings,
    observer: Observer,
    group: Processes,
    *,
    also: Callable[[str], object] = lambda name: None,
) -> dict[str, str]:
    """Check every image, and return those that cannot be read and are skipped: the reasons by name.

    A bad image thus stops a run at its beginning, not at its end. The check reads the head of each file, or all of it if
    unreadable images are to be skipped. ``also`` checks more of the item of a name; it raises `DataError`.
    """
    items = source.split("all")
    bad = unreadable([(item.name, item.image) for item in items], settings, observer, group, also=also)
    if bad:
        observer.note(f"{len(bad):,} of {len(items):,} images cannot be read and are left out; {BAD_IMAGES} lists them")
    return {name: error.what for name, error in bad}


def unreadable(
    images: Sequence[tuple[str, Source]],
    settings: RunSettings,
    observer: Observer,
    group: Processes,
    *,
    also: Callable[[str], object] = lambda name: None,
) -> list[tuple[str, DataError]]:
    """Return the names and errors of images that cannot be read; raises `DataError` unless they are few and skipped.

    ``also`` checks more of the item of a name; see `check_images`.
    """
    skip = settings.data.bad_images == "skip"
    observer.begin("reading images" if skip else "checking images", len(images))
    own: list[tuple[str, DataError]] = []
    for name, image in group.part(images):
        try:
            decode(image) if skip else check_head(image)
            also(name)
        except DataError as error:
            own.append((name, error))
        observer.advance(group.count)
    bad = group.gathered(own)
    require_few_bad([error for _, error in bad], len(images), settings)
    return bad


def require_few_bad(
    errors: list[DataError], count: int, settings: RunSettings, *, things: str = "images", wrong: str = "cannot be read"
) -> None:
    """Raise `DataError` if some of ``count`` things are ``wrong``, unless they are few and the run skips them.

    Raises:
        DataError: the first of the ``errors``.
    """
    if not errors:
        return
    first, most = errors[0], max(count // 100, min(FEW_BAD, count // 10))
    if settings.data.bad_images != "skip":
        more = f" (and {len(errors) - 1} more {things})" if len(errors) > 1 else ""
        advice = f"; --bad-images skip leaves up to {most:,} out" if len(errors) <= most else ""
        raise DataError(first.what + more, where=first.where, hint=f"{first.hint}{advice}")
    if len(errors) > most:
        what = f"{len(errors):,} of {count:,} {things} {wrong}, and at most {most:,} are left out; the first: {first.what}"
        raise DataError(what, where=first.where, hint=f"{check_command(settings)} lists them")
