"""The training loop."""

import contextlib
import math
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitrail.data.loader import Batch, EpochLoader, ImageDataset
from vitrail.data.order import shuffled
from vitrail.data.preparation import Preparation
from vitrail.data.sources import ImageData, Item
from vitrail.data.transform import Transform
from vitrail.errors import DataError, DivergedError, ModelFileError, VitrailError
from vitrail.files import room_for, whole_folder
from vitrail.models.base import Model
from vitrail.models.empty import empty_model
from vitrail.runtime.device import pick_device
from vitrail.runtime.memory import kept_memory
from vitrail.runtime.observer import Observer, Row, Sums
from vitrail.runtime.output import name_of
from vitrail.runtime.processes import ALONE, Processes
from vitrail.runtime.signals import InterruptedRunError, Signals
from vitrail.tasks.evaluation import Evaluation, answering, evaluate_batches
from vitrail.training import parallel
from vitrail.training.adapters import merge, save_adapter
from vitrail.training.checkpoint import Tensors, checkpoints, load_checkpoint, save_checkpoint
from vitrail.training.learner import Learner
from vitrail.training.resuming import fingerprint, require_same_data, require_same_settings
from vitrail.training.run_folder import RunFolder
from vitrail.training.schedule import warmup_steps
from vitrail.training.settings import RunSettings, differences
from vitrail.training.task import Task, class_weights
from vitrail.training.teacher import Teacher
from vitrail.training.tracking import open_tracker
from vitrail.training.tuning import choose_parts, start_training
from vitrail.weights.card import model_card
from vitrail.weights.folder import TrainedModel, fill_folder

PATIENCE = 3
"""Steps in a row with a loss or a gradient that is not finite before a run gives up."""
SAVING = 0.02
"""Share of the time that checkpoints at the end of short epochs may take."""


