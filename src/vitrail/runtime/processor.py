"""The processor, which other programs use as well."""

import contextlib
import ctypes
import os
import struct
import sys
from pathlib import Path

SLICE = 100_000
"""Nanoseconds for which a thread computes at a time beside others: the least that Linux grants."""
CONTAINER = Path("/sys/fs/cgroup/cpu.max")
"""Microseconds of work that a container may do in so many microseconds, or ``max``."""
SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
"""The number of the system call, by the machine."""


def usable_cores() -> int:
    """Cores that this process may keep busy, within what its container allows."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):  # where there is no limit of a container
        quota, period = map(float, CONTAINER.read_text().split())
        cores = min(cores, max(1, round(quota / period)))
    return cores


def processes_here() -> int:
    """Processes of a run that torchrun has started on this machine; 1 without it."""
    return max(1, int(os.environ.get("LOCAL_WORLD_SIZE") or 1))


def take_short_turns() -> None:
    """Let this thread, and those that it starts, take turns of a tenth of a millisecond on a core that others want as well.

    Its share of the core stays what it is, but a thread that was kept from it is back sooner, and those that wait for it wait
    less (`sched_setattr(2)`: of Linux, from 6.12 on; elsewhere nothing happens). A policy that the user has chosen stands.
    """
    number = SCHED_SETATTR.get(os.uname().machine) if sys.platform == "linux" else None
    with contextlib.suppress(OSError, AttributeError):  # where the system does not answer, all stays as it is
        if number is not None and os.sched_getscheduler(0) == os.SCHED_OTHER:
            _ask_for_short_turns(number)


def _ask_for_short_turns(number: int) -> None:
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    size, policy, flags, priority, deadline, period = 48, os.SCHED_OTHER, 0, 0, 0, 0
    attributes = struct.pack("=IIQiIQQQ", size, policy, flags, nice, priority, SLICE, deadline, period)
    ctypes.CDLL(None).syscall(number, 0, attributes, 0)  # where it is refused, all is as it was


class Others:
    """How much other programs take of the cores that this process may use, from the moment at which this is made."""

    def __init__(self) -> None:
        self._before = _times()

    def share(self) -> float | None:
        """0…1, of all time of these cores since then; None where the system does not say, as only Linux does.

        The children of this process count as others until they have ended, and so does what a host takes from a virtual machine.
        Times come in hundredths of a second: over less than some tenths of one this says little.
        """
        if self._before is None or (now := _times()) is None:
            return None
        whole, used, own = (after - before for before, after in zip(self._before, now, strict=True))
        return min(1.0, max(0.0, used - own) / whole) if whole > 0 else 0.0


def _times() -> tuple[float, float, float] | None:
    """Seconds that the cores of this process have had, those in which they worked, and those in which they worked for it."""
    with contextlib.suppress(OSError, AttributeError):  # where there is no /proc, or no os.sched_getaffinity
        cores, tick = {f"cpu{core}" for core in os.sched_getaffinity(0)}, os.sysconf("SC_CLK_TCK")
        rows = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
        counts = [[int(count) / tick for count in row[1:9]] for row in rows if row[0] in cores]
        whole = sum(map(sum, counts))
        return whole, whole - sum(idle + disk for _, _, _, idle, disk, *_ in counts), sum(os.times()[:4])
    return None
