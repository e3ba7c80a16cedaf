"""The runs of a sweep as tasks of Ray (https://docs.ray.io), on one machine or on all machines of its cluster."""

import os
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import torch

from vitrail.errors import ConfigError, DivergedError, VitrailError
from vitrail.runtime.observer import Observer
from vitrail.runtime.signals import InterruptedRunError, remembered_signals
from vitrail.training.sweep_run import SweepRun, Train

LOOK = 0.5
"""Seconds between two looks for a signal."""
SAVING = 60.0
"""Seconds that stopped runs have to save their state."""


def on_ray(
    runs: Sequence[SweepRun], observer: Observer, train: Train, resume: Train
) -> Iterator[tuple[SweepRun, DivergedError | None]]:
    """Train runs at the same time, and yield each as it ends, with its error if it diverged.

    Each run gets one GPU, or in a cluster without GPUs an equal part of the cores. A run whose process or machine is lost is
    resumed on another one, up to three times, as Ray does it. All machines must see the folders and the data by the same paths.

    Raises:
        InterruptedRunError: a signal came; the runs have saved their state.
        VitrailError: a run failed; the others have been stopped and saved.
    """
    if not runs:
        return
    ray = _started()
    resources = _resources(ray, len(runs))
    part = "one GPU" if "num_gpus" in resources else f"{resources['num_cpus']} of the cores"
    task = ray.remote(**resources)(_train)
    waiting = {task.remote(run, train, resume, os.getcwd(), resources["num_cpus"]): run for run in runs}
    with remembered_signals() as signals:
        observer.note(f"{len(runs)} runs on Ray, each with {part}")
        observer.begin("runs", len(runs))
        try:
            while waiting:
                for done in ray.wait(list(waiting), timeout=LOOK)[0]:
                    run, error = waiting.pop(done), ray.get(done)
                    if not isinstance(error, DivergedError | None):
                        raise error
                    observer.advance(1)
                    yield run, error
                if signals.received:
                    raise InterruptedRunError(signals.received, runs[0].folder.parent, "")
        finally:
            _stop(ray, list(waiting))


def _train(run: SweepRun, train: Train, resume: Train, folder: str, threads: int) -> VitrailError | None:
    """Train a run in a process of Ray, in the folder in which the sweep was started; return its error."""
    os.chdir(folder)
    torch.set_num_threads(threads)
    try:
        return run.train(train, resume, Observer())
    except VitrailError as error:
        return error


def _started() -> ModuleType:
    """Connect to the cluster that RAY_ADDRESS names, or start one on this machine; return the library."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # else Ray reports each use to its authors
    try:
        import ray
    except ImportError:
        raise ConfigError("Ray is not installed", where="--on ray", hint="pip install 'vitrail[ray]'") from None
    if not ray.is_initialized():
        ray.init(log_to_driver=False, include_dashboard=False)
    library: ModuleType = ray
    return library


def _resources(ray: Any, runs: int) -> dict[str, int]:
    """Return what each run gets of the cluster."""
    resources = ray.cluster_resources()
    if resources.get("GPU"):
        return {"num_cpus": 1, "num_gpus": 1}
    largest = max(node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"])
    return {"num_cpus": max(1, int(min(largest, resources["CPU"] / runs)))}


def _stop(ray: Any, tasks: list[Any]) -> None:
    """Interrupt runs as Ctrl-C does, and wait until they have saved their state."""
    for task in tasks:
        ray.cancel(task)
    if tasks:
        ray.wait(tasks, num_returns=len(tasks), timeout=SAVING)