class Trainer:
    """A run: model, optimizer, schedule, data, and the folder that keeps them; of several processes, one's part of it."""

    def __init__(
        self,
        settings: RunSettings,
        model: Model,
        preparation: Preparation,
        data: ImageData,
        folder: RunFolder,
        *,
        transform: Transform | None = None,
        teacher: TrainedModel | None = None,
        group: Processes = ALONE,
        signals: Signals | None = None,
    ):
        self.settings, self.preparation, self.data, self.folder = settings, preparation, data, folder
        self.group, self.signals = group, signals or Signals()
        t, d = settings.training, settings.data
        labelled = partial(ImageDataset, classes=len(data.classes), multi_label=data.multi_label)
        training = labelled(self.few(data.split("train")), preparation, settings.augmentation, t.seed, transform=transform)
        loader = partial(EpochLoader, batch_size=t.batch, workers=d.workers, part=(group.rank, group.count))
        self.train_loader = loader(training, shuffle=True, balance=d.balance == "sampling")
        self.val_loader = loader(labelled(self.validation, preparation), shuffle=False)
        self.epochs = 1 if t.fast_dev_run else max(t.epochs, math.ceil(t.min_steps / self.steps))
        self.total = self.epochs * self.steps
        self.learner = Learner(
            settings,
            model,
            preparation,
            _task(settings, data),
            total=self.total,
            warmup=warmup_steps(settings.schedule, epoch=self.steps, total=self.total),
            teacher=None if teacher is None else Teacher(teacher, data, pick_device(t.device)),
            group=group,
        )
        self.device = self.learner.device
        self.done = 0
        self.sums = Sums()
        self.rows: list[Row] = []
        self.best: Row | None = None
        self.not_finite = 0
        self.saved: tuple[int, int] | None = None
        self.saved_at, self.saving = time.monotonic(), 0.0
        self.observer = Observer()
        if group.rank:
            torch.manual_seed(_seed(t.seed, self.done, group.rank))  # dropout of its own, on images of its own

    @property
    def steps(self) -> int:
        """Steps of an epoch."""
        return len(self.train_loader)

    def few(self, items: list[Item]) -> list[Item]:
        """In a fast run for developers two batches at random; else all."""
        t = self.settings.training
        if not t.fast_dev_run:
            return items
        return [items[i] for i in sorted(shuffled(len(items), t.seed, 0)[: 2 * t.batch])]

    @property
    def validation(self) -> list[Item]:
        """The images that decide which epoch is kept: those for training, where there are none for it."""
        return self.few(self.data.splits["val"] or self.data.split("train"))

    def run(self, observer: Observer | None = None) -> None:
        """Train to the end, from wherever the state stands.

        Raises:
            DivergedError: the loss or the gradient is not finite; the last state saved stands.
            DataError: an image cannot be read; the state before it is saved.
            InterruptedRunError: after Ctrl-C or SIGTERM, when the state is saved.
        """
        self.observer = observer or Observer()
        self.observer.start(self.epochs, self.total, self.done)
        track = self.settings.training.track if self.group.first else "none"
        with self.group.together():
            self.track = open_tracker(track, self.folder.path / "tensorboard", epochs_done=len(self.rows))
        try:
            with kept_memory():
                while len(self.rows) < self.epochs:
                    self._epoch(len(self.rows))
        finally:
            self.train_loader.close()
            self.val_loader.close()
        self._save_model("last")

    def finish(self, **found: Any) -> None:
        """Say that everything is done, the report included, and what is ``found`` of the best model."""
        self.folder.write_status("finished", **self._progress(), **found)

    def _epoch(self, epoch: int) -> None:
        start_training(self.learner.model, self.settings)
        start = time.perf_counter()
        for pixels, labels in self._batches(epoch):
            self._step(pixels.to(self.device), labels.to(self.device))
            self.done += 1
            self.sums.seconds += time.perf_counter() - start
            start = time.perf_counter()
            self.observer.step(epoch, self.sums)
        self._end_epoch(epoch)
        cheap = time.monotonic() - self.saved_at >= self.saving / SAVING
        if any(self.group.all_reduce_max(cheap, self._is_due(), len(self.rows) == self.epochs)):
            self.save()

    def _batches(self, epoch: int) -> Iterator[Batch]:
        """What is left of an epoch; between two batches is the time to save and to stop."""
        made = self.done - epoch * self.steps
        batches = self.train_loader.epoch(epoch, skip=made)
        for _ in range(made, self.steps):
            batch, failure = None, None
            try:
                batch = next(batches)
            except VitrailError as error:
                failure = error
            self._pause(failure)
            assert batch is not None
            yield batch

    def _pause(self, failure: VitrailError | None = None) -> None:
        """Save where it is time to; stop, all processes together, where one was told to or cannot go on."""
        number, failed, due = self.group.all_reduce_max(self.signals.received, failure is not None, self._is_due())
        if (failed and self.done) or number or due:
            self.save()
        if failed:
            self.group.raise_together(failure)
        if number:
            self.stop(number)

    def _is_due(self) -> bool:
        t = self.settings.training
        by_steps = t.checkpoint_every_steps and self.done and self.done % t.checkpoint_every_steps == 0
        by_time = t.checkpoint_every_seconds and time.monotonic() - self.saved_at >= t.checkpoint_every_seconds
        return bool(by_steps or by_time)

    def _step(self, pixels: Tensor, labels: Tensor) -> None:
        """Learn from this process's part of the next batch."""
        batch = self.done % self.steps
        size, own = self.train_loader.size(batch), len(self.train_loader.places(batch))
        step = self.learner.step(pixels, labels, done=self.done, size=size, own=own)
        if step.failure is None:
            self.not_finite = 0
        else:
            self._left_out(step.failure)
        if math.isfinite(step.loss):
            self.sums.add(step.loss, step.right, step.images)

    def _left_out(self, what: str) -> None:
        """A step was not made; the third in a row is the last."""
        self.not_finite += 1
        if self.not_finite == PATIENCE:
            self._diverged(f"{what}, and was not finite in {PATIENCE} steps in a row")
        told = f"step {self.done + 1} is left out: {what}"
        self.folder.log(told)
        self.observer.note(told)

    def _diverged(self, what: str) -> None:
        raise DivergedError(
            f"training diverged: {what}",
            where=f"step {self.done + 1} of {self.total}",
            hint="lower --lr, lengthen --schedule.warmup-epochs, or use --precision fp32",
        )

    def _require_finite(self, tensors: Tensors, what: str) -> None:
        """A finite gradient can still make a weight infinite, and such a state must not take a good one's place."""
        if not all(tensor.isfinite().all() for tensor in tensors.values()):
            self._diverged(f"the largest {what} is inf")

    def _end_epoch(self, epoch: int) -> None:
        self.observer.begin("evaluating val", len(self.val_loader.dataset))
        self._looked_at(0)
        validation = self._validation()
        if not math.isfinite(validation.loss):
            self._diverged(f"the validation loss is {validation.loss}")
        weights = parallel.whole(self.learner.evaluated.state_dict())
        self._require_finite(weights, "weight")
        row: Row = {"epoch": epoch + 1, "step": self.done, "lr": self._learning_rate()}
        row |= {f"train_{name}": value for name, value in self.sums.means.items() if name != "images_per_second"}
        row |= {f"val_{name}": value for name, value in validation.scores().items() if name not in ("images", "top5")}
        row |= {"images_per_second": self.sums.means["images_per_second"], "seconds": self.sums.seconds}
        self.rows.append(row)
        self.sums = Sums()
        with self.group.together(), self._room_for(len(self.rows) * 2**10):
            self.folder.write_rows(self.rows)
        if self.best is None or _rank(row) >= _rank(self.best):
            self.best = row
            self._save_model("best", weights)
        self.folder.log("  ".join(f"{name} {value:.6g}" for name, value in row.items()))
        self.track(row)
        self.observer.epoch(row)

    def _validation(self) -> Evaluation:
        """The answers to the validation images; where one cannot be read, the epoch before it is saved."""
        try:
            with answering(self.learner.evaluated, self.preparation, self.device) as logits:
                return evaluate_batches(logits, self.val_loader, on_batch=self._looked_at, group=self.group)
        except DataError:
            self.save()
            raise

    def _looked_at(self, images: int) -> None:
        """So many more images are evaluated; one may stop in the middle of it."""
        self.observer.advance(images)
        (number,) = self.group.all_reduce_max(self.signals.received)
        if number:
            self.save()
            self.stop(number)

    def _learning_rate(self) -> float:
        """That of the last step, for what `layer_decay` and `layers` leave as it is."""
        return self.settings.optimizer.lr * self.learner.rate(self.done - 1)

    def _save_model(self, name: str, weights: Tensors | None = None) -> None:
        """A complete model folder; with adapters they are merged into it, and beside it as PEFT keeps them."""
        weights = weights or parallel.whole(self.learner.evaluated.state_dict())
        with self.group.together():
            if self.group.first:
                self._write_model(name, weights)

    def _write_model(self, name: str, weights: Tensors) -> None:
        settings = self.settings
        model = empty_model(settings.model.config)
        choose_parts(model, settings)
        model.load_state_dict(weights, assign=True)
        low_rank = settings.training.tune == "lora"
        complete = merge(model) if low_rank else model
        trained = TrainedModel(complete, self.data.classes, self.preparation, self.data.multi_label)
        size = sum(tensor.nbytes for tensor in weights.values())
        folder = self.folder.path / name
        with self._room_for(size), whole_folder(folder) as draft:
            fill_folder(draft, trained, card=_card(settings, self.data, self.rows[-1], self.epochs))
            if low_rank:
                save_adapter(draft / "adapter", model, settings.lora, whole=list(model.heads()), base=settings.start)

    def _room_for(self, size: int) -> contextlib.AbstractContextManager[None]:
        return room_for(size, self.folder.path, hint=f"free some space, then {self.folder.resume_command}")

    def save(self) -> None:
        """Keep the whole state: a checkpoint, and ``status.json``. Every process takes part, the first one writes."""
        begin, place = time.monotonic(), (self.done, len(self.rows))
        if self.saved == place:
            return
        tensors, state = self._state()
        for name, group in tensors.items():
            self._require_finite(group, f"value of the {name}'s state")
        with self.group.together():
            if self.group.first:
                folder = self.folder.path / "checkpoints" / f"step-{self.done:09d}"
                save_checkpoint(folder, tensors, state, resume=self.folder.resume_command)
        self.folder.write_status("running", **self._progress())
        self.saved, self.saved_at, self.saving = place, time.monotonic(), time.monotonic() - begin

    def _state(self) -> tuple[dict[str, Tensors], dict[str, Any]]:
        """Everything that decides how the run goes on: tensors, and what JSON can hold."""
        everyone = enumerate(self.group.all_gather(self._random_states()))
        random = {f"{rank}.{kind}": state for rank, states in everyone for kind, state in states.items()}
        state = {
            "done": self.done,
            "sums": asdict(self.sums),
            "rows": self.rows,
            "best": self.best,
            "not_finite": self.not_finite,
            "scaler": self.learner.scaler.state_dict(),
            "data": fingerprint(self.data),
            "settings": self.settings.model_dump(mode="json"),
        }
        return {**self.learner.tensors(), "random": random}, state

    def _random_states(self) -> Tensors:
        states = {"cpu": torch.get_rng_state()}
        if self.device.type != "cpu":
            states[self.device.type] = torch.get_device_module(self.device).get_rng_state()
        return states

    def restore(self, observer: Observer | None = None) -> None:
        """Take the newest complete checkpoint's state, so that `run` goes on as if it had never stopped.

        A damaged one is passed over, which the observer is told. Where none was ever finished the run begins anew.

        Raises:
            ModelFileError: no checkpoint is whole, or it is of another model.
            ConfigError, DataError: settings or images are not those that the run was begun with.
        """
        found = self.group.broadcast([folder.name for folder in checkpoints(self.folder.path)])
        for name in found:
            folder = self.folder.path / "checkpoints" / name
            try:
                with self.group.together():
                    tensors, state = load_checkpoint(folder)
            except ModelFileError as error:
                told = f"{name} is passed over: {error.what}"
                self.folder.log(told)
                (observer or Observer()).note(told)
                continue
            self._take(tensors, state, folder)
            self._remove_damaged(found[: found.index(name)])
            return
        if found:
            raise ModelFileError(
                "no checkpoint is whole", where=self.folder.path / "checkpoints", hint="train anew into another folder"
            )

    def _remove_damaged(self, names: list[str]) -> None:
        """Checkpoints newer than the one taken, which would else count as one of the two to keep."""
        if self.group.first:
            for name in names:
                shutil.rmtree(self.folder.path / "checkpoints" / name, ignore_errors=True)

    def _take(self, tensors: dict[str, Tensors], state: dict[str, Any], folder: Path) -> None:
        try:
            require_same_settings(RunSettings.read(state["settings"]), self.settings)
            require_same_data(state["data"], self.data)
            self.learner.load(tensors, state["scaler"])
            self.done, self.sums, self.not_finite = state["done"], Sums(**state["sums"]), state["not_finite"]
            self.rows, self.best = state["rows"], state["best"]
            self._take_random_states(tensors["random"])
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise ModelFileError(
                f"the checkpoint is of another model: {' '.join(str(error).split())[:200]}",
                where=folder,
                hint="bring the run back as it was, or train anew",
            ) from None
        self.saved = (self.done, len(self.rows))
        self.folder.write_rows(self.rows)

    def _take_random_states(self, states: Tensors) -> None:
        """Those of this process; one that the checkpoint does not know begins its own."""
        rank, kind = self.group.rank, self.device.type
        if f"{rank}.cpu" not in states:
            torch.manual_seed(_seed(self.settings.training.seed, self.done, rank))
            return
        torch.set_rng_state(states[f"{rank}.cpu"])
        if kind != "cpu" and f"{rank}.{kind}" in states:
            torch.get_device_module(self.device).set_rng_state(states[f"{rank}.{kind}"])

    def stop(self, number: int) -> None:
        """Leave the run as it was last saved; raises `InterruptedRunError`."""
        with contextlib.suppress(OSError):  # of a full disk, which what is saved does not need
            self.folder.write_status("interrupted", **self._progress())
        self.folder.log(f"stopped by signal {number} after step {self.done}")
        raise InterruptedRunError(number, self.folder.path, self.folder.resume_command)

    def _progress(self) -> dict[str, Any]:
        return {"epoch": len(self.rows), "epochs": self.epochs, "step": self.done, "steps": self.total, "best": self.best}


