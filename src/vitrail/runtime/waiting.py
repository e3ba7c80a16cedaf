"""The time that OpenMP threads spin before they sleep. This module imports little, since `import vitrail` needs it."""

import os
import sys

WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
"""Environment variables of OpenMP libraries for the time that a waiting thread spins on its core before it sleeps."""
BRIEFLY = "10000"
"""Spin count for GNU's OpenMP; its default, 300,000, keeps the core for some milliseconds that another program could use."""


def wait_briefly() -> None:
    """Shorten the spinning of torch's waiting threads, unless the user has set one of `WAITING`.

    GNU's OpenMP, which torch uses on Linux, reads the variable once, when torch is imported; after that this has no effect. No
    result depends on it. Reasons and measurements: docs/performance.md.
    """
    if "torch" not in sys.modules and not waiting():
        os.environ["GOMP_SPINCOUNT"] = BRIEFLY


def waiting() -> dict[str, str]:
    """Return the variables of `WAITING` that are set, by the user or by `wait_briefly`."""
    return {name: os.environ[name] for name in WAITING if name in os.environ}
