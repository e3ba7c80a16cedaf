"""Memory that stays with the process."""

import contextlib
import ctypes
import re
import sys
from collections.abc import Iterator
from pathlib import Path

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4  # numbers of <malloc.h>
_USUAL = {_MMAP_MAX: 65536, _MMAP_THRESHOLD: 2**25, _TRIM_THRESHOLD: 2**26}
"""Values that glibc itself comes to in a process with large blocks."""


def peak_memory() -> float:
    """Return the most main memory that this process has used, in bytes; Linux's usual figure includes the parent's memory."""
    if (size := _status("VmHWM")) is not None:
        return size
    import resource  # Windows has none

    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * (1 if sys.platform == "darwin" else 1024)


def memory_in_use() -> float:
    """Return the main memory that this process uses now, in bytes; where the system does not say, the most that it has used."""
    size = _status("VmRSS")
    return peak_memory() if size is None else size


def _status(name: str) -> float | None:
    """Return the bytes that Linux reports under a name; None elsewhere."""
    with contextlib.suppress(OSError, IndexError):
        return 1024.0 * int(re.findall(rf"{name}:\s+(\d+)", Path("/proc/self/status").read_text())[0])
    return None


def forget_peak() -> None:
    """Make `peak_memory` start anew from the memory in use, where the system can."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def available_memory() -> float | None:
    """Return the bytes of main memory that this process can still have, within its container's limit; None where nobody says.

    Files that the system keeps in memory count as free.
    """
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(float(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return None
    group = Path("/sys/fs/cgroup")
    with contextlib.suppress(OSError, ValueError):  # where there is no limit of a container
        limit, used = (float((group / name).read_text()) for name in ("memory.max", "memory.current"))
        files = re.findall(r"^(?:in)?active_file (\d+)$", (group / "memory.stat").read_text(), re.MULTILINE)
        free = min(free, limit - used + sum(map(float, files)))
    return free


@contextlib.contextmanager
def kept_memory() -> Iterator[None]:
    """Let freed memory stay with the process, within, for what comes next; afterwards it goes back to the system.

    glibc hands large blocks back at once, so that every step pays again for tens of thousands of fresh pages: 5 to 10 % of its
    time on a CPU (docs/performance.md). Where there is no glibc, nothing changes.
    """
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    if library is None or not hasattr(library, "mallopt"):
        yield
        return
    library.mallopt(_MMAP_MAX, 0)
    library.mallopt(_TRIM_THRESHOLD, 2**31 - 1)
    try:
        yield
    finally:
        for number, value in _USUAL.items():
            library.mallopt(number, value)
        library.malloc_trim(0)
