"""What a run does with images: opening and checking them, and what they decide of its settings and its model."""

import shlex
from collections.abc import Container, Iterator, Sequence
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
from vitrail.data.items import Data
from vitrail.data.readers.sources import ImageData, open_data
from vitrail.data.readers.unlabelled import open_unlabelled
from vitrail.errors import ConfigError, DataError
from vitrail.models.base import ImageModel
from vitrail.models.configs.base import ImageConfig
from vitrail.models.registry import build
from vitrail.parts import Whitening
from vitrail.runtime.observer import Observer
from vitrail.runtime.processes import Processes
from vitrail.task_registry import task_row
from vitrail.training.finetune.advice import advice_to_start
from vitrail.training.runs.data_of_model import learned_images
from vitrail.training.runs.run_folder import RunFolder
from vitrail.weights.locate import absolute
from vitrail.weights.model_folder.folder import TrainedModel
from vitrail.weights.reference import load_model, open_model
from vitrail.weights.transfer import transfer

FEW_BAD = 3
"""Images that may be left out because they cannot be read, though they are more than one in a hundred."""
FITTED = 500
"""Images that a layer which is not trained is fitted to."""


def open_start(reference: str) -> TrainedModel:
    found = open_model(reference)
    _require_vectors(found.config, "the model", where="--from")
    return found


def _require_vectors(config: ImageConfig, name: str, *, where: str) -> None:
    if config.answer != "vector":
        raise ConfigError(f"{name} gives {config.answer}, and no classes", where=where, hint="take another, or add --task pose")


def load(folder: Path) -> TrainedModel:
    return load_model(folder)


def open_source(settings: RunSettings, *, run: RunFolder | None = None, start: TrainedModel | None = None) -> ImageData:
    """The images of a run: with the labels that its task needs, or any."""
    open_images = open_data if task_row(settings.task.name).labelled else open_unlabelled
    assignment = run.assignment if run else None
    source = open_images(settings.data.source, **settings.data.splitting, assignment=assignment)
    if run:
        _require_classes(settings, source)
    return source


def complete(settings: RunSettings, source: ImageData, start: TrainedModel | None) -> RunSettings:
    """The settings with what the data decides, and with paths that hold wherever one stands.

    A head for new classes is one linear layer, whatever the model to start from has (section 3.2 of the paper).
    """
    labelled = task_row(settings.task.name).labelled
    _require_vectors(settings.model.config, settings.model.name, where="--model")
    if labelled:
        _require_classes_to_learn(source)
    source.split("train")
    model = settings.model.changed(num_classes=len(source.classes) if labelled else 0)
    head = getattr(model, "head", None)  # which not every architecture lets one choose
    if start is not None and start.labels != source.classes and head and head == getattr(start.config, "head", None):
        model = model.changed(head="linear")
    return settings.changed(
        model=model,
        data=settings.data.changed(source=source.source),
        preparation=preparation_of(settings, source),
        start=absolute(settings.start),
        distillation=settings.distillation.changed(teacher=absolute(settings.distillation.teacher)),
    )


def _require_classes_to_learn(source: ImageData) -> None:
    if len(source.classes) < 2:
        found = f"only the class {source.classes[0]!r}" if source.classes else "no class"
        raise DataError(
            f"{found} found; a classifier needs two or more",
            where=source.source,
            hint="sort the images into one folder per class: FOLDER/CLASS/image.jpg or FOLDER/train/CLASS/image.jpg",
        )
    source.split("train")
    unseen = [name for name, count in zip(source.classes, source.counts("train"), strict=True) if not count]
    if unseen:
        raise DataError(
            f"the classes {', '.join(map(repr, unseen[:8]))} have no training images",
            where=source.source,
            hint="add some, or take the classes out of the other splits",
        )


def _require_classes(settings: RunSettings, source: ImageData) -> None:
    """Refuse data with another number of classes than the run was started with."""
    if task_row(settings.task.name).labelled and len(source.classes) != settings.model.config.num_classes:
        raise DataError(
            f"the data has {len(source.classes)} classes, the run was started with {settings.model.config.num_classes}",
            where=settings.data.source,
            hint="bring the data back as it was, or train anew",
        )


def preparation_of(settings: RunSettings, source: ImageData | None = None) -> Preparation:
    """How the images of a run are prepared: as for the model it starts from, at its own size, if that sees the same colours.

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


def start_model(settings: RunSettings, start: TrainedModel | None, source: ImageData) -> ImageModel:
    model: ImageModel = build(settings.model.config)
    if start is not None:
        transfer(start.model, model, keep_head=bool(settings.model.config.num_classes) and start.labels == source.classes)
        return model
    fit_whitening(model, preparation_of(settings, source), source.split("train"))
    return model


def fit_whitening(model: nn.Module, preparation: Preparation, items: Sequence[Any]) -> None:
    """Fit the first layers of a new model that are fitted, and not trained, to some of the images to learn from."""
    for layer in model.modules():
        if isinstance(layer, Whitening):
            layer.fit(_some_images(preparation, items))


def _some_images(preparation: Preparation, items: Sequence[Any]) -> Iterator[Tensor]:
    """Training images as the model sees them, (1, C, H, W), evenly chosen."""
    for item in items[:: -(-len(items) // FITTED)]:
        with suppress(DataError):  # whose images may be left out is decided where they are read to be learned from
            yield preparation(item.image)


def check(source: Data, settings: RunSettings, observer: Observer, group: Processes) -> dict[str, str]:
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
    """The names of images that cannot be read, with the reason; raises `DataError` unless they may be left out and are few."""
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
    kind = {"people": " --task pose", "captions": " --task caption"}.get(task_row(settings.task.name).items, "")
    if settings.data.bad_images != "skip":
        more = f" (and {len(found) - 1} more {things})" if len(found) > 1 else ""
        advice = f"; --bad-images skip leaves up to {most:,} out" if len(found) <= most else ""
        raise DataError(first.what + more, where=first.where, hint=f"{first.hint}{advice}")
    if len(found) > most:
        raise DataError(
            f"{len(found):,} of {count:,} {things} {wrong}, and at most {most:,} are left out; the first: {first.what}",
            where=first.where,
            hint=f"vitrail data check {shlex.quote(str(settings.data.source))}{kind} lists them",
        )


def _most_bad(images: int) -> int:
    """Of so many images those that may be left out: one in a hundred, or a few, if they are no more than one in ten."""
    return max(images // 100, min(FEW_BAD, images // 10))


def used(source: ImageData, bad: Container[str], settings: RunSettings) -> ImageData:
    """The data without some images, by name, and with that share of the training images that the settings ask for.

    Raises:
        DataError: a class has no other training images.
    """
    source = source.without(bad)
    if bad and task_row(settings.task.name).labelled:
        _require_classes_to_learn(source)
    return learned_images(source, settings)


def advice(settings: RunSettings, source: ImageData) -> str | None:
    return advice_to_start(settings, source)


def warnings(settings: RunSettings, source: ImageData) -> list[str]:
    """Pictures that stand in two splits; classes that flips may confuse."""
    task = settings.task.name
    check = "vitrail data check" if task_row(task).labelled else f"vitrail data check --task {task}"
    found = leak_warning(source, check), flip_warning(source.classes, settings.augmentation.horizontal_flip)
    return [warning for warning in found if warning]


def files(source: ImageData) -> dict[str, bytes]:
    return {}


def card(settings: RunSettings, source: ImageData) -> dict[str, Any]:
    return {"labels": source.classes if settings.model.config.num_classes else [], "multi_label": source.multi_label}
