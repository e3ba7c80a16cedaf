"""Mixup and CutMix: images and targets mixed with their neighbours in the batch."""

from collections.abc import Mapping, Sequence

import numpy as np


def partners(count: int, step: int) -> np.ndarray:
    """Return the position of every sample's partner in a batch: ``step`` further on, the last with the first.

    No sample has one in a batch of fewer than ``2 step``, where a copy of an image might meet another.
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

    Mixup (Zhang et al. 2018, https://arxiv.org/abs/1710.09412) lays both images over each other, CutMix (Yun et al.
    2019, https://arxiv.org/abs/1905.04899) puts a rectangle of the other in the image's place. Targets are mixed in the
    shares that the two images have of the pixels.

    Args:
        batch: ``images``, uint8 (B, C, H, W), and targets, float32 (B, …).
        others: the partners, of the same names and shapes.
        randoms: each sample's own randomness (B,).
        mixup: the weight of an image is drawn from Beta(mixup, mixup); 0 is without.
        cutmix: one less the rectangle's share is drawn from Beta(cutmix, cutmix), before its edges are cut to the image;
            0 is without. With both each sample draws one of them, half and half.

    Returns:
        The same names, kinds and shapes.
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
    """Return ``a`` at weight 0 and ``b`` at weight 1; exactly ``a`` where the two are equal."""
    a, b = a.astype(np.float32), b.astype(np.float32)
    return a + weight * (b - a)


def _rectangle(height: int, width: int, kept: float, random: np.random.Generator) -> tuple[slice, slice]:
    """Draw rows and columns of ``1 - kept`` of the area, shaped as the image, about a point anywhere in it."""
    side = np.sqrt(1 - kept)
    rows, columns = round(height * side), round(width * side)
    top, left = (int(random.integers(size) - part // 2) for size, part in ((height, rows), (width, columns)))
    return slice(max(0, top), min(height, top + rows)), slice(max(0, left), min(width, left + columns))
