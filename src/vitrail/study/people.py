"""The people of a study, and what the model finds of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from vitrail.data.decode import Source, upright_size
from vitrail.data.order import some_items
from vitrail.data.plan import Plan
from vitrail.data.poses.people import Box, PeopleData, Person, Pose
from vitrail.data.poses.preparation import BoxPreparation
from vitrail.data.unlabelled import unlabelled_items
from vitrail.data.warp import Warp
from vitrail.errors import ConfigError
from vitrail.runtime.observer import Observer
from vitrail.study.context import StudyContext
from vitrail.study.joints import between_joints, joint_maps
from vitrail.study.subjects import Subjects
from vitrail.tasks.pose import heatmaps_of, joints_in, surest_turns, turned
from vitrail.weights.poses import TrainedPose

Opened = Callable[[], tuple[PeopleData, str, Any]]


def people_of(
    data: str | Path | None,
    opened: Opened,
    split: str | None,
    count: int,
) -> tuple[str, Subjects]:
    """Where the people of a study come from, and which; people with the model's joints are ``opened``, which gives their split.

    Images without joints are one person each, from rim to rim.
    """
    plain = unlabelled_items(data, count) if data is not None else []
    if plain and split is not None:
        raise ConfigError("images without joints have no splits", where="--split", hint="leave it out")
    if plain:
        return str(data), Subjects([_whole(item.name, item.image) for item in plain])
    source, chosen, _ = opened()
    return source.source, Subjects(some_items(source.split(chosen), count, 0), chosen, labelled=True)


def _whole(name: str, image: Source) -> Person:
    width, height = upright_size(image)
    return Person(name, image, Pose(Box.of_picture((width, height)), (), width * height, 0, 0))


class PoseStudy(StudyContext):
    """A model that finds joints and the people of a study, with all that one pass tells of them.

    Args:
        folder: exists.
        trained: the model.
        subjects: the people.
        observer: gets every pass and its people.
        layer, head: of the attention, as in `vitrail.study.joint_map`.
    """

    preparation: BoxPreparation

    def __init__(
        self, folder: Path, trained: TrainedPose, subjects: Subjects, observer: Observer, *, layer: int, head: int | None
    ):
        super().__init__(folder, trained, subjects, None, observer)
        self.numbers["of"] = "people"
        self.skeleton, self.layer, self.head = trained.skeleton, layer, head
        self.turns = self._turns()
        """By how many quarter turns against the clock each person is looked at, (N,)."""
        self._any_size = self.model.at_any_size()
        self.pixels = turned(self.pixels, self.turns)
        parts = [self._pass(images) for images in self.batches(self.pixels, "joints")]
        heatmaps, joints, scores, maps, between = (torch.cat(part) for part in zip(*parts, strict=True))
        self.joints = joints.double().numpy()
        """In the model's input, (N, K, 2)."""
        self.scores = scores.numpy()
        """(N, K)."""
        self.between = between.mean(dim=0).numpy()
        """`between_joints`, the mean over all people: (K, K)."""
        self.maps |= {"heatmaps": heatmaps, "joints": maps, "turns": self.turns}

    def _turns(self) -> Tensor:
        if not self.preparation.upright:
            return torch.zeros(len(self.pixels), dtype=torch.int64)
        with torch.no_grad():
            return torch.cat([surest_turns(self.model, images) for images in self.batches(self.pixels, "upright")])

    def _pass(self, images: Tensor) -> list[Tensor]:
        maps, heatmaps = joint_maps(self.model, images, layer=self.layer, head=self.head)
        read = heatmaps
        if self.preparation.views > 1:  # joints as predictions have them
            with torch.no_grad():
                read, _ = heatmaps_of(self._any_size, images, self.preparation, self.skeleton, mirror=False)
        joints, scores = joints_in(read, self.preparation)
        return [found.cpu() for found in (heatmaps, joints, scores, maps, between_joints(maps, heatmaps))]

    def pixels_of(self, item: Person) -> np.ndarray:
        picture = self.preparation.decode(item.image)
        return self.preparation.cut_out(picture, item.target.box)

    def outside(self, number: int) -> np.ndarray:
        """The joints of a person in the picture, (K, 2)."""
        return self._warp(number, self.preparation).outside(self.joints[number])

    def _warp(self, number: int, preparation: BoxPreparation) -> Warp:
        return preparation.warp(self.subjects.items[number].target.box, angle=90.0 * int(self.turns[number]))

    def view(self, number: int, side: int) -> tuple[Image.Image, Plan]:
        """What the model sees of a person, its longer side so many pixels, and the plan that leads places there."""
        rows, columns = self.preparation.image_size
        size = (max(2, round(side * rows / max(rows, columns))), max(2, round(side * columns / max(rows, columns))))
        picture = self.preparation.decode(self.subjects.items[number].image)
        plan = Plan(picture.size, self._warp(number, self.preparation.at(size)))
        return plan.frame(picture), plan
