"""Memory that stays with the process."""

import ctypes
import resource

import pytest
import torch

from vitrail.training.memory import kept_memory


def fresh_pages(rounds: int = 5) -> int:
    """Pages that the system had to give for blocks of 64 MB, each freed before the next is asked for."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(rounds):
        torch.zeros(16_000_000)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="memory is glibc's to keep")
def test_what_is_freed_is_kept_for_the_next_and_given_back_in_the_end():
    with kept_memory():
        fresh_pages(1)
        kept = fresh_pages()
    assert kept < 1000
    assert fresh_pages() > 5000


def test_without_glibc_nothing_changes(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    with kept_memory():
        assert torch.ones(3).sum() == 3
