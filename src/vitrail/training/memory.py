"""Memory that stays with the process."""

import contextlib
import ctypes
from collections.abc import Iterator

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # numbers of <malloc.h>
_DEFAULT_TRIM_THRESHOLD, _DEFAULT_MMAP_MAX = 128 * 1024, 65536


@contextlib.contextmanager
def kept_memory() -> Iterator[None]:
    """Within, memory that is freed stays with the process for what comes next; afterwards it goes back to the system.

    glibc hands large blocks back at once, so that every step pays again for tens of thousands of fresh pages: 5 to 10 % of its
    time on a CPU (docs/performance.md). Where there is no glibc, nothing changes.
    """
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallopt"):
        yield
        return
    library.mallopt(_MMAP_MAX, 0)
    library.mallopt(_TRIM_THRESHOLD, 2**31 - 1)
    try:
        yield
    finally:
        library.mallopt(_MMAP_MAX, _DEFAULT_MMAP_MAX)
        library.mallopt(_TRIM_THRESHOLD, _DEFAULT_TRIM_THRESHOLD)
        library.malloc_trim(0)
