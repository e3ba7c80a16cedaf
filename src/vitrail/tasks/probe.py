"""Heads fitted to what a model makes of images as it is: linear by a loss, ridge, and nearest neighbours beside them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

Loss = Callable[[Tensor, Tensor], Tensor]
"""Logits and labels to the mean loss."""
PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""On half the squared norm of a linear head, beside the mean loss."""
RIDGES = (1e-2, 1e-1, 1.0, 10.0, 100.0)
"""On the squared norm of a ridge head, per image."""
SCALES = tuple(2.0**k for k in range(-1, 7))
"""What the scores of ridge, which lie between −1 and 1, are multiplied by to be logits."""
NEIGHBOURS = 20


@dataclass(frozen=True)
class Head:
    """A linear layer: ``logits = features · weightᵀ + bias``."""

    weight: Tensor
    """(classes, D)."""
    bias: Tensor
    """(classes,)."""

    def __call__(self, features: Tensor) -> Tensor:
        """(N, D) to (N, classes)."""
        return F.linear(features, self.weight, self.bias)

    def scaled(self, factor: float) -> "Head":
        """With logits so many times as large."""
        return Head(self.weight * factor, self.bias * factor)


class Centred:
    """Features (N, D) around their mean and with one scale for all, in float64, and what heads on them are on the features.

    One scale, not one for each feature: on few images the large features are the ones to go by.
    """

    def __init__(self, features: Tensor):
        features = features.double()
        self.mean = features.mean(dim=0)
        self.scale = (features - self.mean).square().mean().sqrt().clamp(min=1e-12)
        self.features = (features - self.mean) / self.scale

    def head(self, weight: Tensor, bias: Tensor) -> Head:
        """What a head (classes, D) on the centred features is on the features themselves."""
        weight = weight / self.scale
        return Head(weight.float(), (bias - weight @ self.mean).float())


def linear_heads(
    features: Tensor, labels: Tensor, loss: Loss, *, classes: int, penalties: Sequence[float] = PENALTIES
) -> list[Head]:
    """Heads that minimise ``loss + penalty/2 · ‖W‖²`` for each penalty, the strongest first, by L-BFGS.

    Args:
        features: float32 (N, D).
        labels: as ``loss`` takes them.
        loss: convex in the logits.
        classes: how many there are.
        penalties: with which `Centred` features are learned from.
    """
    x = Centred(features)
    weight = torch.zeros(classes, features.shape[1], dtype=torch.float64, requires_grad=True)
    bias = torch.zeros(classes, dtype=torch.float64, requires_grad=True)
    labels = labels.double() if labels.is_floating_point() else labels

    def minimise(penalty: float) -> Head:
        optimizer = torch.optim.LBFGS([weight, bias], max_iter=200, tolerance_change=1e-10, line_search_fn="strong_wolfe")

        def objective() -> Tensor:
            optimizer.zero_grad()
            value = loss(F.linear(x.features, weight, bias), labels) + penalty / 2 * weight.square().sum()
            value.backward()
            return value

        optimizer.step(objective)  # from where the stronger penalty ended
        return x.head(weight.detach().clone(), bias.detach().clone())

    with torch.enable_grad():
        return [minimise(penalty) for penalty in sorted(penalties, reverse=True)]


def ridge_heads(features: Tensor, labels: Tensor, *, classes: int, ridges: Sequence[float] = RIDGES) -> list[Head]:
    """Least squares from `Centred` features to 1 for an image's classes and −1 for others, for each ridge, in closed form.

    ``W = (XᵀX + λ·N·I)⁻¹ XᵀY`` (Hoerl and Kennard 1970), by one decomposition for all λ, each at all of `SCALES`.
    """
    x = Centred(features)
    targets = 2 * shares(labels, classes).double() - 1
    mean = targets.mean(dim=0)
    values, vectors = torch.linalg.eigh(x.features.mT @ x.features / len(features))
    projected = vectors.mT @ (x.features.mT @ targets) / len(features)
    solved = (vectors @ (projected / (values.clamp(min=0) + ridge)[:, None]) for ridge in ridges)
    return [x.head(weight.mT, mean).scaled(scale) for weight in solved for scale in SCALES]


def neighbours(features: Tensor, labels: Tensor, queries: Tensor, *, classes: int, count: int = NEIGHBOURS) -> Tensor:
    """The mean of the labels of the nearest images by cosine, nearer ones counting more, as log-odds: (M, classes).

    Each counts ``exp(cosine / 0.07)`` (Wu et al. 2018, section 3.4).
    """
    known, given = F.normalize(features, dim=1), shares(labels, classes)
    found = []
    for part in F.normalize(queries, dim=1).split(1024):
        cosine, index = (part @ known.mT).topk(min(count, len(known)), dim=1)
        found.append(((cosine / 0.07).softmax(dim=1)[:, :, None] * given[index]).sum(dim=1))
    votes = torch.cat(found).clamp(1e-4, 1 - 1e-4)
    return votes.logit()


def shares(labels: Tensor, classes: int) -> Tensor:
    """Indices (N,) as ones and zeros (N, classes); shares as they are."""
    return labels if labels.is_floating_point() else F.one_hot(labels, classes).float()
