"""Sweeps whose runs Ray trains at the same time."""

import json
import os
import signal
import sys
from types import SimpleNamespace

import pytest

from vitrail import sweep
from vitrail.errors import ConfigError, DataError
from vitrail.runtime.observer import Observer
from vitrail.runtime.signals import InterruptedRunError
from vitrail.study.compare import sweeps
from vitrail.training.sweep_on_ray import _resources

pytestmark = pytest.mark.usefixtures("unreported")

OVER = {"lr": [1e-3, 1e30]}


@pytest.fixture(scope="module")
def cluster():
    """A Ray of two cores on this machine."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray

    yield ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    ray.shutdown()


@pytest.fixture
def undrawn(monkeypatch):
    """Sweeps without a plot and a page, which other tests look at."""
    monkeypatch.setattr(sweeps, "write_sweep", lambda *found, **words: None)


@pytest.mark.usefixtures("cluster")
def test_runs_on_ray_are_those_of_a_sweep_in_turn(pictures, tiny, tmp_path):
    settings = {**tiny, "optimizer.clip_norm": 0}
    found = sweep(pictures, tmp_path / "ray", over=OVER, on="ray", **settings)
    in_turn = sweep(pictures, tmp_path / "turn", over=OVER, **settings)
    assert [run.state for _, run in found] == ["finished", "diverged"] == [run.state for _, run in in_turn]
    assert [values for values, _ in found] == [values for values, _ in in_turn]
    assert found[0][1].scores == pytest.approx(in_turn[0][1].scores, abs=1e-5)
    assert {file.name for file in (tmp_path / "ray").iterdir()} == {file.name for file in (tmp_path / "turn").iterdir()}


@pytest.mark.usefixtures("cluster", "undrawn")
def test_a_signal_stops_all_runs_with_everything_saved_and_the_same_command_goes_on(pictures, tiny, tmp_path):
    out = tmp_path / "out"

    class Impatient(Observer):
        def begin(self, what, images):
            assert (what, images) == ("runs", 2)
            os.kill(os.getpid(), signal.SIGTERM)

    settings = {**tiny, "training.epochs": 30}
    with pytest.raises(InterruptedRunError, match="same command again") as stop:
        sweep(pictures, out, over={"seed": [0, 1]}, on="ray", observer=Impatient(), **settings)
    assert stop.value.exit_code == 143
    states = [json.loads(file.read_text())["state"] for file in out.glob("*/status.json")]
    assert "running" not in states
    found = sweep(pictures, out, over={"seed": [0, 1]}, on="ray", **settings)
    assert [run.state for _, run in found] == ["finished", "finished"]


@pytest.mark.usefixtures("cluster", "undrawn")
def test_an_error_of_a_run_is_the_error_of_the_sweep(pictures, tiny, tmp_path):
    broken = next(pictures.rglob("*.png"))
    content = broken.read_bytes()
    try:
        broken.write_bytes(b"no image")
        with pytest.raises(DataError, match=broken.name):
            sweep(pictures, tmp_path / "out", over={"seed": [0]}, on="ray", **tiny)
    finally:
        broken.write_bytes(content)


def test_each_run_has_a_gpu_or_an_equal_part_of_the_cores():
    def cluster(gpus, *cores):
        nodes = [{"Alive": True, "Resources": {"CPU": count}} for count in cores] + [{"Alive": False, "Resources": {"CPU": 99}}]
        return SimpleNamespace(cluster_resources=lambda: {"CPU": sum(cores), "GPU": gpus}, nodes=lambda: nodes)

    assert _resources(cluster(4, 64), 8) == {"num_cpus": 1, "num_gpus": 1}
    assert _resources(cluster(0, 8), 3) == {"num_cpus": 2}
    assert _resources(cluster(0, 8, 8), 1) == {"num_cpus": 8}
    assert _resources(cluster(0, 2), 5) == {"num_cpus": 1}


def test_without_ray_the_error_names_the_extra(pictures, tiny, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"vitrail\[ray\]"):
        sweep(pictures, tmp_path / "out", over={"seed": [0]}, on="ray", **tiny)
