"""The probe: a head fitted to features of the frozen start model, before the first epoch."""

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from vitrail.config.run_files import FEATURES
from vitrail.config.settings import RunSettings
from vitrail.data.items import ImageData, Item
from vitrail.data.loading.dataset import ImageDataset
from vitrail.data.loading.loader import EpochLoader
from vitrail.data.loading.sampler import epoch_order, some_items
from vitrail.models.base import Model
from vitrail.models.inference import Answering, for_inference
from vitrail.runtime.device import pick_device
from vitrail.runtime.memory import kept_memory
from vitrail.runtime.observer import Row
from vitrail.tasks.classification.labels.single_label import Classification
from vitrail.tasks.metrics import main_metric, of_epoch, rank
from vitrail.tasks.probe import PENALTIES, RIDGES, Head, linear_heads, neighbours, ridge_heads
from vitrail.tasks.task import Task
from vitrail.training.finetune.features import FeatureFile, mark_of, read_features
from vitrail.training.loop.clock import OutOfTimeError
from vitrail.training.loop.time_budget import SCORING
from vitrail.training.run_data import FirstModel
from vitrail.training.runs.plan import RunPlan, Work

MOST = 200_000
"""Largest number of images in each view that heads are fitted to."""
LONG = 2 * 10**9
"""Product of images, features and classes above which a linear head is not fitted, since it would take many minutes."""
TRIED = 8
"""Number of images for the measurement of the reading time."""
READING = 0.3
"""Largest fraction of the remaining time for reading each image once."""
FIRST = 0.5
"""Fraction of the time limit after which a probe starts no further work, if fine-tuning follows."""
HEAD_ENDS = "the head is fitted, and no epochs follow: --epochs and --lr have an effect only with --training.probe false"
TIME_ENDS = "the time is up: the head is fitted, and no epochs follow"
TITLES = {"head": "the model's own head", "linear": "linear", "ridge": "ridge", "neighbours": "nearest neighbours"}


@dataclass(frozen=True, kw_only=True)
class Probed(FirstModel):
    """The result of a probe: the scores of all heads; the model has the best one."""

    scores: dict[str, dict[str, float]]
    """Scores on the validation images, by the kind of head."""
    kept: str
    """Kind of the best head, which the model has now."""

    @property
    def line(self) -> str:
        """A line with the scores of all heads, the best one first."""
        names = [self.kept, *(name for name in self.scores if name != self.kept)]
        return "probe: " + ", ".join(f"{TITLES[name]} {_shown(self.scores[name])}" for name in names)


def _shown(scores: Mapping[str, float]) -> str:
    metric = main_metric(scores)
    return metric.shown(scores[metric.name], 1)


def linear_layer(model: Model) -> nn.Linear | None:
    """Return the head of a model if it is one linear layer with a bias; else None."""
    heads = model.heads()
    if len(heads) != 1:
        return None
    (head,) = heads.values()
    nothing = nn.Sequential | nn.Dropout | nn.Identity | nn.Flatten
    layers = [module for module in head.modules() if not isinstance(module, nothing)]
    if len(layers) == 1 and isinstance(layers[0], nn.Linear) and layers[0].bias is not None:
        return layers[0]
    return None


def is_probed(settings: RunSettings, task: Task) -> bool:
    """Return whether a run starts with a probe."""
    possible = isinstance(task, Classification) and linear_layer(task.model) is not None
    return settings.start is not None and settings.training.probe and possible


def run_probe(plan: RunPlan, task: Task, work: Work) -> Probed:
    """Fit heads to the model of a run, give it the best one, and report the scores of all."""
    assert isinstance(task, Classification)
    probed = Probe(plan, task, work).run()
    ends = HEAD_ENDS if plan.settings.training.tune == "head" else TIME_ENDS if probed.is_over else None
    for line in (probed.line, *([ends] if ends else [])):
        work.folder.tell(line, work.observer)
    return probed


