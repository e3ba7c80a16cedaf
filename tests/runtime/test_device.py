"""Where it is computed, and what else works meanwhile."""

import os

import pytest
import torch

from vitrail.runtime import device
from vitrail.runtime.device import workers_beside

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize(
    ("cores", "beside_it", "expected"),
    [(1, 1, 1), (2, 1, 2), (16, 1, 16), (64, 1, 16), (64, 8, 8), (4, 8, 1)],
)
def test_beside_a_gpu_each_core_prepares_images(cores, beside_it, expected, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(cores)), raising=False)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(beside_it))
    monkeypatch.setattr(device, "get_start_method", lambda: "fork")
    assert workers_beside(GPU) == expected


def test_beside_a_cpu_and_where_nothing_is_forked_no_process_does(monkeypatch):
    monkeypatch.setattr(device, "get_start_method", lambda: "fork")
    assert workers_beside(CPU) == workers_beside(torch.device("mps")) == 0
    monkeypatch.setattr(device, "get_start_method", lambda: "spawn")
    assert workers_beside(GPU) == 0
