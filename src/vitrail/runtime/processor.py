"""The processor, which other programs use as well."""

import contextlib
import os
import sys
from pathlib import Path

CONTAINER = Path("/sys/fs/cgroup/cpu.max")
"""Microseconds of work that a container may do in so many microseconds, or ``max``."""


def usable_cores() -> int:
    """Return the number of cores that this process may keep busy, within the limit of its container."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):  # where there is no limit of a container
        quota, period = map(float, CONTAINER.read_text().split())
        cores = min(cores, max(1, round(quota / period)))
    return cores


def processes_here() -> int:
    """Return the number of processes of a run that torchrun has started on this machine; 1 without it."""
    return max(1, int(os.environ.get("LOCAL_WORLD_SIZE") or 1))


class Others:
    """Measures how much other programs take of the cores that this process may use, from its creation on."""

    def __init__(self) -> None:
        self._before = _times()

    def share(self) -> float | None:
        """Return their fraction of all time of these cores, 0…1; None where the system does not say, as only Linux does.

        Children of this process count as others until they have ended, and so does a host's share of a virtual machine. Times
        come in hundredths of a second, so wait some tenths of a second.
        """
        if self._before is None or (now := _times()) is None:
            return None
        whole, used, own = (after - before for before, after in zip(self._before, now, strict=True))
        return min(1.0, max(0.0, used - own) / whole) if whole > 0 else 0.0


def _times() -> tuple[float, float, float] | None:
    """Return seconds of this process's cores: all, those in which they worked, and those in which they worked for it."""
    with contextlib.suppress(OSError, AttributeError):  # where there is no /proc, or no os.sched_getaffinity
        cores, tick = {f"cpu{core}" for core in os.sched_getaffinity(0)}, os.sysconf("SC_CLK_TCK")
        rows = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
        counts = [[int(count) / tick for count in row[1:9]] for row in rows if row[0] in cores]
        whole = sum(map(sum, counts))
        return whole, whole - sum(idle + disk for _, _, _, idle, disk, *_ in counts), sum(os.times()[:4])
    return None
