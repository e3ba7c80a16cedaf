"""What moves from step to step: the learning rate, the share of patches that are left out, and the size of the images."""

import math

from vitrail.checks import nearest_multiple
from vitrail.config.settings import ScheduleSettings


def learning_rate_factor(settings: ScheduleSettings, step: int, *, warmup: int, total: int) -> float:
    """What the learning rate is multiplied by in step ``step`` of ``total``, both counted from 0.

    It grows linearly over ``warmup`` steps, reaching 1 at its end; then it stays (constant), or falls to
    ``settings.final`` at step ``total``: along a line, or along ``(1 + cos πt) / 2`` (Loshchilov and Hutter 2017); or it falls
    with the root of the steps made, as if there were no end (inverse-sqrt; Vaswani et al. 2017, section 5.3).
    """
    if step < warmup:
        return (step + 1) / (warmup + 1)
    if settings.name == "constant":
        return 1.0
    if settings.name == "inverse-sqrt":
        return math.sqrt((warmup + 1) / (step + 1))
    t = (step - warmup) / max(1, total - warmup)
    left = 1 - t if settings.name == "linear" else (1 + math.cos(math.pi * t)) / 2
    return settings.final + (1 - settings.final) * left


def warmup_steps(settings: ScheduleSettings, *, epoch: int, total: int) -> int:
    """How many of ``total`` steps, of which an epoch has ``epoch``, the learning rate grows in: never more than half."""
    return min(max(round(settings.warmup_epochs * epoch), round(settings.warmup_share * total)), total // 2)


def patch_dropout_at(settings: ScheduleSettings, share: float, step: int, *, total: int) -> float:
    """The share of patches left out in step ``step`` of ``total``, counted from 0, of a model that leaves out ``share``.

    Falling along a line to 0 at step ``total``, a run learns the most from cheap, partial images and ends on whole ones.
    """
    return share if settings.patch_dropout == "constant" else share * (1 - step / max(1, total))


GROWN = 0.8
"""Share of a run after which images have their full size."""


def image_size_at(
    settings: ScheduleSettings, full: tuple[int, int], patch: tuple[int, int], step: int, *, total: int
) -> tuple[int, int]:
    """Height and width of the images in step ``step`` of ``total``, counted from 0: whole patches, along a line.

    Progressive resizing (Howard 2018, https://www.fast.ai/posts/2018-04-30-dawnbench-fastai.html): the first steps are cheap.
    """
    if not settings.shrinks_images:
        return full
    t = min(1.0, step / (GROWN * max(1, total)))
    sides = zip(*first_and_last_image_size(settings, full), patch, strict=True)
    height, width = (nearest_multiple(first + (last - first) * t, side) for first, last, side in sides)
    return height, width


def first_and_last_image_size(
    settings: ScheduleSettings, full: tuple[int, int]
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Height and width of the images in the first and in the last step, in pixels."""
    last = _in_pixels(settings.last_image_size or full, full)
    return _in_pixels(settings.first_image_size or last, full), last


def _in_pixels(given: tuple[float, float], full: tuple[int, int]) -> tuple[float, float]:
    """Height and width; what is 1 or less is a share of the full size."""
    height, width = (side if side > 1 else side * own for side, own in zip(given, full, strict=True))
    return height, width
