"""Losses of segmentation: cross-entropy and Dice, over the pixels whose class is known."""

import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.tasks.segmentation.settings import SegmentationSettings
from vitrail.tasks.segmentation.windows import resized

IGNORED = -100
"""Target of a pixel without a known class, for torch's cross-entropy."""


def mask_loss(logits: Tensor, masks: Tensor, settings: SegmentationSettings) -> Tensor:
    """Return the weighted sum of cross-entropy and Dice, a scalar; 0 if no pixel has a known class.

    Args:
        logits: (B, K, h, w), resized to the masks bilinearly.
        masks: class indices, int64 (B, H, W); any index from K on is void.
        settings: the weights of both losses and of the classes.
    """
    logits = resized(logits.float(), (masks.shape[-2], masks.shape[-1]))
    weights = settings.weights
    loss = logits.new_zeros(())
    if settings.cross_entropy:
        loss = loss + settings.cross_entropy * cross_entropy(
            logits, masks, None if weights is None else logits.new_tensor(weights)
        )
    if settings.dice:
        loss = loss + settings.dice * dice_loss(logits, masks)
    return loss


def cross_entropy(logits: Tensor, masks: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return the mean over all known pixels of (B, K, H, W) logits, with ``weights`` (K,) the weighted mean; 0 for none."""
    targets = masks.where(masks < logits.shape[1], IGNORED)
    total = F.cross_entropy(logits, targets, weights, ignore_index=IGNORED, reduction="sum")
    known = targets[targets != IGNORED]
    if weights is None:
        return total / max(known.numel(), 1)
    return total / weights[known].sum().clamp(min=1e-6)


def dice_loss(logits: Tensor, masks: Tensor) -> Tensor:
    """Return 1 − 2 Σ p·t / (Σ p + Σ t), where p are probabilities and t is 1 at a class's pixels (Milletari et al. 2016).

    Sums are over the known pixels of the batch, and the loss is the mean over the classes that they have; 0 for none.
    """
    classes = logits.shape[1]
    known = masks < classes  # (B, H, W)
    targets = masks.where(known, 0)
    counts = torch.bincount(masks[known], minlength=classes)
    probabilities = logits.softmax(dim=1) * known[:, None]
    matched = probabilities.gather(1, targets[:, None])
    both = torch.zeros(classes, device=logits.device).scatter_add(0, targets.flatten(), matched.flatten())
    losses = 1 - 2 * both / (probabilities.sum(dim=(0, 2, 3)) + counts).clamp(min=1e-6)
    return losses[counts > 0].sum() / max(1, int((counts > 0).sum()))
