"""Search for the largest batch that fits into memory."""

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from vitrail.data.loading.batches import on_device
from vitrail.errors import ConfigError
from vitrail.runtime.memory import available_memory, forget_peak, memory_in_use, peak_memory
from vitrail.runtime.processor import processes_here
from vitrail.training.loop.trainer import Trainer

SHARE = 0.8
"""Fraction of the free memory that a batch may take; the rest is for later images and other programs."""


def largest_batch_size(
    make: Callable[[int], Trainer], most: int, device: torch.device, *, on_message: Callable[[str], None]
) -> int:
    """Return the largest batch size, up to ``most``, whose training steps fit into memory, to within an eighth.

    Each trial makes two full steps, since the optimizer's state exists only from the second step on. Sizes are doubled while
    twice the memory would fit; then sizes in between are tried.

    Args:
        make: creates a trainer for a batch size; it is discarded after the trial.
        most: largest batch size to try.
        device: device of the training, whose memory is measured.
        on_message: receives a line for every trial.

    Raises:
        ConfigError: a batch of one image does not fit.
    """
    gc.collect()
    base, free = _memory(device)
    limit = base + SHARE * free
    peaks: dict[int, float] = {}

    def fits(size: int) -> bool:
        peak = _peak_of(make, size, device)
        if peak is not None:
            peaks[size] = peak
            on_message(f"a batch of {size:,} takes {(peak - base) / 2**30:.2f} GiB of {(limit - base) / 2**30:.2f}")
        return peak is not None and peak <= limit

    size = 1
    if not fits(size):
        hint = "take a smaller model or image"
        raise ConfigError("a batch of one image does not fit into memory", where="training.batch_size", hint=hint)
    while size < most and base + 2 * (peaks[size] - base) <= limit and fits(min(2 * size, most)):
        size = min(2 * size, most)
    for eighths in (7, 6, 5, 4, 3, 2, 1):
        between = min(size + size * eighths // 8, most)
        per_image = (peaks[size] - base) / size
        if between > size and peaks[size] + (between - size) * per_image <= limit and fits(between):
            return between
    return size


def _peak_of(make: Callable[[int], Trainer], size: int, device: torch.device) -> float | None:
    """Return the peak memory of two training steps in bytes; None if they do not fit."""
    on_gpu = device.type == "cuda"
    torch.cuda.reset_peak_memory_stats() if on_gpu else forget_peak()
    try:
        _train_on(make(size), size)
        return float(torch.cuda.max_memory_reserved()) if on_gpu else peak_memory()
    except (torch.OutOfMemoryError, MemoryError):
        return None
    except RuntimeError as error:
        if "can't allocate memory" not in str(error):
            raise
        return None
    finally:
        gc.collect()
        if on_gpu:
            torch.cuda.empty_cache()


def _train_on(trainer: Trainer, size: int) -> None:
    """Make two steps on noise with the settings of a run's last step, at full image size."""
    dataset: Any = trainer.train_loader.dataset
    task: Any = trainer.learner.task
    shape = (size, task.preparation.channels, *task.preparation.image_size)
    batch = {"images": torch.randint(0, 256, shape, dtype=torch.uint8)}
    for name, array in dataset.targets(dataset.items[0], None, np.random.default_rng(0)).items():
        batch[name] = torch.from_numpy(array).expand(size, *array.shape).clone()
    batch = on_device(batch, trainer.device)
    for _ in range(2):
        trainer.learner.step(batch, done=max(0, trainer.total - 1), size=size, own=size)


def _memory(device: torch.device) -> tuple[float, float]:
    """Return the bytes in use and the bytes free, of the GPU, or of main memory within this process's limits."""
    if device.type == "cuda":
        return float(torch.cuda.memory_reserved()), float(torch.cuda.mem_get_info()[0])
    free = available_memory()
    return memory_in_use(), 2.0**31 if free is None else free / processes_here()  # all processes on this machine try at once
