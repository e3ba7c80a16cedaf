"""Where to compute, and in which precision."""

import multiprocessing
import shutil
from pathlib import Path
from typing import Literal

import torch

from vitrail.errors import ConfigError
from vitrail.runtime.processor import processes_here, usable_cores

Precision = Literal["fp32", "bf16"]
"""In which a model answers."""
TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
"""torch's types of these, and of fp16, in which a model may learn."""
FEWEST_CORES, MOST_WORKERS = 4, 16
SHARED_MEMORY, SHARED_BYTES = Path("/dev/shm"), 2**30
"""Where Linux has it, and how much must be free: containers often have 64 MB, which a few batches fill."""


def pick_device(name: str = "auto") -> torch.device:
    """``auto`` takes CUDA, else Apple's MPS, else the CPU."""
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name != "auto":
        if not available[name]:
            raise ConfigError(f"torch finds no {name} device", where="training.device", hint="leave it at auto")
        return torch.device(name)
    return torch.device(next(kind for kind in ("cuda", "mps", "cpu") if available[kind]))


def workers_beside(device: torch.device) -> int:
    """Processes that prepare images while a device computes, by default: beside a GPU one for each core, at most 16.

    None beside a CPU, whose cores all compute; on fewer than four cores, where one process that keeps its pictures in memory is
    as quick; where processes are spawned and not forked, since they would run the user's script anew; in a process that may have
    none; and where there is little of the shared memory through which batches come.
    """
    may_fork = forks() and not multiprocessing.current_process().daemon
    if device.type != "cuda" or not may_fork or not _has_shared_memory():
        return 0
    cores = usable_cores() // processes_here()
    return min(cores, MOST_WORKERS) if cores >= FEWEST_CORES else 0


def forks() -> bool:
    """Whether processes that Python starts are forked from this one, and have what it has; asking does not choose it."""
    return (multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]) == "fork"


def _has_shared_memory() -> bool:
    try:
        return shutil.disk_usage(SHARED_MEMORY).free >= SHARED_BYTES
    except OSError:
        return False
