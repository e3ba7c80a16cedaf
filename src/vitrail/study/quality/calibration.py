"""How far scores can be believed: the confidence interval of a share, and the calibration of probabilities."""

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

BINS = 15
"""Bins of equal width, as in Guo et al. 2017."""


def wilson_interval(hits: int, images: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the score-test interval of a share, which holds for few images and near 0 and 1 (Wilson 1927)."""
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share, weight = hits / images, z * z / images
    centre = (share + weight / 2) / (1 + weight)
    half = z * np.sqrt((share * (1 - share) + weight / 4) / images) / (1 + weight)
    low, high = float(centre - half), float(centre + half)
    return 0.0 if hits == 0 else low, 1.0 if hits == images else high  # exactly, where rounding would miss it


@dataclass(frozen=True)
class Calibration:
    """Statements in bins of equal width by the probability they were made with: numbers (bins,), means NaN in an empty one."""

    counts: np.ndarray
    probability: np.ndarray
    """Mean probability."""
    share: np.ndarray
    """Share of them that is true."""

    @property
    def error(self) -> float:
        """Expected calibration error, equation (3) of Guo et al. 2017: the mean distance of probability and share."""
        return self._mean(np.abs(self.probability - self.share))

    @property
    def mean_probability(self) -> float:
        """Mean probability of all statements."""
        return self._mean(self.probability)

    @property
    def mean_share(self) -> float:
        """Share of all statements that is true."""
        return self._mean(self.share)

    @property
    def verdict(self) -> str:
        """One sentence on guesses: whether the model is too sure, not sure enough, or neither as far as so many images show."""
        low, high = wilson_interval(round(self.mean_share * self.counts.sum()), self.counts.sum())
        words = (
            f"it gives its guesses {100 * self.mean_probability:.1f} % on average, and {100 * self.mean_share:.1f} % are correct"
        )
        if low <= self.mean_probability <= high:
            return f"On the whole the model is as sure as it should be: {words}."
        return f"The model is {'over' if self.mean_probability > high else 'under'}confident: {words}."

    def _mean(self, values: np.ndarray) -> float:
        return float(np.nansum(self.counts * values) / self.counts.sum())


def calibration(probabilities: np.ndarray, true: np.ndarray, bins: int = BINS) -> Calibration:
    """Compare probabilities with what became true (Guo et al. 2017, https://arxiv.org/abs/1706.04599).

    Args:
        probabilities: (N,) of N statements, such as "the best guess is correct".
        true: (N,) whether each is.
        bins: bin m of M holds the probabilities above (m − 1) / M, up to m / M.
    """
    edges = np.linspace(0, 1, bins + 1)
    index = np.searchsorted(edges[1:-1], probabilities, side="left")
    counts = np.bincount(index, minlength=bins)
    with np.errstate(invalid="ignore"):
        probability, share = (np.bincount(index, weights=values, minlength=bins) / counts for values in (probabilities, true))
    return Calibration(counts, probability, share)
