"""The three sets of images for export and bench: for calibration of int8, for choices, and for the reported accuracy."""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from vitrail.data.items import Item
from vitrail.data.loading.sampler import shuffled
from vitrail.data.readers.unlabelled import unlabelled, unlabelled_items
from vitrail.errors import DataError
from vitrail.runtime.observer import Observer
from vitrail.tasks.classification.labels.single_label import LabelMetrics
from vitrail.tasks.classification.predictor import LabelPredictor
from vitrail.training.runs.data_of_model import open_for
from vitrail.weights.model_folder.folder import TrainedModel

CALIBRATED, JUDGED, REPORTED = 300, 500, 1000
"""Largest number of images in each of the `SampleSets`."""
BATCH = 16


@dataclass(frozen=True)
class Samples:
    """Prepared images, uint8 (N, C, H, W), with labels: int64 (N,), or float32 (N, classes) for a multi-label model."""

    pixels: Tensor
    labels: Tensor
    labelled: bool
    """True if the labels are those of the data; False if they are the model's own predictions."""
    origin: str
    """The source of the images, such as ``train`` or ``half of val``."""

    def evaluate(self, predictor: LabelPredictor, observer: Observer, who: str) -> LabelMetrics:
        """Return the metrics of a predictor on all images, with its logits; ``who`` names it in the progress."""
        observer.begin(f"{who} answers", len(self.pixels))
        metrics = predictor.metrics(keep=True)
        for pixels, labels in zip(self.pixels.split(BATCH), self.labels.split(BATCH), strict=True):
            metrics.update({"logits": predictor.logits(pixels)}, {"images": pixels, "labels": labels})
            observer.advance(len(pixels))
        return metrics


@dataclass(frozen=True)
class SampleSets:
    """Disjoint sets of images for three purposes: accuracy on images that were used for a choice would be too high."""

    calibration: Samples
    """Images for the ranges of activations in int8."""
    judging: Samples
    """Images for the choices: the amount of merging, whether int8 is kept, and the recommended engine."""
    reporting: Samples
    """Images for the reported accuracy, used for no choice."""

    def __str__(self) -> str:
        sets = {"calibrated": self.calibration, "judged": self.judging, "reported": self.reporting}
        return "; ".join(f"{done} on {len(samples.pixels)} images ({samples.origin})" for done, samples in sets.items())


def samples_of(
    model: str | Path | TrainedModel, predictor: LabelPredictor, data: str | Path | None, observer: Observer
) -> SampleSets:
    """Return images for calibration, for choices, and for reported accuracy.

    They are the training, validation and test images of the data, split as by `vitrail.train` if it has no splits. If a split is
    missing, another one is divided at random with a fixed seed: validation or test images between choices and reporting, so that
    training images are used for calibration only. Images without any split are divided between all three.

    Args:
        model: the model; a run has its own data.
        predictor: the model's predictor; its predictions replace missing labels.
        data: images with or without labels; None for the data of the run.
        observer: receives the progress, and a note on the use of the images.

    Raises:
        DataError: an image or the data cannot be read, or there are too few images for three sets.
    """
    most = (CALIBRATED, JUDGED, REPORTED)
    plain = unlabelled_items(data, sum(most), predictor.multi_label, note=observer.note) if data is not None else []
    if plain:
        parts, labelled = _three_parts({"all": plain}, where=data), False
    else:
        source, own_splits = open_for(model, data)
        source.tell(observer.note)
        whole = own_splits or all(source.splits.values())
        parts = _three_parts(source.splits if whole else {"all": source.split("all")}, where=source.source)
        try:
            predictor.relabelled(source, [], observer.note)
            parts, labelled = [(origin, predictor.relabelled(source, items)) for origin, items in parts], True
        except DataError as error:
            observer.note(f"the model's own answers stand for labels: {error.what}")
            bare = [[unlabelled(i.name, i.image, predictor.multi_label) for i in items] for _, items in parts]
            parts, labelled = [(origin, items) for (origin, _), items in zip(parts, bare, strict=True)], False
    found = [
        _prepared(predictor, items[:count], labelled, origin, observer)
        for (origin, items), count in zip(parts, most, strict=True)
    ]
    sets = SampleSets(*found)
    observer.note(str(sets))
    return sets


def _three_parts(splits: Mapping[str, list[Item]], *, where: object) -> list[tuple[str, list[Item]]]:
    """Return the origin and the items of each of the three sets, in random order."""
    found = {name: _mixed(items) for name, items in splits.items() if items}
    shares = {1: [3], 2: [1, 2] if "train" in found else [2, 1], 3: [1, 1, 1]}[len(found)]
    parts: list[tuple[str, list[Item]]] = []
    for (name, items), share in zip(found.items(), shares, strict=True):
        if len(items) < share:
            what = f"{len(items)} images ({name}) cannot be divided into {share} sets: for calibrating, judging, reporting"
            raise DataError(what, where=str(where), hint="give more images, best with the splits train, val and test")
        origin = {1: name, 2: f"half of {name}", 3: f"a third of {name}"}[share]
        parts += [(origin, items[i::share]) for i in range(share)]
    return parts


def _mixed(items: Sequence[Item]) -> list[Item]:
    return [items[i] for i in shuffled(len(items), 0, 0)]


def _prepared(predictor: LabelPredictor, items: list[Item], labelled: bool, origin: str, observer: Observer) -> Samples:
    """Prepare items; without labels, the model's predictions are their labels."""
    observer.begin("reading images", len(items))
    images, read = predictor.dataset(items), []
    with ThreadPoolExecutor(os.cpu_count(), "read") as pool:
        for sample in pool.map(images.__getitem__, [(0, number) for number in range(len(items))]):
            read.append(sample)
            observer.advance(1)
    pixels, labels = (torch.cat([sample[name] for sample in read]) for name in ("images", "labels"))
    samples = Samples(pixels, labels, labelled, origin)
    if labelled:
        return samples
    answers = samples.evaluate(predictor, observer, "the model").logits
    return replace(samples, labels=(answers > 0).float() if predictor.multi_label else answers.argmax(dim=1))
