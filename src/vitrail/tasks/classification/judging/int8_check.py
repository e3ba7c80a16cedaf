"""Estimation of the accuracy that int8 loses, from few images.

Accuracy on few images is too coarse: one of 33 images is three points. Two things make the estimate precise. Each image is
predicted in several views, and a changed class is weighted by the model's own probabilities: if the model predicts ant 52 % and
bee 48 %, a graph that predicts bee is expected to lose 0.04 images, not one.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.deploy.export.expected_loss import KEEP, MOST_LOST, Loss, at_least, no_judgement, standard_error
from vitrail.deploy.problems import ExportError
from vitrail.runtime.observer import Observer
from vitrail.tasks.classification.judging.samples import BATCH, SampleSets
from vitrail.tasks.classification.predictor import LabelPredictor

MOST_LOST_ELSEWHERE = 3.0
"""Points that int8 may lose on recoloured and random images: good graphs lose 0.1 to 2, a graph calibrated on one image 13."""
VIEWS = 300
"""Least number of views; fewer images get more views each."""
SMALLEST_CROP = 0.5
"""Least fraction of an image's area in a view."""
ELSEWHERE = 64
"""Number of recoloured images, and of random images."""
LABEL_ERRORS = 3.0
"""Number of standard errors by which the loss measured on labels must exceed the limit, since counting hits is noisy."""
SURE = 0.5
"""Least probability of a label that an image counts as showing: if the model is unsure, a changed class costs little."""


@dataclass(frozen=True)
class Judged(Loss):
    """The expected loss of accuracy of a graph, in points."""

    images: int
    views: int
    labels: int
    """Number of labels of the model."""
    shown: int
    """Number of different labels that the model predicts for the images with at least the probability `SURE`."""
    agreement: float
    """Fraction of the views with the same prediction."""
    elsewhere: float | None
    """Lower bound of the points lost on recoloured or on random images, the larger one; None if the images show enough labels."""

    @property
    def samples(self) -> str:
        """The number of views, as text."""
        return f"{self.views} views of {self.images} images"

    def __str__(self) -> str:
        same = f"{100 * self.agreement:.1f} % of the predictions are the same"
        return f"{self.points:.1f} ± {self.error:.1f} points on {self.samples}; {same}"


