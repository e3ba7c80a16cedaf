"""The training loop."""

import contextlib
import math
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from vitrail.data.loader import EpochLoader, ImageDataset
from vitrail.data.order import shuffled
from vitrail.data.preparation import Preparation
from vitrail.data.sources import ImageData, Item
from vitrail.data.transform import Transform
from vitrail.errors import DataError, DivergedError, ModelFileError
from vitrail.files import whole_folder
from vitrail.models.vit import ViT
from vitrail.training.adapters import merge, save_adapter
from vitrail.training.checkpoint import (
    Tensors,
    latest_checkpoint,
    load_checkpoint,
    load_optimizer_tensors,
    optimizer_tensors,
    save_checkpoint,
)
from vitrail.training.evaluation import evaluate_batches, pick_device
from vitrail.training.optimizer import create_optimizers
from vitrail.training.run_folder import RunFolder, name_of
from vitrail.training.schedule import learning_rate_factor, patch_dropout_at, warmup_steps
from vitrail.training.settings import RunSettings, differences
from vitrail.training.signals import InterruptedRunError, Signals, remembered_signals
from vitrail.training.task import Task, class_weights
from vitrail.training.teacher import Teacher
from vitrail.training.tracking import open_tracker
from vitrail.training.tuning import choose_parts, heads, start_training
from vitrail.weights.card import model_card
from vitrail.weights.folder import TrainedModel, save_model

TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
Row = dict[str, Any]


@dataclass
class Sums:
    """What an epoch has added up so far."""

    loss: float = 0.0
    correct: int = 0
    images: int = 0
    seconds: float = 0.0

    @property
    def means(self) -> dict[str, float]:
        """Per image, and images per second."""
        images = max(1, self.images)
        rate = self.images / self.seconds if self.seconds else 0.0
        return {"loss": self.loss / images, "top1": self.correct / images, "images_per_second": rate}


class Observer:
    """Told how a run goes; this one keeps silent."""

    def start(self, epochs: int, steps: int, done: int) -> None:
        """The run has so many epochs and steps; ``done`` of the steps were made before."""

    def step(self, epoch: int, sums: Sums) -> None:
        """A step was made; ``sums`` are the epoch's so far."""

    def begin(self, what: str, images: int) -> None:
        """A pass over so many images begins, beside the training itself."""

    def advance(self, images: int) -> None:
        """So many more of them are done."""

    def epoch(self, row: Row) -> None:
        """An epoch ended with these metrics."""


