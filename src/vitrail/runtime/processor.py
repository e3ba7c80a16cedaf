"""The CPU cores, and how busy other programs keep them."""

import contextlib
import os
import sys
from pathlib import Path

CONTAINER = Path("/sys/fs/cgroup/cpu.max")
"""File with the CPU limit of a container: microseconds of CPU time (or ``max``) in a period of microseconds."""


def usable_cores() -> int:
    """Return the number of cores that this process may use, within the CPU limit of its container."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):  # no container with a limit
        quota, period = map(float, CONTAINER.read_text().split())
        cores = min(cores, max(1, round(quota / period)))
    return cores


def processes_here() -> int:
    """Return the number of processes of a run that torchrun has started on this machine; 1 without it."""
    return max(1, int(os.environ.get("LOCAL_WORLD_SIZE") or 1))


class Others:
    """The load of other programs on the cores that this process may use, since the creation of this object."""

    def __init__(self) -> None:
        self._before = _times()

    def share(self) -> float | None:
        """Return the fraction 0…1 of the cores' time that other programs used; None on systems other than Linux.

        Running child processes count as other programs, and so does time that a host takes from a virtual machine. The system
        counts in hundredths of a second, so measure over some tenths of a second at least.
        """
        if self._before is None or (now := _times()) is None:
            return None
        whole, used, own = (after - before for before, after in zip(self._before, now, strict=True))
        return min(1.0, max(0.0, used - own) / whole) if whole > 0 else 0.0


def _times() -> tuple[float, float, float] | None:
    """Return the core seconds of this process's cores: total, busy, and busy for this process. None if unknown."""
    with contextlib.suppress(OSError, AttributeError):  # where there is no /proc, or no os.sched_getaffinity
        cores, tick = {f"cpu{core}" for core in os.sched_getaffinity(0)}, os.sysconf("SC_CLK_TCK")
        rows = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
        counts = [[int(count) / tick for count in row[1:9]] for row in rows if row[0] in cores]
        whole = sum(map(sum, counts))
        return whole, whole - sum(idle + disk for _, _, _, idle, disk, *_ in counts), sum(os.times()[:4])
    return None
