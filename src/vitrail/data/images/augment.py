"""Random changes to training images. Each depends only on (seed, epoch, index)."""

import math
from functools import cache
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from vitrail.data.images.operations import BOTH_WAYS, POLICY, Colour, randaugment_limits, trivial_limits
from vitrail.data.images.plan import Erase, Extent, Flip, Frame, Operations, Plan, Resize, Shift, Step
from vitrail.data.images.preparation import RESAMPLING, Preparation
from vitrail.settings import Settings

Probability = Annotated[float, Field(ge=0, le=1)]
Share = Annotated[float, Field(gt=0, le=1)]
Change = Annotated[float, Field(ge=0, le=1)]
Scale = Annotated[float, Field(gt=0, le=100)]
Concentration = Annotated[float, Field(ge=0, le=100)]

BLURRED = 0.01
"""Largest deviation of a blur as a fraction of the image's side: 2 pixels of 224, as in SimCLR (Chen et al. 2020)."""
ERASED_AREA = (0.02, 0.4)
ERASED_ASPECT = 1 / 0.3
"""Largest aspect ratio of an erased rectangle; this and `ERASED_AREA` are the paper's values."""


class Augmentation(Settings):
    """Random changes to training images, in this order: crop, flips, rotation, policy, colours, erasing, mixing."""

    horizontal_flip: Probability = 0.5
    """Probability of a horizontal flip."""
    flips: Literal["random", "turns"] = "random"
    """Flip horizontally at random, or in turns: with a probability of 0.5 each image is flipped in every other epoch, so that any
    two epochs in a row show both versions (alternating flip, Jordan 2024, https://arxiv.org/abs/2404.00498)."""
    vertical_flip: Probability = 0.0
    """Probability of a vertical flip."""
    crop: Literal["none", "pad", "resized", "scaled"] = "none"
    """none; pad: pad the edges and crop the model's size at a random position; resized: crop a random fraction of the image and
    resize it (Szegedy et al. 2015); scaled: scale the image at random, without changing its aspect, and crop the model's size,
    as for segmentation."""
    padding: Annotated[int, Field(ge=0, le=4096)] = 4
    """Pixels added on every side by the crop "pad", filled with the mean colour."""
    min_area: Share = 0.25
    """Least fraction of the image's area in the crop "resized"."""
    max_area: Share = 1.0
    """Largest fraction of the image's area in the crop "resized"."""
    max_aspect: Annotated[float, Field(ge=1, le=100)] = 4 / 3
    """Largest aspect ratio of the crop "resized", relative to the model's."""
    min_scale: Scale = 0.5
    """Least scale of the image in the crop "scaled"; an image that is smaller than the crop is padded with the mean colour."""
    max_scale: Scale = 2.0
    """Largest scale of the image in the crop "scaled"."""
    rotation: Annotated[float, Field(ge=0, le=180)] = 0.0
    """Largest angle of a random rotation, in degrees, in either direction."""
    scale: Change = 0.0
    """Largest relative change in the size of a person's box, for pose estimation only."""
    half_body: Probability = 0.0
    """Probability of cropping to the upper or lower half of a body, for pose estimation only."""
    policy: Literal["none", "randaugment", "trivial"] = "none"
    """none; randaugment: several random operations of a fixed strength (RandAugment, Cubuk et al. 2020); trivial: one random
    operation of random strength (TrivialAugment, wide space, Müller & Hutter 2021)."""
    operations: Annotated[int, Field(ge=1, le=14)] = 2
    """Number of operations that RandAugment applies to an image, its N."""
    magnitude: Annotated[float, Field(ge=0, le=30)] = 9.0
    """Strength of RandAugment's operations, its M. 10 is the full range of AutoAugment, as in the paper and in big_vision; larger
    values exceed it. In torchvision the full range is 30: divide its values by 3."""
    brightness: Change = 0.0
    """Largest relative change of brightness, up or down."""
    contrast: Change = 0.0
    """Largest relative change of contrast, up or down."""
    saturation: Change = 0.0
    """Largest relative change of saturation, up or down."""
    hue: Annotated[float, Field(ge=0, le=0.5)] = 0.0
    """Largest shift of the hue in either direction, as a fraction of the colour circle."""
    grey: Probability = 0.0
    """Probability of removing all colours."""
    blur: Probability = 0.0
    """Probability of a Gaussian blur, with a deviation of up to a hundredth of the image's side."""
    erasing: Probability = 0.0
    """Probability of replacing a rectangle of 2 to 40 % of the area by noise (random erasing, Zhong et al. 2020)."""
    mixup: Concentration = 0.0
    """Blend each image with its neighbour in the batch (mixup), with a weight drawn from Beta(mixup, mixup); 0 for none."""
    cutmix: Concentration = 0.0
    """Replace a rectangle of each image by its neighbour's pixels (CutMix), with an area fraction drawn from
    Beta(cutmix, cutmix); 0 for none. With mixup and cutmix, one of the two is drawn for each image."""
    repeats: Annotated[int, Field(ge=1, le=64)] = 1
    """Number of copies of each image in a row, augmented independently; the epoch keeps its length (repeated augmentation).
    Copies are not mixed with each other, so batches smaller than twice this number are not mixed."""

    @property
    def mixes(self) -> bool:
        """Return True if images are mixed, so that targets are fractions of classes."""
        return self.mixup > 0 or self.cutmix > 0

    def plan(self, size: Extent, preparation: Preparation, random: "SampleGenerator") -> Plan:
        """Draw the random plan for an image of this (width, height), which resizes it to the model's size; without mixing."""
        return Plan(size, self.frame(size, preparation, random), self.steps(preparation, random))

    def frame(self, size: Extent, preparation: Preparation, random: "SampleGenerator") -> Frame:
        """Draw the resize and crop of an image of this (width, height) to the model's size."""
        if self.crop == "resized":
            return self._resized_crop(size, preparation, random)
        if self.crop == "scaled":
            low, high = sorted((self.min_scale, self.max_scale))
            return scaled_crop(size, preparation, random.uniform(low, high), random)
        return preparation.frame(size)

    def steps(self, preparation: Preparation, random: "SampleGenerator") -> tuple[Step, ...]:
        """Draw the random steps that follow the resize to the model's size."""
        steps: list[Step] = []
        if self.crop == "pad":
            left, top = random.integers(0, 2 * self.padding, size=2, endpoint=True).tolist()
            steps.append(Shift(self.padding - left, self.padding - top, fill_colour(preparation.mean)))
        takes_turns = self.flips == "turns"
        across = random.turn(self.horizontal_flip) if takes_turns else random.random() < self.horizontal_flip
        down = random.random() < self.vertical_flip
        if across or down:
            steps.append(Flip(across, down))
        if operations := self._operations(preparation.image_size, random):
            steps.append(Operations(operations, fill_colour(preparation.mean)))
        if self.erasing and random.random() < self.erasing:
            steps.append(_erasing(preparation, random))
        return tuple(steps)

    def _operations(self, image_size: tuple[int, int], random: np.random.Generator) -> tuple[tuple[str, float], ...]:
        (height, width), operations = image_size, []
        if self.rotation:
            operations.append(("rotate", random.uniform(-self.rotation, self.rotation)))
        if self.policy == "randaugment":
            limits = randaugment_limits(width, height)
            operations += [_random_operation(self.magnitude / 10, limits, random) for _ in range(self.operations)]
        elif self.policy == "trivial":
            strength = float(random.integers(0, 30, endpoint=True) / 30)
            operations.append(_random_operation(strength, trivial_limits(width, height), random))
        jitter = ("brightness", self.brightness), ("contrast", self.contrast), ("saturation", self.saturation), ("hue", self.hue)
        operations += [(name, random.uniform(-most, most)) for name, most in jitter if most]
        if self.grey and random.random() < self.grey:
            operations.append(("saturation", -1.0))
        if self.blur and random.random() < self.blur:
            operations.append(("blur", random.uniform(0, BLURRED) * max(width, height)))
        return tuple(operations)

    def _resized_crop(self, size: Extent, preparation: Preparation, random: np.random.Generator) -> Resize:
        width, height = size
        rows, columns = preparation.image_size
        aspect = columns / rows * float(np.exp(random.uniform(-1, 1) * np.log(self.max_aspect)))
        least, most = sorted((self.min_area, self.max_area))
        area = width * height * random.uniform(least, most)
        wide = min(width, max(1.0, math.sqrt(area * aspect)))
        high = min(height, max(1.0, math.sqrt(area / aspect)))
        left = random.uniform(0, width - wide)
        top = random.uniform(0, height - high)
        part = (left, top, left + wide, top + high)
        return Resize(part, (columns, rows), (0, 0, columns, rows), RESAMPLING[preparation.resampling])


