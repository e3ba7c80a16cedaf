"""The learning rate of every step."""

import math

from vitrail.training.settings import ScheduleSettings


def learning_rate_factor(settings: ScheduleSettings, step: int, *, warmup: int, total: int) -> float:
    """What the learning rate is multiplied by in step ``step`` of ``total``, both counted from 0.

    It grows linearly over ``warmup`` steps, reaching 1 at its end; then it stays (constant), or falls to
    ``settings.final`` at step ``total``: along a line, or along ``(1 + cos πt) / 2`` (Loshchilov and Hutter 2017).
    """
    if step < warmup:
        return (step + 1) / (warmup + 1)
    if settings.name == "constant":
        return 1.0
    t = (step - warmup) / max(1, total - warmup)
    left = 1 - t if settings.name == "linear" else (1 + math.cos(math.pi * t)) / 2
    return settings.final + (1 - settings.final) * left
