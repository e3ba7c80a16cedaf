"""The device and the precision of computations."""

import multiprocessing
import shutil
from pathlib import Path
from typing import Literal

import torch

from vitrail.errors import ConfigError
from vitrail.runtime.processor import processes_here, usable_cores

Precision = Literal["fp32", "bf16"]
TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
FEWEST_CORES, MOST_WORKERS = 4, 16
SHARED_MEMORY, SHARED_BYTES = Path("/dev/shm"), 2**30
"""Linux's shared memory, and the bytes that must be free there; many containers have 64 MB, which a few batches fill."""


def pick_device(name: str = "auto") -> torch.device:
    """Return the torch device of this name; ``auto`` takes CUDA, else Apple's MPS, else the CPU."""
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name != "auto":
        if not available[name]:
            raise ConfigError(f"torch finds no {name} device", where="training.device", hint="leave it at auto")
        return torch.device(name)
    return torch.device(next(kind for kind in ("cuda", "mps", "cpu") if available[kind]))


def workers_beside(device: torch.device) -> int:
    """Return the default number of worker processes that prepare images: on a GPU one for each core, at most 16.

    It is 0 in these cases: training on the CPU, whose cores are all busy; fewer than four cores, where one process that holds
    its images in memory is as fast; processes that are spawned, not forked, since each would run the user's script again; a
    daemon process, which may start no others; and little shared memory, through which batches are sent.
    """
    may_fork = forks() and not multiprocessing.current_process().daemon
    if device.type != "cuda" or not may_fork or not _has_shared_memory():
        return 0
    cores = usable_cores() // processes_here()
    return min(cores, MOST_WORKERS) if cores >= FEWEST_CORES else 0


def forks() -> bool:
    """Return whether Python starts processes by fork; the start method is not fixed by this call."""
    return (multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]) == "fork"


def _has_shared_memory() -> bool:
    try:
        return shutil.disk_usage(SHARED_MEMORY).free >= SHARED_BYTES
    except OSError:
        return False
