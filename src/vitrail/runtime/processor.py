"""The processor, which other programs use as well."""

import contextlib
import os
import sys
from pathlib import Path

WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
"""What tells the libraries of OpenMP how long a thread that waits keeps its core before it sleeps."""
BRIEFLY = "10000"
"""Turns of GNU's OpenMP, which by itself takes 300,000: some milliseconds in which another program could have had the core."""


def wait_briefly() -> None:
    """Let the threads that torch computes with soon sleep while they wait for each other, unless the user has said how they wait.

    GNU's OpenMP, which torch comes with on Linux, reads it once, when torch is imported; later this does nothing. What is
    computed does not depend on it. Why, and how many turns: docs/performance.md.
    """
    if "torch" not in sys.modules and not waiting():
        os.environ["GOMP_SPINCOUNT"] = BRIEFLY


def waiting() -> dict[str, str]:
    """What is set of how OpenMP's threads wait, by whomever."""
    return {name: os.environ[name] for name in WAITING if name in os.environ}


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
