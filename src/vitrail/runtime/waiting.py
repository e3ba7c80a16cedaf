"""The time that waiting threads keep their cores. It imports little, since `import vitrail` needs it."""

import os
import sys

WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
"""Settings of OpenMP's libraries for the time that a waiting thread keeps its core before it sleeps."""
BRIEFLY = "10000"
"""Spin count of GNU's OpenMP, whose default is 300,000: some milliseconds in which another program could have had the core."""


def wait_briefly() -> None:
    """Let waiting threads of torch soon sleep, unless the user has set how they wait.

    GNU's OpenMP, which torch comes with on Linux, reads the setting once, when torch is imported; later this does nothing. No
    result depends on it. Reasons and measurements: docs/performance.md.
    """
    if "torch" not in sys.modules and not waiting():
        os.environ["GOMP_SPINCOUNT"] = BRIEFLY


def waiting() -> dict[str, str]:
    """Return the settings of OpenMP's waiting threads, whoever set them."""
    return {name: os.environ[name] for name in WAITING if name in os.environ}
