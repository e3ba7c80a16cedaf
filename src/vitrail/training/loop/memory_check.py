"""Refusal of runs that cannot fit into main memory, by a count, before the system ends the process without a word."""

import math

from vitrail.config.settings import RunSettings
from vitrail.errors import ConfigError
from vitrail.models.cost import cost
from vitrail.runtime.device import pick_device
from vitrail.runtime.memory import available_memory
from vitrail.tasks.image_schedule import first_and_last_image_size
from vitrail.training.run_data import run_data_of

NUMBER = 4
"""Bytes of a weight, of its gradient, and of each number that the optimizer holds of it."""
KEPT = {"adamw": 2, "adam": 2, "muon": 1, "sgd": 1}
"""Numbers that an optimizer holds of every weight, at least."""
SURE = 0.5
"""Fraction of the inputs of layers that is surely held for the gradient: two layers share some of them."""
LAYERS = ("Linear", "Conv2d")
"""Layers that hold their input."""


def require_memory(settings: RunSettings, processes: int = 1, *, images: int | None = None) -> None:
    """Raise `ConfigError` for a run that needs more memory than is free, at least; ``images`` are those to learn from."""
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
        f"training needs {(weights + batch) / 2**30:,.1f} GiB at least ({weights / 2**30:,.1f} for the weights and what is "
        f"kept of each, {batch / 2**30:,.1f} for the images of a batch), and {free / 2**30:,.1f} GiB are free",
        where="memory",
        hint=hint,
    )


def least_memory(settings: RunSettings, processes: int = 1, *, images: int | None = None) -> tuple[float, float]:
    """Return the bytes of main memory that training takes at least: for the weights with all numbers of each, and for a batch.

    A batch has no more than all ``images``, each as often as it is repeated. With another device, main memory holds only the
    weights as they are made.
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
