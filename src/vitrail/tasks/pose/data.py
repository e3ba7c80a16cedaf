"""Data of training runs and evaluations of pose estimation: opening, checking, and settings that depend on it."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from vitrail.checks import refuse_given
from vitrail.config.run_files import BAD_IMAGES
from vitrail.config.settings import RunSettings
from vitrail.data.checks.duplicates import leak_warning
from vitrail.data.images.box_preparation import BoxPreparation, in_view
from vitrail.errors import ConfigError, DataError
from vitrail.files import path_of
from vitrail.models.base import ImageModel
from vitrail.models.registry import build
from vitrail.runtime.observer import Note, Observer
from vitrail.runtime.processes import Processes
from vitrail.task_registry import task_row
from vitrail.tasks.pose.files.sources import open_people
from vitrail.tasks.pose.metrics import coco_eval
from vitrail.tasks.pose.people.dataset import tilt, torso_of
from vitrail.tasks.pose.people.people import PeopleData
from vitrail.tasks.pose.people.skeleton import OF_DATA, Skeleton
from vitrail.tasks.pose.settings import PoseSettings
from vitrail.tasks.pose.weights import TrainedPose, require_poses
from vitrail.training.images import fit_whitening, require_few_bad, unreadable
from vitrail.training.run_data import RunData, check_command
from vitrail.training.runs.data_of_model import own_run
from vitrail.training.runs.run_folder import RunFolder
from vitrail.weights.locate import absolute
from vitrail.weights.model_folder.folder import TrainedModel
from vitrail.weights.reference import load_model
from vitrail.weights.transfer import transfer

LEANING, LEAN = 45, 0.2
"""Tilt in degrees above which a person leans, and the fraction of leaning people from which on all are turned upright."""


class PoseData(RunData):
    """People in images as the data of a run."""

    def load(self, folder: Path) -> TrainedPose:
        return require_poses(load_model(folder), folder)

    def open_source(
        self, settings: RunSettings, *, run: RunFolder | None = None, start: TrainedModel | None = None
    ) -> PeopleData:
        """Open the people of a run, with a note if the model to start from has other joints."""
        task, data = _task(settings), settings.data
        assignment = run.assignment if run else None
        refuse_given("people are split by picture", {"--data.group": data.group is not None})
        source = open_people(data.source, skeleton=task.skeleton, boxes=task.boxes, **data.splitting, assignment=assignment)
        if isinstance(start, TrainedPose) and not start.skeleton.is_like(source.skeleton):
            how = start.skeleton.difference(source.skeleton)
            kept = ", but for the layers before its last" if _enlarges_alike(start, settings) else ""
            note = f"the data has other joints than the model to start from ({how}): its decoder is trained from scratch{kept}"
            source = replace(source, notes=(*source.notes, note))
        return source

    def complete(self, settings: RunSettings, source: PeopleData, start: TrainedModel | None) -> RunSettings:
        """Return the settings completed from the data, with absolute paths."""
        require_of_people(settings)
        coco_eval()  # raises now instead of hours later in the report
        source.split("train")
        task = _task(settings)
        boxes = task.boxes if task.boxes in OF_DATA else os.path.abspath(path_of(task.boxes))
        return settings.changed(
            task=task.changed(skeleton=source.skeleton, boxes=boxes),
            model=settings.model.changed(num_classes=len(source.skeleton.joints)),
            data=settings.data.changed(source=source.source),
            preparation=self.preparation_of(settings, source),
            start=absolute(settings.start),
        )

    def check(self, source: PeopleData, settings: RunSettings, observer: Observer, group: Processes) -> dict[str, str]:
        """Check every image, and return people to skip by name: those in unreadable images or without a joint in their box."""
        people = source.split("all")
        pictures = {str(person.image): person.image for person in people}
        found = dict(unreadable(list(pictures.items()), settings, observer, group))
        unseen = _unseen(source, self.preparation_of(settings, source))
        require_few_bad(list(unseen.values()), len(people), settings, things="people", wrong="have no joint in their box")
        bad = {person.name: found[str(person.image)].what for person in people if str(person.image) in found}
        bad |= {name: error.what for name, error in unseen.items()}
        if bad:
            what = f"{len(bad):,} people are in images that cannot be read, or have no joint in their box, and are left out"
            observer.note(f"{what}; {BAD_IMAGES} lists them")
        return bad

    def warnings(self, settings: RunSettings, source: PeopleData) -> list[str]:
        """Return a warning about images in two splits, and `warnings_at_a_glance`."""
        leak = leak_warning(source, check_command(settings, source=False))
        return [*([leak] if leak else []), *warnings_at_a_glance(settings, source)]

    def preparation_of(self, settings: RunSettings, source: PeopleData) -> BoxPreparation:
        """Return the preparation of people, normalised as in the model to start from, if there is one."""
        model, theirs, task = settings.model.config, settings.preparation, _task(settings)
        own = {name: value for name in ("box_scale", "smaller_sizes", "smoothing") if (value := getattr(task, name)) is not None}
        if isinstance(theirs, BoxPreparation):
            if theirs.channels != model.channels:
                usual = BoxPreparation.of_size(model.image_size, model.channels)
                theirs = theirs.changed(channels=usual.channels, mean=usual.mean, std=usual.std)
            upright = _upright(settings, source) if task.upright != "auto" else theirs.upright and _square(model)
            return theirs.changed(image_size=model.image_size, resize_size=model.image_size, upright=upright, **own)
        colours = {} if theirs is None or theirs.channels != model.channels else {"mean": theirs.mean, "std": theirs.std}
        return BoxPreparation.of_size(model.image_size, model.channels, upright=_upright(settings, source), **colours, **own)

    def start_model(self, settings: RunSettings, start: TrainedModel | None, source: PeopleData) -> ImageModel:
        model: ImageModel = build(settings.model.config)
        if start is not None:
            same = isinstance(start, TrainedPose) and start.skeleton.is_like(source.skeleton)
            transfer(start.model, model, keep_head=same)
            if isinstance(start, TrainedPose) and not same and _enlarges_alike(start, settings):
                enlarging = "decoder.enlarge"
                model.get_submodule(enlarging).load_state_dict(start.model.get_submodule(enlarging).state_dict())
        else:
            fit_whitening(model, self.preparation_of(settings, source), source.split("train"))
        return model

    def card(self, settings: RunSettings, source: PeopleData) -> dict[str, Any]:
        return {"labels": [], "joints": source.skeleton.joints}


DATA = PoseData(task_row("pose"))


def _enlarges_alike(start: TrainedPose, settings: RunSettings) -> bool:
    """Return True if the decoder's layers before the last, which are shared by all joints, fit the model to start from."""
    configs = settings.model.config, start.model.config
    ours, theirs = ((getattr(config, "decoder", None), getattr(config, "decoder_dim", 0)) for config in configs)
    return ours == theirs and ours[0] == "classic"