def _seed(seed: int, step: int, rank: int) -> int:
    """Of what is random in one of several processes from a step on."""
    return int(np.random.SeedSequence((seed, step, rank)).generate_state(1, np.uint64)[0] >> 1)


def _task(settings: RunSettings, data: ImageData) -> Task:
    weights = None
    if settings.data.balance == "loss":
        weights = class_weights(data.counts("train"), len(data.split("train")), multi_label=data.multi_label)
    return Task(
        multi_label=data.multi_label,
        label_smoothing=settings.training.label_smoothing,
        weights=weights,
        distillation=settings.distillation,
    )


def _rank(row: Row) -> tuple[float, float]:
    """Which epoch is better: more right on validation, then the lower loss."""
    return row["val_map" if "val_map" in row else "val_top1"], -row["val_loss"]


def _card(settings: RunSettings, data: ImageData, row: Row, epochs: int) -> str:
    """The model card. Of paths it tells the last name alone: it may be read by anybody."""
    measure, value = ("mean average precision", "val_map") if data.multi_label else ("accuracy", "val_top1")
    images = data.splits["val"] or data.splits["train"]
    source, base, teacher = (name_of(path or "") for path in (data.source, settings.start, settings.distillation.teacher))
    told = settings.changed(distillation=settings.distillation.changed(teacher=teacher or None))
    return model_card(
        name=f"{base}, fine-tuned on {source}" if base else f"{settings.model.name} on {source}",
        labels=data.classes,
        data=f"{source}\n\n{len(data.splits['train']):,} images to learn from, {len(images):,} to choose the epoch by.",
        recipe=differences(told),
        metrics={f"validation {measure}": row[value], "validation loss": row["val_loss"], "epoch": f"{row['epoch']} of {epochs}"},
        base_model=base,
        multi_label=data.multi_label,
    )
