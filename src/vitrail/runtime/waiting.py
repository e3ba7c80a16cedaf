"""How long threads that wait for each other keep their cores. It imports little, since `import vitrail` needs it."""

import os
import sys

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
