"""What tests of commands need: flags, and what a command takes."""

import resource
import subprocess
import sys

import pytest


@pytest.fixture
def tiny_flags(tiny) -> list[str]:
    """The tiny settings as flags of ``vitrail train``."""
    return [word for name, value in tiny.items() for word in (f"--{name.replace('_', '-')}", str(value))]


@pytest.fixture
def timed():
    """``timed("-m", "vitrail", "--help")`` runs Python so, and returns the finished process and the seconds that it computed.

    Unlike the clock's, they do not depend on what else runs here.
    """

    def computed() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    def call(*words: str, **options) -> tuple[subprocess.CompletedProcess, float]:
        before = computed()
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, **options)
        return done, computed() - before

    return call