class Probe:
    """The fit of heads to frozen features of a run's images. The task's model gets the best head."""

    def __init__(self, plan: RunPlan, task: Classification, work: Work):
        assert isinstance(plan.data, ImageData)
        self.settings, self.data, self.transform = plan.settings, plan.data, plan.transform
        self.task, self.model, self.preparation = task, task.model, task.preparation
        self.folder, self.group, self.signals, self.clock = work.folder, work.group, work.signals, work.clock
        self.observer = work.observer
        layer = linear_layer(self.model)
        assert layer is not None
        self.layer = layer
        self.mark = mark_of(self.model, self.preparation, self.data)

    @property
    def has_head(self) -> bool:
        """True if the model came with a head for these classes; the weights of a new head are zero."""
        return bool(self.layer.weight.any())

    def run(self) -> Probed:
        """Compute features, fit the heads, and give the model the best; a signal stops this, and saves computed features."""
        t = self.settings.training
        self.images, self.reading, self.image_seconds = 0, 0.0, 0.0
        train, val = self._used(self.data.split("train")), self._used(self.data.splits["val"])
        self.model.to(pick_device(t.device)).eval()
        read = for_inference(self.model, "bf16" if t.precision == "bf16" else "fp32")
        train, val = self._affordable(read, train), self._affordable(read, val)
        with kept_memory():
            views = [self._features(read, "train", train, 0)]
            one = self.reading
            others = self._features(read, "val", val, 0) if val else views[0]
            while len(views) < t.views and not any(self.group.all_reduce_max(self._is_late(one))):
                views.append(self._features(read, "train", train, len(views)))
        labels, theirs = self._labels(train), self._labels(val or train)
        order = self._order(train)
        features, known = torch.cat([view[order] for view in views]), torch.cat([labels[order]] * len(views))
        with self.group.together():
            fitted = self._fit(features, known, others, theirs) if self.group.first else None
        found = self.group.broadcast(fitted)
        assert found is not None
        heads, scores = found
        kept = max(heads, key=lambda name: rank(_prefixed("val_", scores[name])))
        self._take(heads[kept])
        row = self._row(self._scores(heads[kept](views[0]), labels), scores[kept])
        (is_over,) = self.group.all_reduce_max(self._share() >= 1)
        return Probed(row=row, is_over=bool(is_over), scores=scores, kept=kept)

    @property
    def classes(self) -> int:
        return self.layer.out_features

    def _used(self, items: list[Item]) -> list[Item]:
        """Return all items, or a few with ``fast_dev_run``."""
        t = self.settings.training
        return some_items(items, 2 * t.batch, t.seed) if t.fast_dev_run else items

    def _affordable(self, read: Answering, items: list[Item]) -> list[Item]:
        """Return as many images as the time limit allows to read: all, or a random selection, which is reported."""
        if self.clock.limit is None or not items:
            return items
        if not self.image_seconds:
            some = some_items(items, TRIED, seed=0)
            dataset = ImageDataset(some, self.preparation, targets=self.task.targets())
            begun = time.perf_counter()
            pixels = dataset.batch([(0, number) for number in range(len(some))])["images"]
            with torch.no_grad():
                read.vectors(self.preparation.normalize(pixels.to(next(read.parameters()).device)))
            self.image_seconds = (time.perf_counter() - begun) / len(some)
            self.room = READING * self.clock.left / (len(self.data.split("train")) + len(self.data.splits["val"]))
        (micro,) = self.group.all_reduce_max(int(1e6 * self.image_seconds))
        (room,) = self.group.all_reduce_max(int(1e6 * self.room))
        if micro <= room:
            return items
        count = max(2 * self.classes, len(items) * room // micro)
        if count < len(items):
            self.observer.note(f"{count:,} of {len(items):,} images are read for the probe: there is no time for more")
        return some_items(items, count, seed=0)

    def _order(self, items: list[Item]) -> list[int]:
        """Return the indices of the images to fit to: all, with rare classes repeated for balance, or `MOST` at random."""
        seed, balance = self.settings.training.seed, self.settings.data.balance == "sampling"
        order = [number % len(items) for number in epoch_order(items, seed, 0, shuffle=len(items) > MOST, balance=balance)]
        return sorted(order[:MOST])

    def _features(self, read: Answering, split: str, items: list[Item], view: int) -> Tensor:
        """Return the features of prepared images (view 0), or of a further, augmented view."""
        t, group, augmentation, transform = self.settings.training, self.group, None, None
        if view:  # no copies and no mixing, since labels are not taken from the batches here
            augmentation = self.settings.augmentation.changed(repeats=1, mixup=0.0, cutmix=0.0)
            transform = self.transform
        dataset = ImageDataset(items, self.preparation, augmentation, t.seed, targets=self.task.targets(), transform=transform)
        part = (group.rank, group.count)
        loader = EpochLoader(dataset, t.batch, shuffle=False, workers=self.settings.workers, part=part)
        alone = self.folder.path / FEATURES / f"{split}-{view}" if group.count == 1 and self.folder.writes else None
        kept = FeatureFile(alone, (len(items), self.layer.in_features), self.mark)
        self.observer.begin(f"features of {split}" + (f", view {view + 1}" if view else ""), len(items))
        begun = time.perf_counter()
        device = next(read.parameters()).device
        try:
            return read_features(
                lambda pixels: read.vectors(self.preparation.normalize(pixels)),
                loader, kept, device=device, view=view, on_batch=self._advance, group=group,
            )  # fmt: skip
        finally:
            self.reading += time.perf_counter() - begun
            loader.close()

    def _advance(self, images: int) -> None:
        """Report progress, and stop the run if a signal has arrived."""
        self.observer.advance(images)
        self.images += images
        (number,) = self.group.all_reduce_max(self.signals.received)
        self.folder.leave_for(number)

    def _share(self, more: float = 0.0) -> float:
        """Return the fraction of the time limit that is used, after ``more`` seconds and with time for the final evaluation."""
        images = len(self.data.splits["val"]) + len(self.data.split(self.data.evaluation_split))
        end = images * self.reading / self.images if self.images else 0.0
        return self.clock.share(more + min(end, SCORING * (self.clock.limit or 0.0)))

    def _is_late(self, more: float = 0.0) -> bool:
        """Return whether there is no time for ``more`` seconds of work."""
        return self._share(more) >= (1 if self.settings.training.tune == "head" else FIRST)

    def _look(self) -> None:
        """Stop a fit after a signal, or raise `OutOfTimeError` if there is no time left."""
        self.folder.leave_for(self.signals.received)
        if self._is_late():
            raise OutOfTimeError

    def _labels(self, items: list[Item]) -> Tensor:
        """Return the labels of the items, in the form of a batch."""
        targets, random = self.task.targets(), np.random.default_rng(0)
        return torch.from_numpy(np.stack([targets(item, None, random)["labels"] for item in items]))

    def _fit(
        self, features: Tensor, labels: Tensor, others: Tensor, theirs: Tensor
    ) -> tuple[dict[str, Head], dict[str, dict[str, float]]]:
        """Return the best head of each kind, and the scores of these and of nearest neighbours, as time allows.

        Args:
            features, labels: of the training images.
            others, theirs: features and labels of the validation images.
        """
        heads = self._heads(features, labels, others, theirs)
        scores = {name: self._scores(head(others), theirs) for name, head in heads.items()}
        if self.data.splits["val"]:  # for training images, the nearest image is the image itself
            with suppress(OutOfTimeError):
                votes = neighbours(features, labels, others, classes=self.classes, on_step=self._look)
                scores["neighbours"] = self._scores(votes, theirs)
        return heads, scores

    def _heads(self, features: Tensor, labels: Tensor, others: Tensor, theirs: Tensor) -> dict[str, Head]:
        """Return the head of each kind with the lowest loss on validation images; without these, with a medium penalty.

        A linear head is left out if it would take many minutes, or more time than there is.
        """
        known = not self.data.splits["val"]
        penalties: Sequence[float] = PENALTIES[3:4] if known else PENALTIES
        ridges = RIDGES[2:3] if known else RIDGES
        if features.numel() * self.classes > LONG:
            penalties = PENALTIES[:0]

        def loss(logits: Tensor, labels: Tensor) -> Tensor:
            return self.task.loss(logits, labels, smoothing=0.0)

        def best(heads: Iterable[Head]) -> Head | None:
            """Return the head with the lowest loss among those fitted in time; None if there is none."""
            losses = []
            with suppress(OutOfTimeError):
                for head in heads:
                    self.folder.leave_for(self.signals.received)
                    losses.append((loss(head(others), theirs).item(), head))
            return min(losses, key=lambda pair: pair[0])[1] if losses else None

        kinds: dict[str, Iterable[Head]] = {"ridge": ridge_heads(features, labels, classes=self.classes, ridges=ridges)}
        if penalties:
            kinds["linear"] = linear_heads(features, labels, loss, classes=self.classes, penalties=penalties, on_step=self._look)
        if self.has_head:
            kinds["head"] = [Head(self.layer.weight.detach().cpu(), self.layer.bias.detach().cpu())]
        return {name: head for name, heads in kinds.items() if (head := best(heads)) is not None}

    def _scores(self, logits: Tensor, labels: Tensor) -> dict[str, float]:
        metrics = self.task.metrics()
        metrics.update({"logits": logits}, {"images": logits, "labels": labels})
        return metrics.scores()

    @torch.no_grad()
    def _take(self, head: Head) -> None:
        self.layer.weight.copy_(head.weight)
        cast(Tensor, self.layer.bias).copy_(head.bias)

    def _row(self, on_train: Mapping[str, float], on_val: Mapping[str, float]) -> Row:
        train = {name: on_train[name] for name in ("loss", *self.task.counts)}
        val = of_epoch(on_val)
        row: dict[str, Any] = {"epoch": 0, "step": 0, "lr": 0.0, **_prefixed("train_", train), **_prefixed("val_", val)}
        return {**row, "images_per_second": self.images / self.reading, "seconds": self.reading}


def _prefixed(prefix: str, values: Mapping[str, float]) -> dict[str, float]:
    return {prefix + name: value for name, value in values.items()}
