"""Labels that are probably wrong, by confident learning (Northcutt et al. 2021, https://arxiv.org/abs/1911.00068).

Heads are fitted by cross-validation in five folds: each head predicts the fold that it was not fitted to. ``p`` are these
probabilities, (N, K). The threshold of class j is

    t_j = mean of p_j over the images labelled j.

An image is counted as class j if p_j reaches this threshold. If an image labelled i is counted as another class j, its label is
probably wrong.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.data.items import Item
from vitrail.errors import DataError
from vitrail.tasks.probe import RIDGES, ridge_heads

FOLDS = 5
"""Number of folds; a class with fewer images is not judged."""
DIVISIONS = 3
"""Number of random divisions into folds, whose probabilities are averaged."""
SURE = 1e-6
"""Least probability in ratios, to avoid a division by zero."""


@dataclass(frozen=True)
class Judged:
    """The judgement of the label of each image; all tensors are (N,)."""

    suggestion: Tensor
    """The most probable other class, relative to the thresholds of the classes."""
    confidence: Tensor
    """1 − p of the given class; sorting by it finds more wrong labels than sorting by margins."""
    wrong: Tensor
    """True if the image is counted as an image of another class."""

    @property
    def ranked(self) -> list[int]:
        """The indices of the images, sorted by ``confidence``, the highest first."""
        return self.confidence.argsort(descending=True, stable=True).tolist()


def judged(features: Tensor, labels: Tensor, *, classes: int) -> Judged:
    """Judge labels (N,) by the features (N, D) of a model; each class has at least `FOLDS` images."""
    found = [out_of_fold(features, labels, classes=classes, seed=seed) for seed in range(DIVISIONS)]
    return judge(torch.stack(found).mean(dim=0), labels)


def judge(probabilities: Tensor, labels: Tensor) -> Judged:
    """Judge labels (N,) by probabilities (N, K) of heads that were not fitted to these images."""
    usual = thresholds(probabilities, labels)
    counted = confident_class(probabilities, usual)
    ratios = probabilities.clamp(min=SURE) / usual.clamp(min=SURE)
    suggestion = ratios.scatter(1, labels[:, None], -1.0).argmax(dim=1)
    given = probabilities.gather(1, labels[:, None])[:, 0]
    return Judged(suggestion, 1 - given, (counted >= 0) & (counted != labels))


def thresholds(probabilities: Tensor, labels: Tensor) -> Tensor:
    """Return the mean probability of each class on its own images, t (K,); infinite for a class without images."""
    given = probabilities.gather(1, labels[:, None])[:, 0]
    sums = torch.zeros(probabilities.shape[1]).index_add(0, labels, given)
    counts = torch.bincount(labels, minlength=probabilities.shape[1])
    return torch.where(counts > 0, sums / counts.clamp(min=1), torch.inf)


def confident_class(probabilities: Tensor, usual: Tensor) -> Tensor:
    """Return the most probable class above its threshold, (N,); −1 if there is none (equation 1)."""
    enough = torch.where(probabilities >= usual, probabilities, -1.0)
    best, place = enough.max(dim=1)
    return torch.where(best >= 0, place, -1)


def out_of_fold(features: Tensor, labels: Tensor, *, classes: int, seed: int) -> Tensor:
    """Return probabilities (N, classes) of ridge heads, each for the fold that it was not fitted to."""
    fold = folds(labels, seed)
    every = [ridge_heads(features[fold != k], labels[fold != k], classes=classes, ridges=RIDGES) for k in range(FOLDS)]
    least, best = math.inf, torch.zeros(len(features), classes)
    for heads in zip(*every, strict=True):  # heads of one ridge strength, one for each fold
        answers = torch.empty(len(features), classes)
        for k, head in enumerate(heads):
            answers[fold == k] = head(features[fold == k])
        loss = F.cross_entropy(answers, labels).item()
        if loss < least:
            least, best = loss, answers
    return best.softmax(dim=1)


def folds(labels: Tensor, seed: int) -> Tensor:
    """Return a random fold for each image, int64 (N,); each fold has the same fraction of every class."""
    shuffled = torch.from_numpy(np.random.default_rng(seed).permutation(len(labels)))
    by_class = shuffled[labels[shuffled].argsort(stable=True)]
    fold = torch.empty_like(labels)
    fold[by_class] = torch.arange(len(labels)) % FOLDS
    return fold


def judgeable(items: list[Item], classes: list[str], *, multi_label: bool, where: str) -> list[int]:
    """Return the indices of images whose class has enough images; raises `DataError` if no label can be judged."""
    if multi_label:
        what = "wrong labels can only be found in data with one label per image"
        raise DataError(what, where=where, hint="leave --model out: everything else is checked")
    counts = np.bincount([item.target for item in items], minlength=len(classes))
    if (counts >= FOLDS).sum() < 2:
        what = f"finding wrong labels needs two classes of {FOLDS} images; here the largest has {counts.max(initial=0)}"
        raise DataError(what, where=where, hint="leave --model out: everything else is checked")
    return [place for place, item in enumerate(items) if counts[item.target] >= FOLDS]
