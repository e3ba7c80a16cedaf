"""The schedules of patch dropout and image size."""

from vitrail.checks import nearest_multiple
from vitrail.errors import ConfigError
from vitrail.tasks.settings import ScheduleSettings

GROWN = 0.8
"""Fraction of a run after which images have their full size."""


def patch_dropout_at(settings: ScheduleSettings, share: float, step: int, *, total: int) -> float:
    """Return the fraction of patches to drop in ``step`` (from 0) of ``total``, for a model with the patch dropout ``share``.

    With the schedule "falling" the fraction decreases linearly to 0 at step ``total``: the first steps are cheap, and the last
    ones see complete images.
    """
    return share if settings.patch_dropout == "constant" else share * (1 - step / max(1, total))


def image_size_at(
    settings: ScheduleSettings, full: tuple[int, int], patch: tuple[int, int], step: int, *, total: int
) -> tuple[int, int]:
    """Return height and width of the images in ``step`` (from 0) of ``total``; they grow linearly, in whole patches.

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
    """Return (height, width) of the images in the first step and in the last step, in pixels."""
    last = _in_pixels(settings.last_image_size or full, full)
    return _in_pixels(settings.first_image_size or last, full), last


def _in_pixels(given: tuple[float, float], full: tuple[int, int]) -> tuple[float, float]:
    """Return height and width in pixels; a number up to 1 is a fraction of the full size."""
    height, width = (side if side > 1 else side * own for side, own in zip(given, full, strict=True))
    return height, width


def require_smaller_images(schedule: ScheduleSettings, full: tuple[int, int]) -> None:
    """Raise `ConfigError` if images would shrink during the run, or become larger than the model's images."""
    first, last = first_and_last_image_size(schedule, full)
    for name, given, bound, whose in (("last", last, full, "the model's"), ("first", first, last, "the last ones'")):
        if any(a > b for a, b in zip(given, bound, strict=True)):
            raise ConfigError(
                f"{given[0]:g} × {given[1]:g} is larger than {whose} {bound[0]:g} × {bound[1]:g}",
                where=f"schedule.{name}_image_size",
                hint="give a smaller size here, or a larger --image-size",
            )