class Judge:
    """The comparison of graphs with their model on the judging images."""

    def __init__(self, plain: LabelPredictor, sets: SampleSets, observer: Observer):
        self.plain, self.samples, self.calibration, self.observer = plain, sets.judging, sets.calibration, observer
        self.rounds = -(-VIEWS // len(self.samples.pixels))

    def __call__(self, predictor: LabelPredictor) -> Judged:
        """Return the expected loss of a graph compared with the model."""
        several = self.plain.multi_label
        before = self._before  # (V, N, classes)
        after = before if predictor is self.plain else self._logits(predictor, self._views)
        losses = expected_loss(before, after, multi_label=several).mean(dim=0)  # (N,)
        same = (self._predictions(before) == self._predictions(after)).reshape(*before.shape[:2], -1).all(dim=-1)
        elsewhere = None
        if self.is_narrow:
            logits = [self._logits(one, self._elsewhere) for one in (self.plain, predictor)]
            elsewhere = max(map(at_least, expected_loss(*logits, multi_label=several)))
        judged = Judged.of(
            losses, answers=self.answers, images=len(losses), views=same.numel(), labels=len(self.plain.labels), shown=self.shown,
            agreement=same.double().mean().item(), elsewhere=elsewhere,
        )  # fmt: skip
        if self.samples.labelled and not several:
            hits = [(self._predictions(logits) == self.samples.labels).double() for logits in (before, after)]
            drop = 100 * (hits[0] - hits[1]).mean(dim=0)
            points, error = drop.mean().item(), standard_error(drop)
            if (least := points - LABEL_ERRORS * error) > judged.least:
                return replace(judged, points=points, error=error, least=least)
        return judged

    @cached_property
    def answers(self) -> int:
        """Number of different labels, or sets of labels, that the model predicts for the judging images.

        If it is only one, the calibration images are counted, too.
        """
        logits = self._before[0]
        if (count := self._different(logits)) > 1:
            return count
        return self._different(torch.cat([logits, self._logits(self.plain, lambda: iter([self.calibration.pixels]))[0]]))

    @cached_property
    def shown(self) -> int:
        """Number of different labels, or sets of labels, that the model predicts for the judging images with certainty `SURE`."""
        logits = self._before[0]
        if not self.plain.multi_label:
            logits = logits[logits.softmax(dim=-1).amax(dim=-1) >= SURE]
        return self._different(logits)

    @property
    def is_narrow(self) -> bool:
        """True if the images show too few of the model's labels to judge the others."""
        return self.shown <= max(1, min(len(self.plain.labels), len(self.samples.pixels)) / 2)

    def _different(self, logits: Tensor) -> int:
        return len(self._predictions(logits).unique(dim=0))

    def _predictions(self, logits: Tensor) -> Tensor:
        """Return the predicted class indices (…) of logits (…, classes); for a multi-label model booleans (…, classes)."""
        return logits > 0 if self.plain.multi_label else logits.argmax(dim=-1)

    @cached_property
    def _before(self) -> Tensor:
        return self._logits(self.plain, self._views)

    def _views(self) -> Iterator[Tensor]:
        """Yield the images (N, C, H, W), then random crops of all images until there are `VIEWS`; the seed is fixed."""
        random = torch.Generator().manual_seed(0)
        yield self.samples.pixels
        for _ in range(self.rounds - 1):
            yield torch.stack([random_crop(pixels, random) for pixels in self.samples.pixels])

    def _elsewhere(self) -> Iterator[Tensor]:
        random, pixels = torch.Generator().manual_seed(0), self.samples.pixels
        chosen = pixels[torch.arange(ELSEWHERE) % len(pixels)]
        yield recoloured(chosen, random)
        yield random_fields(chosen.shape, random)

    def _logits(self, predictor: LabelPredictor, rounds: Callable[[], Iterator[Tensor]]) -> Tensor:
        """Return the logits (V, N, classes) for V rounds of images."""
        self.observer.begin(f"{predictor.name} answers", 0)
        return torch.stack([torch.cat([predictor.logits(part) for part in pixels.split(BATCH)]) for pixels in rounds()])


def require_accuracy(judged: Judged, limit: float = MOST_LOST) -> None:
    """Raise `ExportError` if int8 certainly loses more than ``limit`` points, or if the images do not suffice to judge it."""
    j, where = judged, "--calibrate"
    j.require(limit, "accuracy", j.samples, f"calibrate with more images, of more kinds, or {KEEP}")
    hint = f"give images of several labels, or {KEEP}"
    if j.answers == 1 and j.labels > 1:
        raise no_judgement("calibration and judging images", hint)
    if j.elsewhere is not None and j.elsewhere > MOST_LOST_ELSEWHERE:
        shown = f"the judging images clearly show {j.shown} of {j.labels} labels"
        what = f"{shown}, and on recoloured or random images int8 loses at least {j.elsewhere:.0f} points"
        raise ExportError(what, where=where, hint=hint)


def expected_loss(before: Tensor, after: Tensor, *, multi_label: bool) -> Tensor:
    """Return the expected loss of each image in points, by the probabilities of the model's own logits.

    With one label per image, it is the model's probability of its own class minus that of the graph's class. With several, it is
    summed over all changed labels and divided by the number of labels that the model predicts.

    Args:
        before, after: logits of the model and of the graph, (…, classes).
        multi_label: whether an image may have several labels.
    """
    if multi_label:
        wrong = ((before > 0) != (after > 0)) * (2 * before.sigmoid() - 1).abs()
        return 100 * (wrong.sum(dim=-1) / (before > 0).sum(dim=-1).clamp(min=1)).clamp(max=1)
    chances = before.softmax(dim=-1)
    return 100 * (chances.amax(dim=-1) - chances.gather(-1, after.argmax(dim=-1, keepdim=True))[..., 0])


def random_crop(pixels: Tensor, random: torch.Generator) -> Tensor:
    """Return a random crop of an image (C, H, W), resized to its size, and mirrored with a probability of 0.5."""
    scale, row, column, mirrored = torch.rand(4, generator=random).tolist()
    scale = (SMALLEST_CROP + (1 - SMALLEST_CROP) * scale) ** 0.5
    height, width = (max(1, round(scale * side)) for side in pixels.shape[-2:])
    top, left = (
        int(place * (whole - side + 1))
        for place, whole, side in zip((row, column), pixels.shape[-2:], (height, width), strict=True)
    )
    crop = pixels[None, :, top : top + height, left : left + width].float()
    view = F.interpolate(crop, pixels.shape[-2:], mode="bilinear", align_corners=False)[0].round().to(torch.uint8)
    return view.flip(-1) if mirrored < 0.5 else view


def recoloured(pixels: Tensor, random: torch.Generator) -> Tensor:
    """Return images (N, C, H, W) with permuted channels, each mapped to the range between two random values."""
    order = torch.rand(pixels.shape[:2], generator=random).argsort(dim=1)[:, :, None, None].expand_as(pixels)
    black, white = 255 * torch.rand(2, *pixels.shape[:2], 1, 1, generator=random)
    return (black + (white - black) * pixels.gather(1, order) / 255).round().to(torch.uint8)


def random_fields(shape: torch.Size, random: torch.Generator) -> Tensor:
    """Return random images (N, C, H, W) with a base colour and noise of every scale."""
    count, channels, height, width = shape
    field, cells = torch.randn(count, channels, 1, 1, generator=random).expand(shape), 2
    while cells <= min(height, width) // 2:
        noise = F.interpolate(torch.randn(count, channels, cells, cells, generator=random), (height, width), mode="bilinear")
        field, cells = field + noise * torch.rand(count, 1, 1, 1, generator=random), 2 * cells
    return ((field / 4 + 0.5).clamp(0, 1) * 255).round().to(torch.uint8)
