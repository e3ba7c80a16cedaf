"""The state of a run, which is saved in checkpoints."""

import contextlib
import math
import shutil
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vitrail.config.run_files import are_numbers, is_row
from vitrail.config.settings import RunSettings
from vitrail.data.items import Data
from vitrail.errors import DivergedError, ModelFileError
from vitrail.files import room_for, whole_folder
from vitrail.models.calibration import kernels_of
from vitrail.parts.cpu.kernels import kernels, use
from vitrail.runtime.observer import Observer, Row, Sums
from vitrail.runtime.processes import Processes
from vitrail.runtime.signals import InterruptedRunError
from vitrail.tasks.metrics import rank
from vitrail.training.loop import best_model, parallel
from vitrail.training.loop.averaging import LastEpochs
from vitrail.training.loop.clock import Clock
from vitrail.training.loop.learner import Learner
from vitrail.training.runs.checkpoint import Tensors, checkpoints, load_checkpoint, save_checkpoint
from vitrail.training.runs.resuming import extended, fingerprint, require_same_data, require_same_settings
from vitrail.training.runs.run_folder import RunFolder
from vitrail.weights.locate import require_best


class RunState:
    """The state of a run: everything that its further course depends on."""

    epochs: int
    total: int
    """Total number of epochs and steps."""
    clock: Clock
    first_epoch: int
    first_step: int
    """Epoch and step at which a finished run was extended."""

    def __init__(self, settings: RunSettings, data: Data, folder: RunFolder, learner: Learner, group: Processes):
        self.settings, self.data, self.folder, self.learner, self.group = settings, data, folder, learner, group
        self.device, self.fingerprint = learner.device, fingerprint(data)  # read before anything changes a file
        self.done = 0
        self.sums = self.no_sums()
        self.rows: list[Row] = []
        self.best: Row | None = None
        self.last_epochs = LastEpochs(settings.training.average)
        self.not_finite = 0
        self.share = 0.0
        self.compared: int | None = None
        """Number of validation items that epochs are compared on; None until a time limit has decided it."""
        self.share_before = 0.0
        """Fraction of the time limit that was used when the first step began."""
        self.saved: tuple[int, int] | None = None
        self.saved_at, self.saving = time.monotonic(), 0.0

    @property
    def epoch(self) -> int:
        """Number of finished epochs; a first model without training counts as 0."""
        return self.rows[-1]["epoch"] if self.rows else 0

    @property
    def made(self) -> int:
        """Number of steps made in the current epoch."""
        return self.done - (self.rows[-1]["step"] if self.rows else 0)

    @property
    def is_over(self) -> bool:
        """True if no epoch follows: all are done, none was better for ``training.patience`` epochs, or the time is over.

        Even then there is a model to save: the first model, or one after at least one step.
        """
        patience, best = self.settings.training.patience, max(((rank(row), row["epoch"]) for row in self.rows), default=(0, 0))[1]
        gave_up = patience and self.epoch - max(best, self.first_epoch) >= patience
        return bool(self.epoch >= self.epochs or gave_up or (self.share >= 1 and self.rows))

    def position(self, step: int) -> int:
        """Return the position of a step in the schedule, of the learner's ``total`` steps; a time limit moves it forward.

        Time used before the first step does not count, since the schedule would otherwise skip its warmup.
        """
        left = 1 - self.share_before
        by_clock = int((self.share - self.share_before) / left * self.learner.total) if left else self.learner.total
        return min(max(step - self.first_step, by_clock), max(0, self.learner.total - 1))

    @property
    def learning_rate(self) -> float:
        """The learning rate of the last step, before `layer_decay` and `layers` are applied."""
        return self.settings.optimizer.lr * self.learner.rate(self.position(self.done - 1))

    def no_sums(self) -> Sums:
        """Return the sums at the start of an epoch, all zero."""
        task = self.learner.task
        return Sums(counts=dict.fromkeys(task.counts, 0), unit=task.unit)

    def state(self) -> tuple[dict[str, Tensors], dict[str, Any]]:
        """Return the content of a checkpoint: tensors, and JSON-able values."""
        everyone = enumerate(self.group.all_gather(self._random_states()))
        random = {f"{rank}.{kind}": state for rank, states in everyone for kind, state in states.items()}
        state = {
            "done": self.done,
            "sums": asdict(self.sums),
            "rows": self.rows,
            "best": self.best,
            "not_finite": self.not_finite,
            "spent": self.clock.spent,
            "share": self.share,
            "share_before": self.share_before,
            "compared": self.compared,
            "scaler": self.learner.scaler.state_dict(),
            "kernels": asdict(kernels()),
            "data": self.fingerprint,
            "settings": self.settings.model_dump(mode="json"),
        }
        return {**self.learner.tensors(), **self.last_epochs.tensors(), "random": random}, state

    def save_model(self, name: str, row: Row, weights: Tensors | None = None) -> None:
        """Write a complete model folder with the metrics of an epoch; all processes call this, and the first one writes."""
        weights = weights or parallel.whole(self.learner.evaluated.state_dict())
        size = sum(tensor.nbytes for tensor in weights.values())
        with self.group.together():
            if self.group.first:
                card = best_model.card_of(self.settings, self.data, row, self.epochs)
                with self._room_for(size), whole_folder(self.folder.path / name) as draft:
                    best_model.fill(draft, self.settings, self.learner.task, weights, card)

    def save(self) -> None:
        """Save the state in a checkpoint and in ``status.json``; all processes call this, and the first one writes."""
        begin, place = time.monotonic(), (self.done, len(self.rows))
        if self.saved == place:
            return
        tensors, others = self.state()
        for name, group in tensors.items():
            self._require_finite(group, f"value of the {name}'s state")
        folder = self.folder.path / "checkpoints" / f"step-{self.done:09d}"
        save_checkpoint(folder, tensors, others, resume=self.folder.resume_command, group=self.group)
        self.folder.write_status("running", **self._progress())
        self.saved, self.saved_at, self.saving = place, time.monotonic(), time.monotonic() - begin

    def is_due(self) -> bool:
        """Return whether a checkpoint is due by the settings."""
        t = self.settings.training
        by_steps = t.checkpoint_every_steps and self.done and self.done % t.checkpoint_every_steps == 0
        by_time = t.checkpoint_every_seconds and time.monotonic() - self.saved_at >= t.checkpoint_every_seconds
        return bool(by_steps or by_time)

    def stop(self, number: int) -> None:
        """Stop the run in the state that was saved last; raises `InterruptedRunError`."""
        with contextlib.suppress(OSError):  # for example a full disk; the saved state is complete anyway
            self.folder.write_status("interrupted", **self._progress())
        self.folder.log(f"stopped by signal {number} after step {self.done}")
        raise InterruptedRunError(number, self.folder.path, self.folder.resume_command)

    def _progress(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "epochs": self.epochs, "step": self.done, "steps": self.total, "best": self.best}

    def _room_for(self, size: int) -> contextlib.AbstractContextManager[None]:
        return room_for(size, self.folder.path, hint=f"free some space, then {self.folder.resume_command}")

    def _diverged(self, what: str, hint: str = "lower --lr, lengthen --schedule.warmup-epochs, or use --precision fp32") -> None:
        raise DivergedError(f"training diverged: {what}", where=f"step {self.done + 1} of {self.total}", hint=hint)

    def _require_finite(self, tensors: Tensors, what: str) -> None:
        """Raise `DivergedError` for infinite weights, possible even with finite gradients; they must not replace a good state."""
        finite = all(tensor.isfinite().all() for tensor in parallel.local(list(tensors.values())))
        if any(self.group.all_reduce_max(not finite)):
            self._diverged(f"the largest {what} is inf")

    def restore(self, observer: Observer | None = None) -> None:
        """Load the newest complete checkpoint, so that the run continues as if it had never stopped.

        Damaged checkpoints are skipped, with a note to the observer. Without any checkpoint the run starts from the beginning.

        Raises:
            ModelFileError: all checkpoints are damaged, or they belong to another model.
            ConfigError, DataError: settings or images differ from those at the start of the run.
        """
        run, group, observer = self.folder, self.group, observer or Observer()
        names = group.broadcast([folder.name for folder in checkpoints(run.path)])
        for number, name in enumerate(names):
            folder = run.path / "checkpoints" / name
            try:
                with group.together():
                    tensors, state = load_checkpoint(folder)
            except ModelFileError as error:
                run.tell(f"{name} is skipped: {error.what}", observer)
                continue
            if changed := self._take(tensors, state, folder):
                run.tell(changed, observer)
            for damaged in names[:number] if group.first else ():  # they would count as the newest checkpoints
                shutil.rmtree(run.path / "checkpoints" / damaged, ignore_errors=True)
            return
        if names:
            raise ModelFileError("every checkpoint is damaged", where=run.path / "checkpoints", hint="train in another folder")

    def _take(self, tensors: dict[str, Tensors], state: dict[str, Any], folder: Path) -> str | None:
        """Load the state of a checkpoint, and return a note about changed data, or None."""
        try:
            _require_types(state)
            begun, at = RunSettings.read(state["settings"]), self.settings.schedule.extended_at
            extends = begun.schedule.extended_at != at == (state["rows"][-1]["epoch"] if state["rows"] else 0, state["done"])
            if extends:
                begun = extended(begun, at, self.settings)
            require_same_settings(begun, self.settings)
            changed = require_same_data(state["data"], self.fingerprint, self.data)
            self.learner.load(tensors, state["scaler"])
            self.done, self.not_finite = state["done"], state["not_finite"]
            self.sums = _sums(state["sums"], self.learner.task.counts)
            self.rows, self.best = state["rows"], state["best"]
            self.last_epochs.load(tensors, self.learner.task.state_dict())
            self._take_random_states(tensors["random"])
            use(kernels_of(state.get("kernels")) or kernels())  # other kernels round differently
        except (LookupError, AttributeError, TypeError, ValueError, RuntimeError) as error:
            raise ModelFileError(
                f"the checkpoint is damaged, or of another model: {' '.join(str(error).split())[:200]}",
                where=folder,
                hint="restore the run folder, or train a new model",
            ) from None
        if self.best is not None:
            require_best(self.folder.path)
        spent, self.share, self.share_before = (0.0 if extends else state.get(name, 0.0) for name in TIMES)
        self.clock.before = spent
        self.compared = None if extends else state.get("compared")
        self.saved = None if extends else (self.done, len(self.rows))
        self.folder.write_rows(self.rows)
        return changed

    def _random_states(self) -> Tensors:
        states = {"cpu": torch.get_rng_state()}
        if self.device.type != "cpu":
            states[self.device.type] = torch.get_device_module(self.device).get_rng_state()
        return states

    def _take_random_states(self, states: Tensors) -> None:
        """Restore this process's random states; a process that the checkpoint does not contain gets a new seed."""
        rank, kind = self.group.rank, self.device.type
        if f"{rank}.cpu" not in states:
            torch.manual_seed(seed_of(self.settings.training.seed, self.done, rank))
            return
        torch.set_rng_state(states[f"{rank}.cpu"])
        if kind != "cpu" and f"{rank}.{kind}" in states:
            torch.get_device_module(self.device).set_rng_state(states[f"{rank}.{kind}"])


