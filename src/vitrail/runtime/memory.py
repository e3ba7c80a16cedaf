"""Main memory: how much the process uses, and freed blocks that stay with the process."""

import contextlib
import ctypes
import re
import sys
from collections.abc import Iterator
from pathlib import Path

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4  # numbers of <malloc.h>
_USUAL = {_MMAP_MAX: 65536, _MMAP_THRESHOLD: 2**25, _TRIM_THRESHOLD: 2**26}
"""Values that glibc's own adaptation reaches in a process with large blocks."""


def peak_memory() -> float:
    """Return the peak main memory of this process, in bytes; Linux's ``ru_maxrss`` would include the parent's memory."""
    if (size := _status("VmHWM")) is not None:
        return size
    import resource  # Windows has none

    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * (1 if sys.platform == "darwin" else 1024)


def memory_in_use() -> float:
    """Return the main memory that this process uses now, in bytes; its peak on systems other than Linux."""
    size = _status("VmRSS")
    return peak_memory() if size is None else size


def _status(name: str) -> float | None:
    """Return a value of Linux's ``/proc/self/status``, in bytes; None on other systems."""
    with contextlib.suppress(OSError, IndexError):
        return 1024.0 * int(re.findall(rf"{name}:\s+(\d+)", Path("/proc/self/status").read_text())[0])
    return None


def forget_peak() -> None:
    """Reset `peak_memory` to the memory in use, on Linux."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def available_memory() -> float | None:
    """Return the bytes of main memory still available to this process, within its container's limit; None if unknown.

    The system's file cache counts as free.
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
    """Keep freed memory in the process inside the block, to be used again; return it to the system at the end.

    By default glibc returns large blocks to the system at once. Every training step then maps tens of thousands of new pages,
    which takes 5 to 10 % of its time on a CPU (docs/performance.md). Without glibc, nothing changes.
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