def scaled_crop(size: Extent, preparation: Preparation, scale: float, random: np.random.Generator) -> Resize:
    """Draw a crop of the model's size from an image of this (width, height), scaled by ``scale``.

    A side of the scaled image that is shorter than the crop's is inside the crop, at a random position, and padded.
    """
    rows, columns = preparation.image_size
    part, kept, shown = [], [], []
    for own, side in zip(size, (columns, rows), strict=True):
        scaled = max(1, round(scale * own))
        start = int(random.integers(min(0, scaled - side), max(0, scaled - side), endpoint=True))
        first, last = max(0, start), min(scaled, start + side)
        part.append((first * own / scaled, last * own / scaled))
        kept.append((start - first, start - first + side))
        shown.append(last - first)
    (left, right), (top, bottom) = part
    inside = (kept[0][0], kept[1][0], kept[0][1], kept[1][1])
    fill = fill_colour(preparation.mean)
    return Resize((left, top, right, bottom), (shown[0], shown[1]), inside, RESAMPLING[preparation.resampling], fill)


def _random_operation(strength: float, limits: dict[str, float], random: np.random.Generator) -> tuple[str, float]:
    name = list(POLICY)[random.integers(len(POLICY))]
    sign = -1 if random.random() < 0.5 and name in BOTH_WAYS else 1
    return name, sign * strength * limits.get(name, 0)