TYPES = {"done": int, "not_finite": int, "rows": list, "sums": dict, "data": dict, "settings": dict, "scaler": dict}
"""Types of the values in a checkpoint's JSON."""
TIMES = ("spent", "share", "share_before")
"""Values of the clock in a checkpoint's JSON; earlier versions had fewer."""


def _require_types(state: dict[str, Any]) -> None:
    """Raise `ValueError` or `KeyError` for values of wrong types, which would otherwise fail much later."""
    wrong = [name for name, kind in TYPES.items() if type(state[name]) is not kind]
    wrong += [name for name in TIMES if not 0 <= state.get(name, 0.0) < math.inf]
    wrong += [] if type(state.get("compared")) in (int, type(None)) else ["compared"]
    if wrong or state["done"] < 0:
        raise ValueError(f"{', '.join(wrong) or 'done'} cannot be")
    for row in (*state["rows"], *([] if state["best"] is None else [state["best"]])):
        if not is_row(row) or type(row["epoch"]) is not int or type(row["step"]) is not int or rank(row) is None:
            raise ValueError("rows or best hold no metrics of an epoch")


def _sums(saved: dict[str, Any], counts: tuple[str, ...]) -> Sums:
    """Return the sums of the epoch; earlier versions saved a single count "correct", or counts that the task no longer has."""
    known = dict.fromkeys(counts, saved["correct"]) if "correct" in saved else saved["counts"]
    others = {name: value for name, value in saved.items() if name not in ("correct", "counts", "images")}
    others.setdefault("units", saved.get("images"))
    if not are_numbers({**known, **{name: value for name, value in others.items() if name != "unit"}}):
        raise ValueError("sums are no numbers")
    return Sums(**others, counts={name: known[name] for name in counts})


def seed_of(seed: int, step: int, rank: int) -> int:
    """Return the seed of a process's random numbers from a step on."""
    return int(np.random.SeedSequence((seed, step, rank)).generate_state(1, np.uint64)[0] >> 1)