def open_people_for(
    skeleton: Skeleton, reference: object, data: str | Path | None, split: str | None, note: Note
) -> tuple[PeopleData, str, PoseSettings]:
    """Open people to evaluate a model with this skeleton, by default a run's own; return them, their split and the settings.

    Raises:
        DataError: there are no people, or their joints differ from the skeleton's.
        ConfigError: no data is given, and the model is not a run.
    """
    run, own = own_run(reference, data)
    if data is None and run is None:
        raise ConfigError("no data given", where="--data", hint="give people to evaluate on: --data keypoints.json")
    task = _task(run.settings) if run else PoseSettings()
    if run and own:
        source = DATA.used(DATA.open_source(run.settings, run=run), run.bad_images, run.settings)
    else:
        source = open_people(str(data), like=skeleton, boxes=task.boxes if task.boxes in OF_DATA else "annotations")
    if not source.skeleton.is_like(skeleton):
        what = f"the data has the joints {', '.join(source.skeleton.joints)}, the model {', '.join(skeleton.joints)}"
        raise DataError(what, where=source.source, hint="give data with the model's joints, in their order")
    source.tell(note)
    return source, split or (source.evaluation_split if own or source.has_splits else "all"), task


def _upright(settings: RunSettings, source: PeopleData) -> bool:
    """Return True if people are turned upright: by the settings, or if many lean and the model is square."""
    config, upright, torso = settings.model.config, _task(settings).upright, torso_of(source.skeleton)
    possible = all(ends.any() for ends in torso) and _square(config)
    if upright == "always" and not possible:
        what = "people can be turned upright by shoulders and hips alone, for a model of square images and square patches"
        hint = "give --image-size 224, and name the joints such as left_hip; or leave it out"
        raise ConfigError(what, where="task.upright", hint=hint)
    if upright != "auto" or not possible:
        return upright == "always"
    tilts = [abs(tilt(person.joints, torso)) for person in source.splits["train"]]
    return bool(tilts) and sum(angle > LEANING for angle in tilts) >= LEAN * len(tilts)


