"""The people of a pose study, with predicted joints."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from vitrail.data.images.box_preparation import Box, BoxPreparation
from vitrail.data.images.decode import Source, upright_size
from vitrail.data.images.plan import Plan
from vitrail.data.images.warp import Warp
from vitrail.runtime.observer import Observer
from vitrail.study.maps.patch_coordinates import patch_places
from vitrail.study.sections.context import StudyContext
from vitrail.study.sections.study_images import Subjects
from vitrail.tasks.pose.heatmaps import heatmaps_of, joints_in, surest_turns, turned
from vitrail.tasks.pose.people.people import Person, Pose
from vitrail.tasks.pose.study.joints import between_joints, maps_from, patches_of, weights_and_heatmaps
from vitrail.tasks.pose.task import Row
from vitrail.tasks.pose.weights import TrainedPose


@dataclass(frozen=True)
class StudiedPeople(Subjects):
    """People of a study; ``mirror`` is True if their evaluation averages with mirror images."""

    mirror: bool = False


def whole_person(name: str, image: Source) -> Person:
    """Return the single person of an image that the person fills."""
    width, height = upright_size(image)
    return Person(name, image, Pose(Box.of_picture((width, height)), (), width * height, 0, 0))


class PoseStudy(StudyContext):
    """A pose model and the people of a study, with the results of a pass; mirror images are only used for scores."""

    preparation: BoxPreparation

    def __init__(
        self, folder: Path, trained: TrainedPose, subjects: StudiedPeople, observer: Observer, *, layer: int, head: int | None
    ):
        super().__init__(folder, trained, subjects, None, observer)
        self.numbers["of"] = "people"
        self.skeleton, self.layer, self.head = trained.skeleton, layer, head
        self.mirror = subjects.mirror and not trained.preparation.upright  # turned people are never mirrored
        self.turns = self._turns()
        """Counterclockwise quarter turns in which each person is studied, (N,)."""
        self._any_size = self.model.at_any_size()
        self.pixels = turned(self.pixels, self.turns)
        parts = [self._pass(images) for images in self.batches(self.pixels, "joints")]
        heatmaps, joints, scores, maps, between, *judged = (torch.cat(part) for part in zip(*parts, strict=True))
        self.joints = joints.double().numpy()
        """Joints in the model's input, (N, K, 2)."""
        self.scores = scores.numpy()
        """Scores of the joints, (N, K)."""
        self.judged = judged[0].double().numpy(), judged[1].numpy()
        """Joints and scores as in an evaluation."""
        self.between = between.mean(dim=0).numpy()
        """`between_joints`, averaged over people: (K, K)."""
        self.maps |= {"heatmaps": heatmaps, "joints": maps, "turns": self.turns}

    def _turns(self) -> Tensor:
        if not self.preparation.upright:
            return torch.zeros(len(self.pixels), dtype=torch.int64)
        with torch.no_grad():
            return torch.cat([surest_turns(self.model, images) for images in self.batches(self.pixels, "upright")])

    def _pass(self, images: Tensor) -> list[Tensor]:
        weights, heatmaps = weights_and_heatmaps(self.model, images, layer=self.layer, head=self.head)
        read = heatmaps if self.preparation.views == 1 else self._read(images, mirror=False)  # the same as in predictions
        joints, scores = joints_in(read, self.preparation)
        judged = joints_in(self._read(images, mirror=True), self.preparation) if self.mirror else (joints, scores)
        patches = patches_of(joints, patch_places(self.model))
        maps = maps_from(self.model, weights, patches)
        return [found.cpu() for found in (heatmaps, joints, scores, maps, between_joints(maps, patches), *judged)]

    @torch.no_grad()
    def _read(self, images: Tensor, *, mirror: bool) -> Tensor:
        return heatmaps_of(self._any_size, images, self.preparation, self.skeleton, mirror=mirror)[0]

    def pixels_of(self, item: Person) -> np.ndarray:
        picture = self.preparation.decode(item.image)
        return self.preparation.cut_out(picture, item.target.box)

    def outside(self, number: int) -> np.ndarray:
        """Return the joints of a person in the image, (K, 2)."""
        return self._warp(number, self.preparation).outside(self.joints[number])

    def row(self, number: int) -> Row:
        joints, scores = (found[number] for found in self.judged)
        outside = self._warp(number, self.preparation).outside(joints)
        return Row(number, self.subjects.items[number], outside, scores, 0.0)

    def _warp(self, number: int, preparation: BoxPreparation) -> Warp:
        return preparation.warp(self.subjects.items[number].target.box, angle=90.0 * int(self.turns[number]))

    def view(self, number: int, side: int) -> tuple[Image.Image, Plan]:
        """Return the model's view of a person, ``side`` pixels on its longer side, and the plan that maps positions to it."""
        rows, columns = self.preparation.image_size
        size = (max(2, round(side * rows / max(rows, columns))), max(2, round(side * columns / max(rows, columns))))
        picture = self.preparation.decode(self.subjects.items[number].image)
        plan = Plan(picture.size, self._warp(number, self.preparation.at(size)))
        return plan.frame(picture), plan
