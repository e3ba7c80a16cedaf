"""Reliability of scores: the confidence interval of a fraction, and the calibration of probabilities."""

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

BINS = 15
"""Bins of equal width, as in Guo et al. 2017."""


def wilson_interval(hits: int, images: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return Wilson's score interval of a fraction, which is valid for few images and near 0 and 1 (Wilson 1927)."""
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share, weight = hits / images, z * z / images
    centre = (share + weight / 2) / (1 + weight)
    half = z * np.sqrt((share * (1 - share) + weight / 4) / images) / (1 + weight)
    low, high = float(centre - half), float(centre + half)
    return 0.0 if hits == 0 else low, 1.0 if hits == images else high  # exact, despite rounding


@dataclass(frozen=True)
class Calibration:
    """Predictions in bins of equal width by their probability; all arrays are (bins,), and means of empty bins NaN."""

    counts: np.ndarray
    probability: np.ndarray
    """Mean probability."""
    share: np.ndarray
    """Fraction of them that is true."""

    @property
    def error(self) -> float:
        """Expected calibration error, equation (3) of Guo et al. 2017: the mean distance of probability and true fraction."""
        return self._mean(np.abs(self.probability - self.share))

    @property
    def mean_probability(self) -> float:
        """Mean probability of all predictions."""
        return self._mean(self.probability)

    @property
    def mean_share(self) -> float:
        """Fraction of all predictions that is true."""
        return self._mean(self.share)

    @property
    def verdict(self) -> str:
        """A sentence that says whether the model is overconfident, underconfident, or neither within the uncertainty."""
        low, high = wilson_interval(round(self.mean_share * self.counts.sum()), self.counts.sum())
        words = f"its mean probability is {100 * self.mean_probability:.1f} %, and {100 * self.mean_share:.1f} % are correct"
        if low <= self.mean_probability <= high:
            return f"The model's confidence fits its accuracy: {words}."
        return f"The model is {'over' if self.mean_probability > high else 'under'}confident: {words}."

    def _mean(self, values: np.ndarray) -> float:
        return float(np.nansum(self.counts * values) / self.counts.sum())


def calibration(probabilities: np.ndarray, true: np.ndarray, bins: int = BINS) -> Calibration:
    """Compare probabilities with the truth (Guo et al. 2017, https://arxiv.org/abs/1706.04599).

    Args:
        probabilities: (N,) probabilities of N statements, such as "the predicted class is correct".
        true: (N,) truth of each statement.
        bins: number M of bins; bin m holds the probabilities above (m − 1) / M, up to m / M.
    """
    edges = np.linspace(0, 1, bins + 1)
    index = np.searchsorted(edges[1:-1], probabilities, side="left")
    counts = np.bincount(index, minlength=bins)
    with np.errstate(invalid="ignore"):
        probability, share = (np.bincount(index, weights=values, minlength=bins) / counts for values in (probabilities, true))
    return Calibration(counts, probability, share)
