"""People as training samples: cropped from their image, augmented in every epoch, with the positions of the joints."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from vitrail.data.images.augment import Augmentation, SampleGenerator
from vitrail.data.images.box_preparation import Box, BoxPreparation
from vitrail.data.images.plan import Plan
from vitrail.data.loading.dataset import ImageDataset
from vitrail.data.targets import Arrays
from vitrail.errors import ConfigError
from vitrail.tasks.pose.people.people import Person
from vitrail.tasks.pose.people.skeleton import Skeleton

HALF_BODY_RIM = 1.2
"""Size of a half-body box, in sizes of the box around its joints, since hands and feet extend beyond their joints."""
FEWEST_OF_HALF = 3
"""Least number of annotated joints for a half-body box."""


@dataclass(frozen=True)
class JointTargets:
    """Positions of joints in the model's input, after augmentation.

    ``joints`` is float32 (K, 2), x and y, with (0, 0) the centre of the first pixel; ``weights`` is float32 (K,), 1 for an
    annotated joint, else 0.
    """

    skeleton: Skeleton
    mixable = False

    def __call__(self, item: Any, plan: Plan | None, random: np.random.Generator) -> Arrays:
        if plan is None:
            hint = "leave transform out"
            raise ConfigError("joints cannot be moved by a custom transform", where="transform", hint=hint)
        joints = item.joints  # (K, 3)
        places, marked = plan.points(joints[:, :2] + 0.5) - 0.5, joints[:, 2] > 0
        if plan.mirrored:
            order = self.skeleton.order_mirrored
            places, marked = places[order], marked[order]
        return {"joints": places.astype(np.float32), "weights": marked.astype(np.float32)}


class PersonDataset(ImageDataset):
    """People prepared for a model, as `ImageDataset`, with `JointTargets`.

    For the metrics, a batch also has values without augmentation: ``number``, the index of the item (B,); ``box`` (B, 4) and
    ``marked`` (B, K, 3), as in `Pose`; ``area`` (B,); ``picture``, the image's id (B,).

    Args:
        items: the people.
        preparation: crops people from images.
        skeleton: their skeleton.
        augmentation: random changes, made after people are turned upright if the preparation does so; None for no changes.
        seed: seed of all random numbers.

    Raises:
        ConfigError: the augmentation mixes people, or crops at random.
    """

    shows_boxes = True

    def __init__(
        self,
        items: Sequence[Person],
        preparation: BoxPreparation,
        skeleton: Skeleton,
        augmentation: Augmentation | None = None,
        seed: int = 0,
    ):
        super().__init__(items, preparation, augmentation, seed, targets=JointTargets(skeleton))  # type: ignore[arg-type]
        if self.augmentation.crop != "none":
            hint = "leave it none; augmentation.scale makes the box larger and smaller"
            raise ConfigError("people are cut out by their boxes, not at random", where="augmentation.crop", hint=hint)
        self.skeleton, self.people, self.boxes = skeleton, items, preparation
        self._unturned = self.augmentation.changed(rotation=0)  # rotation is applied to the box, which keeps the corners
        self.upright = preparation.upright and augmentation is not None
        self._torso = torso_of(skeleton)
        self._upper = np.isin(skeleton.joints, skeleton.complete.upper or ())

    def _sample(self, number: int, random: SampleGenerator) -> Arrays:
        person = self.people[number]
        exact = {"box": person.target.box, "marked": person.joints, "area": person.target.area}
        numbers = {"number": number, "picture": person.target.image}
        return {
            **super()._sample(number, random),
            **{name: np.array(values, np.float64) for name, values in exact.items()},
            **{name: np.array(value, np.int64) for name, value in numbers.items()},
        }

    def _planned(self, number: int, random: SampleGenerator) -> tuple[np.ndarray, Plan]:
        pixels, _ = self._remembered(number, lambda source: (np.asarray(self.preparation.decode(source)), None))
        picture, a = Image.fromarray(pixels), self.augmentation
        box = self._half(number, random) if a.half_body and random.random() < a.half_body else None
        scale = 1 + random.uniform(-a.scale, a.scale) if a.scale else 1.0
        angle = tilt(self.people[number].joints, self._torso) if self.upright else 0.0
        angle += random.uniform(-a.rotation, a.rotation) if a.rotation else 0.0
        warp = self.boxes.warp(box or self.people[number].target.box, scale=scale, angle=angle)
        plan = Plan(picture.size, warp, self._unturned.steps(self.preparation, random))
        return plan.pixels(picture), plan

    def _half(self, number: int, random: np.random.Generator) -> Box | None:
        """Return a box around a random half of a person, upper or lower; None if too few of its joints are annotated."""
        joints = self.people[number].joints
        marked = joints[:, 2] > 0
        half = marked & (self._upper if random.random() < 0.5 else ~self._upper)
        if half.sum() < FEWEST_OF_HALF or half.sum() == marked.sum():
            return None
        (left, top), (right, bottom) = joints[half, :2].min(axis=0), joints[half, :2].max(axis=0)
        width, height = (HALF_BODY_RIM * max(1.0, side) for side in (right - left, bottom - top))
        return Box((left + right - width) / 2, (top + bottom - height) / 2, width, height)


Torso = tuple[np.ndarray, np.ndarray]
"""Masks of the hips and of the shoulders, bool (K,) each."""


def torso_of(skeleton: Skeleton) -> Torso:
    """Return the masks of a skeleton's hips and shoulders, by the joints' names; they may be empty."""
    hips, shoulders = (np.array([skeleton.has_word(name, (word,)) for name in skeleton.joints]) for word in ("hip", "shoulder"))
    return hips, shoulders


def tilt(joints: np.ndarray, torso: Torso) -> float:
    """Return the degrees by which a person is tilted clockwise from upright, from joints (K, 3): x, y, visibility.

    The direction upwards is from the centre of the hips to that of the shoulders. The result is 0 if either is not annotated,
    or if both are within a pixel.
    """
    chosen = [ends & (joints[:, 2] > 0) for ends in torso]
    if not all(each.any() for each in chosen):
        return 0.0
    low, top = (joints[each, :2].mean(axis=0) for each in chosen)
    across, down = top - low
    return 0.0 if math.hypot(across, down) < 1 else math.degrees(math.atan2(across, -down))