def _square(config: Any) -> bool:
    return len(set(config.image_size)) == len(set(config.grid)) == 1


def require_of_people(settings: RunSettings) -> None:
    """Raise `ConfigError` for settings that do not apply to pose estimation."""
    a = settings.augmentation
    refused = {
        "augmentation.crop": a.crop != "none",
        "augmentation.mixup, augmentation.cutmix": a.mixes,
        "augmentation.repeats": a.repeats > 1,
        "data.crop_ratio": settings.data.crop_ratio is not None,
        "--batch-size auto": settings.training.batch_size == "auto",
        "training.probe": settings.training.probe,
        "transform": bool(settings.transform),
    }
    refuse_given("it does not go with joints", refused)
    others = {"--teacher": settings.distillation.has_teacher, "--balance": settings.data.balance != "none"}
    refuse_given("pose estimation has no classes and no teacher", others)
    if getattr(settings.model.config, "answer", "") != "heatmaps":
        hint = "take one of those that vitrail models lists for poses, or start from a ViT with --from"
        raise ConfigError(f"{settings.model.name} gives no heatmaps", where="--model", hint=hint)


def _unseen(source: PeopleData, preparation: BoxPreparation) -> dict[str, DataError]:
    """Return errors for people without an annotated joint inside the model's input, by name: their heatmaps would be empty."""
    found = {}
    for person in source.split("all"):
        joints, seen = person.joints, person.joints[:, 2] > 0
        places = preparation.warp(person.target.box).inside(joints[:, :2])
        if not (seen & in_view(places, preparation.image_size)).any():
            number = int(seen.argmax())
            what = f"the joint {source.skeleton.joints[number]!r} and all other annotated joints lie outside the box"
            found[person.name] = DataError(what, where=person.name, hint="correct the box, or take task.boxes joints")
    return found


def warnings_at_a_glance(settings: RunSettings, source: PeopleData) -> list[str]:
    """Return notes on people turned upright, missing left-right pairs, and missing validation people."""
    found = []
    if DATA.preparation_of(settings, source).upright:
        what = "people are turned upright to be learned from, and every box is looked at in eight turns afterwards"
        found.append(f"{what}, in eight times the time: --task.upright never does not")
    if settings.augmentation.horizontal_flip and (what := _without_pairs(source.skeleton)):
        found.append(f"warning: images are mirrored, and {what}; give task.skeleton.pairs, or --no-flip")
    if not source.splits["val"]:
        found.append("warning: there is nobody to validate on but those who are learned from: scores will be too good")
    return found


def _without_pairs(skeleton: Skeleton) -> str:
    """Return a clause on joints that seem to lack a left-right counterpart; "" if there are none."""
    if unpaired := skeleton.unpaired:
        others = " and others" if len(unpaired) > 8 else ""
        return f"joints that are called left or right are in no pair: {', '.join(map(repr, unpaired[:8]))}{others}"
    return "" if skeleton.pairs else "no joint is on one side of the body, by its name"


def _task(settings: RunSettings) -> PoseSettings:
    assert isinstance(settings.task, PoseSettings)
    return settings.task
