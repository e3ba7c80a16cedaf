"""Where it is computed, and what else works meanwhile."""

import multiprocessing
import shutil
from types import SimpleNamespace

import pytest
import torch

from vitrail.runtime import device
from vitrail.runtime.device import workers_beside

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """Eight cores, processes that are forked and much shared memory, of which a test may change something."""

    def has(*, cores=8, local="1", start="fork", shared=2**30, daemon=False):
        monkeypatch.setattr(device, "usable_cores", lambda: cores)
        monkeypatch.setenv("LOCAL_WORLD_SIZE", local)
        monkeypatch.setattr(multiprocessing, "get_start_method", lambda allow_none: start)
        monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: ["forkserver", "fork"])
        monkeypatch.setattr(multiprocessing, "current_process", lambda: SimpleNamespace(daemon=daemon))
        monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=shared))

    has()
    return has


@pytest.mark.parametrize(
    ("cores", "local", "expected"),
    [(4, "1", 4), (16, "1", 16), (64, "1", 16), (64, "8", 8), (64, "", 16), (64, "0", 16), (3, "1", 0), (16, "8", 0)],
)
def test_beside_a_gpu_each_core_of_a_process_prepares_images(machine, cores, local, expected):
    machine(cores=cores, local=local)
    assert workers_beside(GPU) == expected


@pytest.mark.parametrize("less", [{"start": "spawn"}, {"start": None}, {"shared": 2**26}, {"daemon": True}])
def test_no_process_is_started_that_could_not_work(machine, less):
    assert workers_beside(GPU) == 8
    machine(**less)
    assert workers_beside(GPU) == 0


def test_no_process_is_started_without_shared_memory(monkeypatch, tmp_path):
    monkeypatch.undo()
    monkeypatch.setattr(device, "SHARED_MEMORY", tmp_path / "none")
    assert not device._has_shared_memory()


def test_beside_what_computes_with_the_cores_itself_no_process_is_started():
    assert workers_beside(CPU) == workers_beside(torch.device("mps")) == 0
