"""Heads fitted to a frozen model's features of images: linear by a loss, ridge, and nearest neighbours."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

Loss = Callable[[Tensor, Tensor], Tensor]
"""Logits and labels to the mean loss."""
OnStep = Callable[[], None]
PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""Weights of half the squared norm of a linear head, beside the mean loss."""
RIDGES = (1e-2, 1e-1, 1.0, 10.0, 100.0)
"""Weights of the squared norm of a ridge head, per image."""
SCALES = tuple(2.0**k for k in range(-1, 7))
"""Factors that turn the scores of ridge, which lie between −1 and 1, into logits."""
NEIGHBOURS = 20
NUMBERS = 2**25
"""Most numbers of a table of neighbours that is held at a time."""


@dataclass(frozen=True)
class Head:
    """A linear layer: ``logits = features · weightᵀ + bias``."""

    weight: Tensor
    """(classes, D)."""
    bias: Tensor
    """(classes,)."""

    def __call__(self, features: Tensor) -> Tensor:
        """Return logits: (N, D) to (N, classes)."""
        return F.linear(features, self.weight, self.bias)

    def scaled(self, factor: float) -> "Head":
        """Return a head with logits so many times as large."""
        return Head(self.weight * factor, self.bias * factor)


class Centred:
    """Features (N, D) around their mean and with one scale for all, in float64.

    One scale, not one for each feature: on few images the large features are the ones to go by.
    """

    def __init__(self, features: Tensor):
        features = features.double()
        self.mean = features.mean(dim=0)
        self.scale = (features - self.mean).square().mean().sqrt().clamp(min=1e-12)
        self.features = (features - self.mean) / self.scale

    def head(self, weight: Tensor, bias: Tensor) -> Head:
        """Return a head on the features themselves from one (classes, D) on the centred features."""
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
    """Yield heads that minimise ``loss + penalty/2 · ‖W‖²`` for each penalty, the strongest first, by L-BFGS.

    Args:
        features: float32 (N, D).
        labels: as ``loss`` takes them.
        loss: convex in the logits.
        classes: their number.
        penalties: for `Centred` features.
        on_step: called before each evaluation of the loss; what it raises ends the fit.
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

        optimizer.step(objective)  # from where the stronger penalty ended
        return x.head(weight.detach().clone(), bias.detach().clone())

    for penalty in sorted(penalties, reverse=True):
        with torch.enable_grad():
            head = minimise(penalty)
        yield head


def ridge_heads(features: Tensor, labels: Tensor, *, classes: int, ridges: Sequence[float] = RIDGES) -> Iterator[Head]:
    """Yield least squares from `Centred` features to 1 for an image's classes and −1 for others, for each ridge, in closed form.

    ``W = (XᵀX + λ·N·I)⁻¹ XᵀY`` (Hoerl and Kennard 1970), by one decomposition for all λ, each at all of `SCALES`.
    """
    x = Centred(features)
    sums, counts = _by_class(x.features, labels, classes)
    mean = 2 * counts / len(features) - 1
    values, vectors = torch.linalg.eigh(x.features.mT @ x.features / len(features))
    projected = vectors.mT @ (2 * sums.mT) / len(features)  # XᵀY, as the columns of X have sum 0
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
    on_step: OnStep = lambda: None,
) -> Tensor:
    """Return the mean label of the nearest images by cosine, nearer ones counting more, as log-odds: (M, classes).

    Each counts ``exp(cosine / 0.07)`` (Wu et al. 2018, section 3.4). ``on_step`` is called before each part of the queries.
    """
    known, count = F.normalize(features, dim=1), min(count, len(features))
    found = []
    for part in F.normalize(queries, dim=1).split(max(1, NUMBERS // max(len(known), count * classes))):
        on_step()
        cosine, index = (part @ known.mT).topk(count, dim=1)
        weights = (cosine / 0.07).softmax(dim=1)
        if labels.is_floating_point():
            found.append((weights[:, :, None] * labels[index]).sum(dim=1))
        else:
            found.append(torch.zeros(len(part), classes).scatter_add_(1, labels[index], weights))
    votes = torch.cat(found).clamp(1e-4, 1 - 1e-4)
    return votes.logit()


def _by_class(features: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Return the sum of the features of each class's images, (classes, D), and their number, (classes,)."""
    if labels.is_floating_point():
        return labels.to(features.dtype).mT @ features, labels.sum(dim=0, dtype=features.dtype)
    sums = torch.zeros(classes, features.shape[1], dtype=features.dtype).index_add_(0, labels, features)
    return sums, torch.bincount(labels, minlength=classes).to(features.dtype)
