"""Mixup and CutMix: images and targets are mixed with those of a neighbour in the batch."""

from collections.abc import Mapping, Sequence

import numpy as np


def partners(count: int, step: int) -> np.ndarray:
    """Return the position of each sample's partner in a batch of ``count``: ``step`` positions further on, cyclically.

    The array is empty for fewer than ``2 * step`` samples, where two copies of one image could become partners.
    """
    return np.roll(np.arange(count), -step) if count >= 2 * step else np.arange(0)


def mix(
    batch: Mapping[str, np.ndarray],
    others: Mapping[str, np.ndarray],
    randoms: Sequence[np.random.Generator],
    *,
    mixup: float,
    cutmix: float,
) -> dict[str, np.ndarray]:
    """Mix every sample with its partner.

    Mixup (Zhang et al. 2018, https://arxiv.org/abs/1710.09412) blends the two images; CutMix (Yun et al. 2019,
    https://arxiv.org/abs/1905.04899) replaces a rectangle of the image by the partner's pixels. Targets are mixed with the same
    weights, for CutMix the fractions of the pixels.

    Args:
        batch: ``images``, uint8 (B, C, H, W), and targets, float32 (B, …), by name.
        others: the partners, with the same names and shapes.
        randoms: B random generators, one for each sample.
        mixup: the weight of the image is drawn from Beta(mixup, mixup); 0 switches mixup off.
        cutmix: the fraction of the image that stays is drawn from Beta(cutmix, cutmix), before the rectangle is clipped to the
            image; 0 switches CutMix off. With both, each sample draws one of the two with equal probability.

    Returns:
        The mixed images and targets, with the same names, types and shapes.
    """
    pixels, other_pixels = batch["images"], others["images"]
    cut, weights, shares = pixels.copy(), np.ones(len(pixels), np.float32), np.ones(len(pixels), np.float32)
    for i, random in enumerate(randoms):
        if mixup and not (cutmix and random.random() < 0.5):
            weights[i] = shares[i] = random.beta(mixup, mixup)
        else:
            rows, columns = _rectangle(pixels.shape[2], pixels.shape[3], random.beta(cutmix, cutmix), random)
            cut[i, :, rows, columns] = other_pixels[i, :, rows, columns]
            shares[i] = 1 - cut[i, 0, rows, columns].size / cut[i, 0].size
    mixed = _between(other_pixels, cut, weights[:, None, None, None]) if mixup else cut
    targets = {
        name: _between(others[name], batch[name], shares.reshape(-1, *[1] * (batch[name].ndim - 1)))
        for name in batch.keys() - {"images"}
    }
    return {"images": np.rint(mixed).astype(np.uint8), **targets}


def _between(a: np.ndarray, b: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Interpolate between ``a`` (weight 0) and ``b`` (weight 1); where the two are equal the result is exactly ``a``."""
    a, b = a.astype(np.float32), b.astype(np.float32)
    return a + weight * (b - a)


def _rectangle(height: int, width: int, kept: float, random: np.random.Generator) -> tuple[slice, slice]:
    """Draw the rows and columns of a rectangle around a random point, with the image's shape and ``1 - kept`` of its area."""
    side = np.sqrt(1 - kept)
    rows, columns = round(height * side), round(width * side)
    top, left = (int(random.integers(size) - part // 2) for size, part in ((height, rows), (width, columns)))
    return slice(max(0, top), min(height, top + rows)), slice(max(0, left), min(width, left + columns))
