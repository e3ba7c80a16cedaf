"""Heads fitted to features of a frozen model: a linear head by a loss, ridge regression, and nearest neighbours."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

Loss = Callable[[Tensor, Tensor], Tensor]
"""A function from logits and labels to the mean loss."""
OnStep = Callable[[], None]
PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""Weights of the penalty ``½ ‖W‖²`` that is added to the mean loss of a linear head."""
RIDGES = (1e-2, 1e-1, 1.0, 10.0, 100.0)
"""Weights λ of the squared norm of a ridge head, per image."""
SCALES = tuple(2.0**k for k in range(-1, 7))
"""Factors from the scores of ridge regression, between −1 and 1, to logits."""
NEIGHBOURS = 20
NUMBERS = 2**25
"""Largest number of elements of a similarity matrix in memory."""


@dataclass(frozen=True)
class Head:
    """A linear layer: ``logits = features · weightᵀ + bias``."""

    weight: Tensor
    """Weights, (classes, D)."""
    bias: Tensor
    """Biases, (classes,)."""

    def __call__(self, features: Tensor) -> Tensor:
        """Compute logits (N, classes) from features (N, D)."""
        return F.linear(features, self.weight, self.bias)

    def scaled(self, factor: float) -> "Head":
        """Return a head whose logits are multiplied by ``factor``."""
        return Head(self.weight * factor, self.bias * factor)


class Centred:
    """Features (N, D) minus their mean and divided by one common scale, in float64.

    The scale is common to all features, since with few images the large features are the most reliable.
    """

    def __init__(self, features: Tensor):
        features = features.double()
        self.mean = features.mean(dim=0)
        self.scale = (features - self.mean).square().mean().sqrt().clamp(min=1e-12)
        self.features = (features - self.mean) / self.scale

    def head(self, weight: Tensor, bias: Tensor) -> Head:
        """Convert a head on the centred features, weight (classes, D), to a head on the original features."""
        weight = weight / self.scale
        return Head(weight.float(), (bias - weight @ self.mean).float())


def linear_heads(
    features: Tensor,
    labels: Tensor,
    loss: Loss,
    *,
    classes: int,
    penalties: Sequence[float] = PENALTIES,
    on_step: OnStep = lambda: None,
) -> Iterator[Head]:
    """Yield the head that minimizes ``loss + penalty/2 · ‖W‖²`` for each penalty, the largest first, by L-BFGS.

    Args:
        features: float32 (N, D).
        labels: the labels, in the form that ``loss`` takes.
        loss: a loss that is convex in the logits.
        classes: the number of classes.
        penalties: the weights of the penalty, for `Centred` features.
        on_step: called before each evaluation of the loss; an exception in it ends the fit.
    """
    x = Centred(features)
    weight = torch.zeros(classes, features.shape[1], dtype=torch.float64, requires_grad=True)
    bias = torch.zeros(classes, dtype=torch.float64, requires_grad=True)
    labels = labels.double() if labels.is_floating_point() else labels

    def minimise(penalty: float) -> Head:
        optimizer = torch.optim.LBFGS([weight, bias], max_iter=200, tolerance_change=1e-10, line_search_fn="strong_wolfe")

        def objective() -> Tensor:
            on_step()
            optimizer.zero_grad()
            value = loss(F.linear(x.features, weight, bias), labels) + penalty / 2 * weight.square().sum()
            value.backward()
            return value

        optimizer.step(objective)  # starts from the result of the stronger penalty
        return x.head(weight.detach().clone(), bias.detach().clone())

    for penalty in sorted(penalties, reverse=True):
        with torch.enable_grad():
            head = minimise(penalty)
        yield head


def ridge_heads(features: Tensor, labels: Tensor, *, classes: int, ridges: Sequence[float] = RIDGES) -> Iterator[Head]:
    """Yield ridge regression heads in closed form, for each λ of ``ridges`` and each of `SCALES`.

    They map `Centred` features to 1 for an image's classes and −1 for others: ``W = (XᵀX + λ·N·I)⁻¹ XᵀY`` (Hoerl and Kennard
    1970), computed by one decomposition for all λ.
    """
    x = Centred(features)
    sums, counts = _by_class(x.features, labels, classes)
    mean = 2 * counts / len(features) - 1
    values, vectors = torch.linalg.eigh(x.features.mT @ x.features / len(features))
    projected = vectors.mT @ (2 * sums.mT) / len(features)  # this is XᵀY, since the columns of X have sum 0
    for ridge in ridges:
        weight = vectors @ (projected / (values.clamp(min=0) + ridge)[:, None])
        head = x.head(weight.mT, mean)
        for scale in SCALES:
            yield head.scaled(scale)


def neighbours(
    features: Tensor,
    labels: Tensor,
    queries: Tensor,
    *,
    classes: int,
    count: int = NEIGHBOURS,
    among_others: bool = False,
    on_step: OnStep = lambda: None,
) -> Tensor:
    """Return the weighted mean label of each query's nearest images, as log-odds: (M, classes).

    Neighbours are found by cosine and have the weight ``exp(cosine / 0.07)`` (Wu et al. 2018, section 3.4). With ``among_others``
    the queries are the ``features``, and no image is its own neighbour. ``on_step`` is called before each part of the queries.
    """
    known, count = F.normalize(features, dim=1), min(count, len(features) - among_others)
    found: list[Tensor] = []
    for part in F.normalize(queries, dim=1).split(max(1, NUMBERS // max(len(known), count * classes))):
        on_step()
        similar = part @ known.mT
        if among_others:
            similar.diagonal(sum(map(len, found))).fill_(-torch.inf)
        cosine, index = similar.topk(count, dim=1)
        weights = (cosine / 0.07).softmax(dim=1)
        if labels.is_floating_point():
            found.append((weights[:, :, None] * labels[index]).sum(dim=1))
        else:
            found.append(torch.zeros(len(part), classes).scatter_add_(1, labels[index], weights))
    votes = torch.cat(found).clamp(1e-4, 1 - 1e-4)
    return votes.logit()


def _by_class(features: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Return the sum of features of each class, (classes, D), and the number of images of each class, (classes,)."""
    if labels.is_floating_point():
        return labels.to(features.dtype).mT @ features, labels.sum(dim=0, dtype=features.dtype)
    sums = torch.zeros(classes, features.shape[1], dtype=features.dtype).index_add_(0, labels, features)
    return sums, torch.bincount(labels, minlength=classes).to(features.dtype)
