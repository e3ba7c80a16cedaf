"""Where to compute, and in which precision."""

import os
from multiprocessing import get_start_method
from typing import Literal

import torch

from vitrail.errors import ConfigError

Precision = Literal["fp32", "bf16"]
"""In which a model answers."""
TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
"""torch's types of these, and of fp16, in which a model may learn."""


def pick_device(name: str = "auto") -> torch.device:
    """``auto`` takes CUDA, else Apple's MPS, else the CPU."""
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name != "auto":
        if not available[name]:
            raise ConfigError(f"torch finds no {name} device", where="training.device", hint="leave it at auto")
        return torch.device(name)
    return torch.device(next(kind for kind in ("cuda", "mps", "cpu") if available[kind]))


MOST_WORKERS = 16


def workers_beside(device: torch.device) -> int:
    """Processes that prepare images while a device computes: beside a GPU one for each core that its process has, at most 16.

    None beside a CPU, whose cores all compute, and where a process cannot be forked: its copies would run the user's script anew.
    """
    if device.type != "cuda" or get_start_method() != "fork":
        return 0
    cores = len(os.sched_getaffinity(0)) // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return max(1, min(cores, MOST_WORKERS))
