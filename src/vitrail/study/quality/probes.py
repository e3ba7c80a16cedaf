"""Quality of frozen features, by few-shot and linear probes and nearest neighbours."""

from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

from vitrail.errors import DataError
from vitrail.study.maps.attention import read
from vitrail.study.maps.captures import attends, capture, capture_names, model_in

NEIGHBOURS = 20
RIDGE = 1.0
"""Penalty of few-shot least squares, divided by the number of features D."""


@dataclass(frozen=True)
class FewShot:
    """Accuracies with ``shots`` images per class, for several random draws."""

    shots: int
    accuracies: list[float]

    @property
    def mean(self) -> float:
        """Mean over the draws."""
        return float(np.mean(self.accuracies))

    @property
    def spread(self) -> float | None:
        """Standard deviation over the draws; None for a single draw."""
        return float(np.std(self.accuracies, ddof=1)) if len(self.accuracies) > 1 else None


@torch.no_grad()
def features(model: nn.Module, batches: Iterable[Tensor]) -> list[np.ndarray]:
    """Return the pooled features after every layer, and finally the vectors that the heads read: arrays (N, D).

    After a layer they are the class token or the mean of the patches, see `read`. A model without attention, or with changed
    blocks, gives only the vectors of the heads.
    """
    vit: Any = model_in(model)
    named = {f"blocks.{number}.output" for number in range(len(vit.layers()))} <= set(capture_names(vit))
    every = ["blocks.*.output"] if attends(vit) and named else []
    layers: list[list[Tensor]] = [[] for _ in range(len(vit.layers()) * len(every) + 1)]

    def each(name: str, tokens: Tensor) -> None:
        layers[int(name.split(".")[1])].append(read(vit, tokens).float().cpu())

    for images in batches:
        with capture(vit, *every, each=each) if every else nullcontext():
            layers[-1].append(vit.vectors(images).float().cpu())
    return [torch.cat(parts).numpy() for parts in layers]


def few_shot(
    train: np.ndarray, labels: np.ndarray, test: np.ndarray, expected: np.ndarray, *, shots: int, draws: int = 5, seed: int = 0
) -> FewShot:
    """Return the accuracy of a linear map fitted to ``shots`` images of every class, averaged over draws.

    It is regularised least squares from standardised features to {−1, 1} for every class, in closed form (Dosovitskiy et al.
    2021, section 4.1).

    Args:
        train: features (N, D) to draw from.
        labels: their classes (N,).
        test: features (M, D).
        expected: their classes (M,).
        shots: images per class.
        draws: number of random draws of images.
        seed: seed of the draws.

    If no class has more than ``shots`` images, there is only one draw.

    Raises:
        DataError: a class has fewer than ``shots`` images.
    """
    classes, counts = np.unique(labels, return_counts=True)
    if counts.min() < shots:
        raise DataError(
            f"a class has {counts.min()} images for {shots} shots", where="few_shot", hint="take fewer shots or more images"
        )
    accuracies = []
    for draw in range(draws if counts.max() > shots else 1):
        random = np.random.default_rng((seed, draw))
        chosen = np.concatenate([random.permutation(np.flatnonzero(labels == c))[:shots] for c in classes])
        targets = np.where(labels[chosen, None] == classes, 1.0, -1.0)
        fitted = make_pipeline(StandardScaler(), Ridge(alpha=RIDGE * train.shape[1])).fit(train[chosen], targets)
        guesses = classes[fitted.predict(test).argmax(axis=1)]
        accuracies.append(float((guesses == expected).mean()))
    return FewShot(shots, accuracies)


def linear_probe(train: np.ndarray, labels: np.ndarray, test: np.ndarray, expected: np.ndarray) -> float:
    """Return the accuracy of logistic regression on standardised features; arguments as in `few_shot`."""
    fitted = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=1000)).fit(train, labels)
    return float(fitted.score(test, expected))


def nearest_neighbours(
    train: np.ndarray, labels: np.ndarray, test: np.ndarray, expected: np.ndarray, *, count: int = NEIGHBOURS
) -> float:
    """Return the accuracy of a vote of the nearest images by cosine, weighted by similarity; arguments as in `few_shot`."""
    voters = KNeighborsClassifier(min(count, len(train)), metric="cosine", weights="distance").fit(train, labels)
    return float(voters.score(test, expected))
