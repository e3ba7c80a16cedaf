"""The time, machine and package versions of a computation."""

import os
import platform
import shlex
import sys
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from vitrail.runtime.waiting import waiting

INSTRUCTIONS = ("avx2", "avx512_f", "avx512_bf16", "avx512_vnni", "amx_bf16", "amx_int8", "sve", "bf16")
"""Instruction sets that decide how fast a processor multiplies; virtual machines often hide the processor's full name."""
PACKAGES = ("vitrail", "torch", "numpy", "pillow", "scikit-learn", "safetensors", "pydantic", "matplotlib")


def now() -> str:
    """Return the local time to the second."""
    return datetime.now().isoformat(sep=" ", timespec="seconds")


def environment() -> dict[str, Any]:
    """Return the package versions, the machine and the command line, which are needed to repeat a run."""
    import torch

    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "command": shlex.join(sys.argv),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": processor_name(),
        "instructions": instructions(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "waiting": waiting(),
        "gpus": gpus,
        "packages": {name: package_version(name) for name in PACKAGES},
    }


def processor_name() -> str:
    """Return the processor's name, from the system."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def instructions() -> list[str]:
    """Return the `INSTRUCTIONS` that the processor has."""
    import torch

    can = torch.cpu.get_capabilities()
    return [name for name in INSTRUCTIONS if can.get(name)]


def processor() -> str:
    """Return the name and the instructions of the processor, which identify its kind."""
    return f"{processor_name()} ({' '.join(instructions())})"


def package_version(name: str) -> str | None:
    """Return an installed package's version, or None."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None
