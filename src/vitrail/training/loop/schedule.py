"""The schedules of the learning rate and of weight decay."""

import math

from vitrail.tasks.settings import ScheduleSettings


def half_cosine(t: float) -> float:
    """Return ``(1 + cos πt) / 2``, which falls from 1 at t = 0 to 0 at t = 1 and stays there."""
    return (1 + math.cos(math.pi * min(1.0, t))) / 2


def learning_rate_factor(settings: ScheduleSettings, step: int, *, warmup: int, total: int) -> float:
    """Return the factor on the learning rate in step ``step`` of ``total``, both counted from 0.

    It grows linearly over ``warmup`` steps to 1. Then it stays (constant), falls to ``settings.final`` at step ``total``, along a
    line or along ``(1 + cos πt) / 2`` (Loshchilov and Hutter 2017), or falls with the square root of the steps, independent of
    ``total`` (inverse-sqrt; Vaswani et al. 2017, section 5.3).
    """
    if step < warmup:
        return (step + 1) / (warmup + 1)
    if settings.name == "constant":
        return 1.0
    if settings.name == "inverse-sqrt":
        return math.sqrt((warmup + 1) / (step + 1))
    t = (step - warmup) / max(1, total - warmup)
    left = 1 - t if settings.name == "linear" else half_cosine(t)
    return settings.final + (1 - settings.final) * left


def weight_decay_factor(settings: ScheduleSettings, step: int, *, total: int) -> float:
    """Return the factor on the weight decay in step ``step`` of ``total``: from 1 to ``settings.final_weight_decay``.

    It follows half a cosine, as in DINO (Caron et al. 2021, https://arxiv.org/abs/2104.14294).
    """
    left = half_cosine(step / max(1, total))
    return settings.final_weight_decay + (1 - settings.final_weight_decay) * left


def warmup_steps(settings: ScheduleSettings, *, epoch: int, total: int) -> int:
    """Return the number of warmup steps, at most half of ``total``; an epoch has ``epoch`` steps."""
    return min(max(round(settings.warmup_epochs * epoch), round(settings.warmup_share * total)), total // 2)
