"""What a run needs before its first step: settings, images, model."""

import os
from collections.abc import Container
from dataclasses import replace
from pathlib import Path

from vitrail.data.decode import check_head, decode
from vitrail.data.preparation import Preparation
from vitrail.data.sources import ImageData, open_data
from vitrail.data.splits import Assignment, share_of
from vitrail.data.transform import Transform
from vitrail.data.unlabelled import open_unlabelled
from vitrail.errors import ConfigError, DataError
from vitrail.files import path_of
from vitrail.models.base import ImageModel
from vitrail.models.registry import build
from vitrail.runtime.observer import Observer
from vitrail.runtime.processes import Processes
from vitrail.tasks.registry import task_row
from vitrail.training.batch_size import largest_batch_size
from vitrail.training.configuration import Values
from vitrail.training.request import Request
from vitrail.training.run_files import BAD_IMAGES
from vitrail.training.run_folder import RunFolder
from vitrail.training.settings import RunSettings
from vitrail.training.trainer import Trainer
from vitrail.weights.folder import TrainedModel
from vitrail.weights.reference import open_model
from vitrail.weights.transfer import transfer

FEW_BAD = 3
"""Images that may be left out because they cannot be read, though they are more than one in a hundred."""


def resolve_run(recipe: str | None, config: Path | None, settings: Values) -> tuple[RunSettings, TrainedModel | None]:
    """The complete settings of a run, and the model it starts from, if it does."""
    asked = Request.read(recipe, config, settings)
    if asked.start is None:
        return asked.settings(), None
    start = open_model(asked.start)
    return asked.settings(start.model.config).changed(preparation=start.preparation), start


def complete(settings: RunSettings, source: ImageData, start: TrainedModel | None) -> RunSettings:
    """The settings with what the data decides, and with paths that hold wherever one stands.

    A head for new classes is one linear layer, whatever the model to start from has (section 3.2 of the paper).
    """
    labelled = task_row(settings.task.name).labelled
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
        preparation=preparation_of(settings),
        start=_absolute(settings.start),
        distillation=settings.distillation.changed(teacher=_absolute(settings.distillation.teacher)),
    )


def _require_classes_to_learn(source: ImageData) -> None:
    if len(source.classes) < 2:
        raise DataError(
            f"only the class {source.classes[0]!r} found; a classifier needs two or more",
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


def open_source(settings: RunSettings, *, assignment: Assignment | None = None) -> ImageData:
    """The images of a run: with the labels that its task needs, or any."""
    open_images = open_data if task_row(settings.task.name).labelled else open_unlabelled
    return open_images(settings.data.source, split_seed=settings.data.split_seed, assignment=assignment)


def require_classes(settings: RunSettings, source: ImageData) -> None:
    """Refuse data with another number of classes than the run was started with."""
    if task_row(settings.task.name).labelled and len(source.classes) != settings.model.config.num_classes:
        raise DataError(
            f"the data has {len(source.classes)} classes, the run was started with {settings.model.config.num_classes}",
            where=settings.data.source,
            hint="bring the data back as it was, or train anew",
        )


def _absolute(reference: str | None) -> str | None:
    """A MODEL as an absolute path; a hub id is left as it is."""
    if reference is None or not os.path.exists(path_of(reference)):
        return reference
    return str(path_of(reference).resolve())


def require_transform(settings: RunSettings, transform: Transform | None) -> None:
    """A run whose settings speak of a transform needs it, and one that was started without it cannot take one up."""
    if bool(settings.transform) != (transform is not None):
        raise ConfigError(
            f"the run was started with the transform {settings.transform}" if settings.transform else "the run has no transform",
            where="transform",
            hint="give in Python what the run was started with: vitrail.resume(RUN, transform=…), or leave it out",
        )


def preparation_of(settings: RunSettings) -> Preparation:
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


def open_teacher(settings: RunSettings) -> TrainedModel | None:
    reference = settings.distillation.teacher
    return None if reference is None else open_model(reference)


def start_model(settings: RunSettings, start: TrainedModel | None, labels: list[str]) -> ImageModel:
    model: ImageModel = build(settings.model.config)
    if start is not None:
        transfer(start.model, model, keep_head=bool(settings.model.config.num_classes) and start.labels == labels)
    return model


def check_images(source: ImageData, settings: RunSettings, observer: Observer, group: Processes) -> dict[str, str]:
    """Look at every image, so that one that is none stops a run at its beginning, not at its end.

    Of a file its head is read; where images that cannot be read are to be left out, all of it. These are returned by their
    names, with the reason.
    """
    skip, items = settings.data.bad_images == "skip", source.split("all")
    observer.begin("reading images" if skip else "checking images", len(items))
    damaged: list[tuple[str, DataError]] = []
    for item in group.part(items):
        try:
            decode(item.image) if skip else check_head(item.image)
        except DataError as error:
            damaged.append((item.name, error))
        observer.advance(group.count)
    found = [one for part in group.all_gather(damaged) for one in part]
    if not found:
        return {}
    first, most = found[0][1], _most_bad(len(items))
    if not skip:
        more = f" (and {len(found) - 1} more images)" if len(found) > 1 else ""
        advice = f"; --bad-images skip leaves up to {most:,} out" if len(found) <= most else ""
        raise DataError(first.what + more, where=first.where, hint=f"{first.hint}{advice}")
    if len(found) > most:
        raise DataError(
            f"{len(found):,} of {len(items):,} images cannot be read, and at most {most:,} are left out; the first: {first.what}",
            where=first.where,
            hint="vitrail data check lists them",
        )
    observer.note(f"{len(found):,} of {len(items):,} images cannot be read and are left out; {BAD_IMAGES} lists them")
    return {name: error.what for name, error in found}


def _most_bad(images: int) -> int:
    """Of so many images those that may be left out: one in a hundred, or a few, if they are no more than one in ten."""
    return max(images // 100, min(FEW_BAD, images // 10))


def with_batch_size(
    settings: RunSettings, source: ImageData, teacher: TrainedModel | None, observer: Observer, group: Processes
) -> RunSettings:
    """The settings with a number for the batch size, which each process finds for its share of the batch."""
    if settings.training.batch_size != "auto":
        return settings
    preparation, nowhere = preparation_of(settings), RunFolder(Path(), writes=False)

    def with_batch(size: int) -> RunSettings:
        return settings.changed(training=settings.training.changed(batch_size=size))

    def make(size: int) -> Trainer:
        return Trainer(with_batch(size), build(settings.model.config), preparation, source, nowhere, teacher=teacher)

    with group.together():
        share = largest_batch_size(make, -(-len(source.split("train")) // group.count), on_message=observer.note)
    (smallest,) = group.all_reduce_max(-share)
    observer.note(f"batch size {-smallest * group.count}")
    return with_batch(-smallest * group.count)


def used(source: ImageData, bad: Container[str], settings: RunSettings) -> ImageData:
    """The data without some images, by name, and with that share of the training images that the settings ask for.

    Raises:
        DataError: a class has no other training images.
    """
    splits = {split: [item for item in items if item.name not in bad] for split, items in source.splits.items()}
    if bad and task_row(settings.task.name).labelled:
        _require_classes_to_learn(replace(source, splits=splits))
    if settings.data.train_share < 1:
        splits["train"] = share_of(splits["train"], settings.data.train_share, settings.data.split_seed)
    return replace(source, splits=splits)