def _erasing(preparation: Preparation, random: np.random.Generator) -> Erase:
    """Draw a rectangle of random values (random erasing, Zhong et al. 2020, https://arxiv.org/abs/1708.04896).

    The paper draws again until a rectangle fits; here a rectangle that is too long is cut to the image's side.
    """
    height, width = preparation.image_size
    area = height * width * random.uniform(*ERASED_AREA)
    aspect = float(np.exp(random.uniform(-1, 1) * np.log(ERASED_ASPECT)))
    rows = min(height, max(1, round(math.sqrt(area * aspect))))
    columns = min(width, max(1, round(math.sqrt(area / aspect))))
    top, left = random.integers(0, (height - rows, width - columns), endpoint=True).tolist()
    return Erase(left, top, random.integers(0, 256, (preparation.channels, rows, columns), np.uint8))


@cache
def fill_colour(mean: tuple[float, ...]) -> Colour:
    """Return the preparation's mean colour as integers 0…255; it fills pixels outside of the image."""
    return tuple(min(255, max(0, round(255 * value))) for value in mean)


SAMPLE, TURN, VIEW, VIEW_TURN = 2, 3, 4, 5  # keep these random streams apart from the one for the order of samples


class SampleGenerator(np.random.Generator):
    """The random generator of one sample in one epoch; it does not depend on the process or on the order of samples.

    Args:
        seed: the seed of the run.
        epoch, index: the epoch, and the index of the sample in the data set.
        number: the number of a further `view` of the sample; 0 for the sample itself.
    """

    def __init__(self, seed: int, epoch: int, index: int, number: int = 0):
        drawn = _entropy(VIEW, number, seed, epoch, index) if number else _entropy(SAMPLE, seed, epoch, index)
        super().__init__(np.random.PCG64(drawn))
        self.seed, self.epoch, self.index, self.number = seed, epoch, index, number

    def view(self, number: int) -> "SampleGenerator":
        """Return the generator of a further view (``number`` from 1) of the same sample, independent of the other views."""
        return SampleGenerator(self.seed, self.epoch, self.index, number)

    def turn(self, share: float) -> bool:
        """Return True in a fraction ``share`` of the sample's epochs, spread as evenly as possible."""
        if share in (0, 1):
            return bool(share)
        own = (VIEW_TURN, self.number, self.seed, self.index) if self.number else (TURN, self.seed, self.index)
        start = np.random.default_rng(_entropy(*own)).random()
        return (start + share * self.epoch) % 1 < share


def _entropy(*numbers: int) -> np.ndarray | tuple[int, ...]:
    """Return the entropy for a generator: a uint32 array, which NumPy reads faster, unless a number is too large."""
    return np.array(numbers, np.uint32) if max(numbers) < 2**32 else numbers
