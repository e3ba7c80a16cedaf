"""How like real images made images are: distances between two sets of vectors (N, D).

Every figure means something only beside its floor, the same between two sets of real images of the same size.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from vitrail.data.images.preparation import Preparation

NEIGHBOURS = 3
"""Neighbour whose distance is the radius of a vector's surroundings."""


def frechet_distance(a: np.ndarray, b: np.ndarray) -> float:
    """Return ``|μ_a - μ_b|² + tr(C_a + C_b - 2 (C_a C_b)^½)`` (Heusel et al. 2017, https://arxiv.org/abs/1706.08500).

    With ``C = RᵀR`` the trace of ``(C_a C_b)^½`` is the sum of the singular values of ``R_a R_bᵀ``, which is no larger than the
    number of vectors.
    """
    r_a, r_b = _covariance_root(a), _covariance_root(b)
    apart = np.square(a.mean(axis=0) - b.mean(axis=0)).sum()
    crossed = np.linalg.svd(r_a @ r_b.T, compute_uv=False).sum()
    return float(apart + np.square(r_a).sum() + np.square(r_b).sum() - 2 * crossed)


def _covariance_root(vectors: np.ndarray) -> np.ndarray:
    """Return R with the covariance ``RᵀR``: (min(N, D), D)."""
    return np.asarray(np.linalg.qr((vectors - vectors.mean(axis=0)) / math.sqrt(len(vectors) - 1), mode="r"))


def kernel_distance(a: np.ndarray, b: np.ndarray) -> float:
    """Return the unbiased squared distance of means under ``(x·y / D + 1)³`` (Binkowski et al. 2018,
    https://arxiv.org/abs/1801.01401); below zero where the sets are alike.
    """

    def kernel(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return (x @ y.T / x.shape[1] + 1) ** 3

    def apart(x: np.ndarray) -> float:
        values = kernel(x, x)
        return float((values.sum() - np.trace(values)) / (len(x) * (len(x) - 1)))

    return apart(a) + apart(b) - 2 * float(kernel(a, b).mean())


def distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the Euclidean distances of all pairs: (N, D) and (M, D) to (N, M)."""
    squares = np.square(a).sum(axis=1)[:, None] + np.square(b).sum(axis=1)[None] - 2 * a @ b.T
    return np.sqrt(squares.clip(min=0))


def covered(points: np.ndarray, by: np.ndarray) -> float:
    """Return the fraction of points within the surroundings of a vector of ``by`` (Kynkäänniemi et al. 2019).

    Precision counts made images among real ones, recall the reverse; https://arxiv.org/abs/1904.06991.
    """
    own = distances(by, by)
    np.fill_diagonal(own, 0)
    radius = np.sort(own, axis=1)[:, NEIGHBOURS]
    return float((distances(points, by) <= radius).any(axis=1).mean())


def pixel_vectors(images: Sequence[Any], preparation: Preparation) -> np.ndarray:
    """Return prepared images as vectors of numbers from 0 to 1: (N, C · H · W)."""
    return np.stack([preparation.pixels(image).ravel() for image in images]) / 255.0


def standardized(vectors: np.ndarray, like: np.ndarray) -> np.ndarray:
    """Return vectors less the mean of ``like``, divided by its deviation, so that a kernel of pixels sees more than means."""
    return (vectors - like.mean(axis=0)) / max(float(like.std()), 1e-6)


def figures(real: np.ndarray, made: np.ndarray) -> dict[str, float]:
    """Return the distances of made images from real ones, and precision and recall, by name."""
    return {
        "frechet": frechet_distance(real, made),
        "kernel": kernel_distance(real, made),
        "precision": covered(made, by=real),
        "recall": covered(real, by=made),
    }
