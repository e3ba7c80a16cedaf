"""Losses of segmentation, against sums written out by hand."""

import pytest
import torch
import torch.nn.functional as F

from vitrail.errors import ConfigError
from vitrail.tasks.segmentation.learning.losses import cross_entropy, dice_loss, mask_loss
from vitrail.tasks.segmentation.settings import SegmentationSettings

VOID = 255


def some(height=6, width=8, classes=3):
    random = torch.Generator().manual_seed(0)
    masks = torch.randint(0, classes - 1, (2, height, width), generator=random)  # the last class is nowhere
    masks[torch.rand(masks.shape, generator=random) < 0.2] = VOID
    return torch.randn(2, classes, height, width, generator=random).requires_grad_(), masks


@pytest.mark.parametrize("weights", [None, [1.0, 3.0, 0.0]])
def test_cross_entropy_is_the_mean_over_the_pixels_that_are_not_void(weights):
    logits, masks = some()
    total = weight = 0.0
    for image, mask in zip(logits.log_softmax(1), masks, strict=True):
        for row in range(6):
            for column in range(8):
                if (number := int(mask[row, column])) != VOID:
                    own = 1.0 if weights is None else weights[number]
                    total, weight = total - own * image[number, row, column].item(), weight + own
    loss = cross_entropy(logits, masks, None if weights is None else torch.tensor(weights))
    assert loss.item() == pytest.approx(total / weight, rel=1e-5)


def test_dice_is_the_mean_over_the_classes_of_the_masks():
    logits, masks = some()
    expected = []
    for number in range(2):
        p = logits.softmax(1)[:, number][masks != VOID]
        t = (masks[masks != VOID] == number).float()
        expected.append(1 - 2 * (p * t).sum() / (p.sum() + t.sum()))
    assert dice_loss(logits, masks).item() == pytest.approx(torch.stack(expected).mean().item(), rel=1e-5)


def test_void_has_no_gradient_and_an_empty_batch_a_loss_of_zero():
    logits, masks = some()
    settings = SegmentationSettings(dice=1.0)
    mask_loss(logits, masks, settings).backward()
    void = (masks == VOID)[:, None].expand_as(logits)
    assert not logits.grad[void].any() and logits.grad[~void].all()
    nothing = mask_loss(logits, torch.full_like(masks, VOID), settings)
    assert nothing.item() == 0 and nothing.requires_grad


def test_logits_are_resized_to_the_masks_and_both_losses_are_weighted():
    logits, masks = some()
    small = F.avg_pool2d(logits, 2)
    large = F.interpolate(small, masks.shape[-2:], mode="bilinear")
    settings = SegmentationSettings(cross_entropy=0.5, dice=2.0, class_weights=(1.0, 2.0, 1.0))
    expected = 0.5 * cross_entropy(large, masks, torch.tensor([1.0, 2.0, 1.0])) + 2 * dice_loss(large, masks)
    assert mask_loss(small, masks, settings).item() == pytest.approx(expected.item(), rel=1e-6)


@pytest.mark.parametrize(("fields", "says"), [({"cross_entropy": 0}, "are both 0"), ({"class_weights": [0, 0]}, "weights are 0")])
def test_a_loss_of_nothing_is_refused(fields, says):
    with pytest.raises(ConfigError, match=says):
        SegmentationSettings.read(fields).require_consistent()