class Trainer:
    """A run: model, optimizer, schedule, data, and the folder that keeps them."""

    def __init__(
        self,
        settings: RunSettings,
        model: ViT,
        preparation: Preparation,
        data: ImageData,
        folder: RunFolder,
        *,
        transform: Transform | None = None,
        teacher: TrainedModel | None = None,
    ):
        self.settings, self.preparation, self.data, self.folder = settings, preparation, data, folder
        t = settings.training
        self.device = pick_device(t.device)
        self.model = model.to(self.device)
        choose_parts(self.model, settings)
        self.forward = torch.compile(self.model) if t.compile else self.model
        self.optimizers = create_optimizers(self.model, settings.optimizer)
        self.task = _task(settings, data)
        self.teacher = None if teacher is None else Teacher(teacher, data, self.device)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=t.precision == "fp16")
        self.average = AveragedModel(self.model, multi_avg_fn=_moving_average(t.ema)) if t.ema else None
        d = settings.data
        labelled = partial(ImageDataset, classes=len(data.classes), multi_label=data.multi_label)
        training = labelled(self.few(data.split("train")), preparation, settings.augmentation, t.seed, transform=transform)
        validation = labelled(self.validation, preparation)
        self.train_loader = EpochLoader(training, t.batch_size, shuffle=True, workers=d.workers, balance=d.balance == "sampling")
        self.val_loader = EpochLoader(validation, t.batch_size, shuffle=False, workers=d.workers)
        steps = len(self.train_loader)
        self.epochs = 1 if t.fast_dev_run else max(t.epochs, math.ceil(t.min_steps / steps))
        self.total = self.epochs * steps
        self.warmup = warmup_steps(settings.schedule, epoch=steps, total=self.total)
        self.done = 0
        self.sums = Sums()
        self.rows: list[Row] = []
        self.best: Row | None = None

    def few(self, items: list[Item]) -> list[Item]:
        """In a fast run for developers two batches at random; else all."""
        t = self.settings.training
        if not t.fast_dev_run:
            return items
        return [items[i] for i in sorted(shuffled(len(items), t.seed, 0)[: 2 * t.batch_size])]

    @property
    def validation(self) -> list[Item]:
        """The images that decide which epoch is kept: those for training, where there are none for it."""
        return self.few(self.data.splits["val"] or self.data.split("train"))

    @property
    def evaluated(self) -> nn.Module:
        """The weights that are evaluated and kept: the average, where there is one."""
        return self.average.module if self.average is not None else self.model

    def run(self, observer: Observer | None = None) -> None:
        """Train to the end, from wherever the state stands.

        Raises:
            DivergedError: the loss or the gradient is not finite; the last state saved stands.
            InterruptedRunError: after Ctrl-C or SIGTERM, when the state is saved.
        """
        observer = observer or Observer()
        observer.start(self.epochs, self.total, self.done)
        self.track = open_tracker(self.settings.training.track, self.folder.path / "tensorboard", epochs_done=len(self.rows))
        with remembered_signals() as signals:
            while self.done < self.total:
                self._epoch(self.done // len(self.train_loader), observer, signals)

    def finish(self) -> None:
        """Say that everything is done, the report included."""
        self.folder.write_status("finished", **self._progress())

    def _epoch(self, epoch: int, observer: Observer, signals: Signals) -> None:
        start_training(self.model, self.settings)
        start = time.perf_counter()
        for pixels, labels in self.train_loader.epoch(epoch, skip=self.done % len(self.train_loader)):
            loss, correct = self._step(pixels.to(self.device), labels.to(self.device))
            self.done += 1
            self.sums.loss += loss * len(labels)
            self.sums.correct += correct
            self.sums.images += len(labels)
            self.sums.seconds += time.perf_counter() - start
            start = time.perf_counter()
            observer.step(epoch, self.sums)
            if self.done % len(self.train_loader) == 0:
                break  # the epoch's end saves in any case
            if signals.received is not None:
                self.save()
                self.stop(signals.received)
            every = self.settings.training.checkpoint_every_steps
            if every and self.done % every == 0:
                self.save()
        self._end_epoch(epoch, observer)
        if signals.received is not None:
            self.stop(signals.received)

    def _step(self, pixels: Tensor, labels: Tensor) -> tuple[float, int]:
        """One step of the optimizer on a batch; mean loss and number of right guesses."""
        t = self.settings.training
        factor = learning_rate_factor(self.settings.schedule, self.done, warmup=self.warmup, total=self.total)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["initial_lr"] * factor
        mean_loss, correct = 0.0, 0
        for part, targets in zip(pixels.chunk(t.accumulate), labels.chunk(t.accumulate), strict=True):
            with self._precision(), self._patches_dropped():
                answers = self.forward(self.preparation.normalize(part), separate=self.teacher is not None)
                told = None if self.teacher is None else self.teacher(part)
                loss = self.task.loss(answers, targets, told) * (len(part) / len(pixels))
            self.scaler.scale(loss).backward()
            mean_loss += loss.item()
            correct += self.task.right(answers, targets)
        self._require_finite(mean_loss, "loss")
        self._apply_gradient()
        return mean_loss, correct

    def _apply_gradient(self) -> None:
        for optimizer in self.optimizers:
            self.scaler.unscale_(optimizer)
        clip = self.settings.optimizer.clip_norm or math.inf
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), clip)
        if not self.scaler.is_enabled():  # with a scaler such a step is left out, and its scale falls
            self._require_finite(norm.item(), "gradient")
        for optimizer in self.optimizers:
            if norm.isfinite():  # the scaler's own look is at one optimizer's part, and all step or none
                self.scaler.step(optimizer)
            optimizer.zero_grad(set_to_none=True)
        self.scaler.update()
        if self.average is not None:
            self.average.update_parameters(self.model)

    @contextlib.contextmanager
    def _patches_dropped(self) -> Iterator[None]:
        """The model with this step's patch dropout, which it reads off its configuration."""
        config = self.model.config
        share = patch_dropout_at(self.settings.schedule, config.patch_dropout, self.done, total=self.total)
        self.model.config = config.changed(patch_dropout=share)
        try:
            yield
        finally:
            self.model.config = config

    def _precision(self) -> contextlib.AbstractContextManager[Any]:
        precision = self.settings.training.precision
        return torch.autocast(self.device.type, dtype=TYPES[precision], enabled=precision != "fp32")

    def _require_finite(self, value: float, what: str) -> None:
        if not math.isfinite(value):
            raise DivergedError(
                f"training diverged: the {what} is {value}",
                where=f"step {self.done + 1} of {self.total}",
                hint="lower --lr, lengthen --schedule.warmup-epochs, or use --precision fp32",
            )

    def _require_finite_tensors(self, tensors: Tensors, what: str) -> None:
        """A finite gradient can still make a weight infinite, and such a state must not take a good one's place."""
        if not all(tensor.isfinite().all() for tensor in tensors.values()):
            self._require_finite(math.inf, what)

    def _end_epoch(self, epoch: int, observer: Observer) -> None:
        observer.begin("evaluating val", len(self.val_loader.dataset))
        validation = evaluate_batches(
            self.evaluated, self.val_loader, self.preparation, device=self.device, on_batch=observer.advance
        )
        self._require_finite(validation.loss, "validation loss")
        self._require_finite_tensors(self.evaluated.state_dict(), "largest weight")
        row: Row = {"epoch": epoch + 1, "step": self.done, "lr": self._learning_rate()}
        row |= {f"train_{name}": value for name, value in self.sums.means.items() if name != "images_per_second"}
        row |= {f"val_{name}": value for name, value in validation.scores().items() if name not in ("images", "top5")}
        row |= {"images_per_second": self.sums.means["images_per_second"], "seconds": self.sums.seconds}
        self.rows.append(row)
        self.sums = Sums()
        self.folder.write_rows(self.rows)
        if self.best is None or _rank(row) >= _rank(self.best):
            self.best = row
            self._save_model("best")
        self.save()
        self.folder.log("  ".join(f"{name} {value:.6g}" for name, value in row.items()))
        self.track(row)
        observer.epoch(row)

    def _learning_rate(self) -> float:
        """That of the last step, for what `layer_decay` and `layers` leave as it is."""
        factor = learning_rate_factor(self.settings.schedule, self.done - 1, warmup=self.warmup, total=self.total)
        return self.settings.optimizer.lr * factor

    def _save_model(self, name: str) -> None:
        """A complete model folder; with adapters they are merged into it, and beside it as PEFT keeps them."""
        model, settings = self.evaluated, self.settings
        assert isinstance(model, ViT)
        low_rank = settings.training.tune == "lora"
        complete = merge(model) if low_rank else model
        trained = TrainedModel(complete, self.data.classes, self.preparation, self.data.multi_label)
        with whole_folder(self.folder.path / name) as draft:
            save_model(draft, trained, card=_card(settings, self.data, self.rows[-1], self.epochs))
            if low_rank:
                save_adapter(draft / "adapter", model, settings.lora, whole=list(heads(model)), base=settings.start)

    def save(self) -> None:
        """Keep the whole state: a checkpoint, the folder ``last`` at an epoch's end, and ``status.json``."""
        tensors = {
            "model": self.model.state_dict(),
            "optimizer": optimizer_tensors(self.optimizers),
            "random": {"torch": torch.get_rng_state()},
        }
        if self.device.type == "cuda":
            tensors["random"]["cuda"] = torch.cuda.get_rng_state()
        if self.average is not None:
            tensors["average"] = self.average.state_dict()
        for name, group in tensors.items():
            self._require_finite_tensors(group, f"largest value of the {name}'s state")
        state = {
            "done": self.done,
            "sums": asdict(self.sums),
            "rows": self.rows,
            "best": self.best,
            "classes": self.data.classes,
            "multi_label": self.data.multi_label,
            "scaler": self.scaler.state_dict(),
        }
        checkpoints = self.folder.path / "checkpoints"
        newest = checkpoints / f"step-{self.done:09d}"
        save_checkpoint(newest, tensors, state)
        for old in checkpoints.glob("step-*"):
            if old != newest:
                shutil.rmtree(old, ignore_errors=True)
        if self.rows and self.rows[-1]["step"] == self.done:
            self._save_model("last")
        self.folder.write_status("running", **self._progress())

    def restore(self) -> None:
        """Take the newest checkpoint's state, so that `run` goes on as if it had never stopped."""
        checkpoint = latest_checkpoint(self.folder.path)
        tensors, state = load_checkpoint(checkpoint)
        self._require_same_labels(state)
        try:
            self._take(tensors, state)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise ModelFileError(
                f"the checkpoint is damaged, or of other settings: {' '.join(str(error).split())[:200]}",
                where=checkpoint,
                hint="bring the run back as it was, or train anew",
            ) from None
        self.folder.write_rows(self.rows)

    def _require_same_labels(self, state: dict[str, Any]) -> None:
        if (state.get("classes"), state.get("multi_label")) != (self.data.classes, self.data.multi_label):
            raise DataError(
                "the classes of the data are not those that the run was started with",
                where=self.data.source,
                hint="bring the data back as it was, or train anew",
            )

    def _take(self, tensors: dict[str, Tensors], state: dict[str, Any]) -> None:
        self.model.load_state_dict(tensors["model"])
        load_optimizer_tensors(self.optimizers, tensors["optimizer"])
        if self.average is not None:
            self.average.load_state_dict(tensors["average"])
        if self.scaler.is_enabled():
            self.scaler.load_state_dict(state["scaler"])
        torch.set_rng_state(tensors["random"]["torch"])
        if "cuda" in tensors["random"] and self.device.type == "cuda":
            torch.cuda.set_rng_state(tensors["random"]["cuda"])
        self.done, self.sums = state["done"], Sums(**state["sums"])
        self.rows, self.best = state["rows"], state["best"]

    def stop(self, signal: int) -> None:
        """Leave the run as it was last saved; raises `InterruptedRunError`."""
        self.folder.write_status("interrupted", **self._progress())
        self.folder.log(f"stopped by signal {signal} after step {self.done}")
        raise InterruptedRunError(signal, self.folder.path, self.folder.resume_command)

    def _progress(self) -> dict[str, Any]:
        epoch = self.done // len(self.train_loader)
        return {"epoch": epoch, "epochs": self.epochs, "step": self.done, "steps": self.total, "best": self.best}


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


def _moving_average(decay: float) -> Any:
    """Exponential moving average whose decay grows with the steps made, so that the start weighs little."""

    def update(averages: list[Tensor], current: list[Tensor], steps: Tensor | int) -> None:
        weight = 1 - min(decay, (1 + int(steps)) / (10 + int(steps)))
        torch._foreach_lerp_(averages, current, weight)

    return torch.no_grad()(update)


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
