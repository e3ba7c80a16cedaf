"""Estimate of the main memory that a run needs; too large a run is refused, before the system kills it without a message."""

import math

from vitrail.config.settings import RunSettings
from vitrail.errors import ConfigError
from vitrail.models.cost import cost
from vitrail.runtime.device import pick_device
from vitrail.runtime.memory import available_memory
from vitrail.tasks.image_schedule import first_and_last_image_size
from vitrail.training.run_data import run_data_of

NUMBER = 4
"""Bytes of a float32 value: of a weight, its gradient, or the optimizer's state for it."""
KEPT = {"adamw": 2, "adam": 2, "muon": 1, "sgd": 1}
"""Values that an optimizer stores for every weight, at least."""
SURE = 0.5
"""Fraction of the layers' inputs that is certainly stored for the backward pass; some layers share their input."""
LAYERS = ("Linear", "Conv2d")
"""Types of layers that store their input for the backward pass."""


def require_memory(settings: RunSettings, processes: int = 1, *, images: int | None = None) -> None:
    """Raise `ConfigError` if a run needs more memory than is free; ``images`` is the number of training images."""
    free = available_memory()
    if free is None:
        return
    weights, batch = least_memory(settings, processes, images=images)
    if weights + batch <= free:
        return
    hint = "take a smaller model or image, or --tune head"
    if settings.training.batch_size != "auto" and weights <= free:
        hint = "add --training.recompute or --batch-size auto, or take a smaller model or image"
    raise ConfigError(
        f"training needs at least {(weights + batch) / 2**30:,.1f} GiB ({weights / 2**30:,.1f} for weights, gradients and the "
        f"optimizer, {batch / 2**30:,.1f} for a batch of images), and {free / 2**30:,.1f} GiB are free",
        where="memory",
        hint=hint,
    )


def least_memory(settings: RunSettings, processes: int = 1, *, images: int | None = None) -> tuple[float, float]:
    """Return the least main memory of a training in bytes: for weights, gradients and optimizer, and for a batch.

    A batch has at most ``images`` times the augmentation's repeats. For a device other than the CPU, only the weights count,
    as they are created in main memory.
    """
    t, counted = settings.training, cost(settings.model.config)
    weights = float(NUMBER * counted.parameters)
    if pick_device(t.device).type != "cpu" or t.tune != "all" or t.frozen_share or settings.optimizer.layers:
        return weights, 0.0
    shared = processes if t.parallel == "fsdp" else 1
    kept = weights * (1 + KEPT[settings.optimizer.name] + (t.ema > 0)) / shared + weights * min(t.average, t.epochs)
    if t.batch_size == "auto" or t.recompute or not run_data_of(settings).counts_batch_memory:
        return weights + kept, 0.0
    inputs = sum(math.prod(layer.input) for layer in counted.layers if layer.kind in LAYERS)
    seen = 1 - getattr(settings.model, "patch_dropout", 0.0)
    if settings.schedule.last_image_size is not None:
        full = settings.model.config.image_size
        _, last = first_and_last_image_size(settings.schedule, full)
        seen *= math.prod(last) / math.prod(full)
    number = NUMBER if t.precision == "fp32" else NUMBER / 2
    largest = t.batch if images is None else min(t.batch, images * settings.augmentation.repeats)
    return weights + kept, SURE * number * inputs * seen * largest / t.accumulate / processes
