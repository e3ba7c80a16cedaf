"""A run whose processes are killed goes on by itself, where torchrun starts them again."""

import random
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from safetensors.torch import load_file

from vitrail.config.run_files import standing

PROCESSES, KILLS = 4, 4
LAUNCHED = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(PROCESSES), "--max-restarts", "30"]


def workers(torchrun: psutil.Process) -> list[psutil.Process]:
    """The processes that torchrun has started."""
    return [child for child in torchrun.children() if "vitrail" in child.cmdline()]


def trained(folder: Path, kind: str, data: Path, tiny: dict, *, kills: int = 0) -> tuple[dict, int]:
    """Train by torchrun, and kill a process several times; return the weights, and the number of kills."""
    settings = {**tiny, "training.epochs": 100, "training.parallel": kind, "training.checkpoint_every_steps": 20}
    words = [str(word) for name, value in settings.items() for word in (f"--{name}", value)]
    chosen, killed = random.Random(0), 0
    command = [sys.executable, *LAUNCHED, "-m", "vitrail", "train", "--data", str(data), "--out", str(folder), *words]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        torchrun = psutil.Process(process.pid)
        while killed < kills and process.poll() is None:
            until = time.monotonic() + chosen.uniform(4, 12)  # while they import torch, learn, save or evaluate
            while time.monotonic() < until and process.poll() is None:
                time.sleep(0.05)
            if alive := workers(torchrun) if process.poll() is None else []:
                chosen.choice(alive).kill()
                killed += 1
        assert process.wait(600) == 0
    assert standing(folder)["state"] == "finished"
    return load_file(folder / "last" / "model.safetensors"), killed


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_a_run_of_four_processes_that_are_killed_at_any_moment_is_the_unbroken_one(kind, pictures, tiny, tmp_path):
    unbroken, _ = trained(tmp_path / "unbroken", kind, pictures, tiny)
    broken, killed = trained(tmp_path / "broken", kind, pictures, tiny, kills=KILLS)
    assert killed == KILLS
    assert unbroken.keys() == broken.keys() and all(unbroken[name].equal(broken[name]) for name in unbroken)
