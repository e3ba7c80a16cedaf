"""Memory that stays with the process."""

import ctypes
import resource
import sys
from pathlib import Path

import pytest
import torch

from vitrail.runtime.memory import kept_memory

MEGABYTES = 64


def fresh_pages(rounds: int) -> int:
    """Pages that the system had to give for large blocks, each of which is freed before the next is asked for."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(rounds):
        torch.empty(MEGABYTES * 2**20 // 4).fill_(1)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def resident() -> float:
    """Megabytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


@pytest.mark.skipif(sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "mallopt"), reason="memory is glibc's to keep")
def test_what_is_freed_is_kept_for_the_next_and_given_back_in_the_end():
    with kept_memory():
        fresh_pages(10)  # until the heap has a place that fits
        kept, held = fresh_pages(5), resident()
    assert kept < 1000
    assert held - resident() > 0.9 * MEGABYTES


def test_without_glibc_nothing_changes(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    with kept_memory():
        assert torch.ones(3).sum() == 3
