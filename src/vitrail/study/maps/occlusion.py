"""Test of a map by occlusion: patches are removed in the order of the map, and the model predicts again.

Deletion and insertion after Petsiuk et al. 2018 (https://arxiv.org/abs/1806.07421), patch by patch. A removed patch is painted
in one colour, the mean of the images.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from vitrail.study.maps.patch_coordinates import Places
from vitrail.study.quality.calibration import wilson_interval

SHARES = (0.0, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9, 1.0)
"""Fractions of the patches that are removed, step by step."""


def without_patches(
    images: Tensor, scores: Tensor, share: float, *, places: Places | None = None, colour: Tensor | None = None
) -> Tensor:
    """Paint over the patches with the highest scores.

    Args:
        images: (B, C, H, W).
        scores: (B, rows, columns).
        share: fraction of the patches to paint, highest scores first; equal scores in the order of the patches.
        places: coordinates of the patches, from `vitrail.study.patch_places`; by default they divide the images evenly.
        colour: colour of painted patches, (C,); by default the mean of these images.
    """
    count, grid = round(share * scores[0].numel()), (scores.shape[1], scores.shape[2])
    first = scores.flatten(1).argsort(dim=1, descending=True, stable=True)[:, :count]
    taken = torch.zeros_like(scores).flatten(1).scatter(1, first, 1.0).unflatten(1, grid)
    places = places or Places.even(grid, (images.shape[2], images.shape[3]))
    colour = images.mean(dim=(0, 2, 3)) if colour is None else colour
    return torch.where(places.on_pixels(taken)[:, None] > 0, colour[:, None, None], images)


@torch.no_grad()
def deletion(
    model: nn.Module,
    images: Tensor,
    scores: Tensor,
    labels: Tensor,
    *,
    shares: Sequence[float] = SHARES,
    places: Places | None = None,
    colour: Tensor | None = None,
    multi_label: bool = False,
    on_pass: Callable[[int], None] = lambda images: None,
) -> tuple[Tensor, Tensor]:
    """Measure a model's predictions while patches are removed, highest scores first.

    With ``-scores`` the lowest are removed first; read from the end, this is insertion of the best patches.

    Args:
        model: maps (B, C, H, W) to logits.
        images: prepared.
        scores: a map, (B, rows, columns).
        labels: int64 (B,), the classes to measure.
        shares: fraction of removed patches in each step.
        places, colour: coordinates and colour of removed patches, as in `without_patches`.
        multi_label: each class has its own probability, from a sigmoid.
        on_pass: receives the number of images of every step.

    Returns:
        whether the class still has the highest logit, bool (steps, B), and its probability, (steps, B).
    """
    correct, probability = [], []
    for share in shares:
        logits = model(without_patches(images, scores, share, places=places, colour=colour)).float()
        correct.append(logits.argmax(dim=1) == labels)
        chances = logits.sigmoid() if multi_label else logits.softmax(dim=1)
        probability.append(chances.gather(1, labels[:, None])[:, 0])
        on_pass(len(images))
    return torch.stack(correct), torch.stack(probability)


def area(curve: Sequence[float], shares: Sequence[float] = SHARES) -> float:
    """Return the area below a curve over the fractions."""
    return float(np.trapezoid(curve, shares))


def faster(by_map: Sequence[float], at_random: Sequence[float]) -> dict[str, float]:
    """Count images whose probability falls faster by the map than at random, of those with a difference; 95 % (Wilson 1927)."""
    mapped, chance = np.asarray(by_map), np.asarray(at_random)
    images, count = int((mapped < chance).sum()), int((mapped != chance).sum())
    low, high = wilson_interval(images, count) if count else (0.0, 1.0)
    return {"images": images, "of": count, "low": low, "high": high}


def verdict(by_map: Sequence[float], at_random: Sequence[float]) -> str:
    """Return a sentence on whether a map is better than random, by two standard errors of the mean difference in area."""
    gain = np.subtract(at_random, by_map)
    error = float(np.std(gain, ddof=1) / np.sqrt(len(gain))) if len(gain) > 1 else np.inf
    sure = f" (a difference of {100 * gain.mean():.0f} ± {200 * error:.0f} points)" if np.isfinite(error) else ""
    words = (
        f"With the most relevant patches taken away first {100 * np.mean(by_map):.0f} % are left on average, at random "
        f"{100 * np.mean(at_random):.0f} %{sure}: "
    )
    if abs(gain.mean()) <= 2 * error:
        words += f"{len(gain)} image{'s' if len(gain) > 1 else ''} cannot tell whether the map points at what matters."
    else:
        words += "the map points at what matters." if gain.mean() > 0 else "the map points away from what matters."
    each = faster(by_map, at_random)
    if not each["of"]:
        return words
    share = f"95 % interval {100 * each['low']:.0f} to {100 * each['high']:.0f} %"
    return f"{words} Answers fall faster by the map in {each['images']} of {each['of']} images that tell a difference ({share})."
