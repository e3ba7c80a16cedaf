"""What a trained model becomes on its way to those who use it: exported, quantised, with merged tokens, verified, measured."""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitrail.data.items import Item
from vitrail.data.order import shuffled
from vitrail.data.unlabelled import unlabelled, unlabelled_items
from vitrail.deploy.artefact import FIGURES, Description, ExportPrecision, Target, artefact_card, graph_of
from vitrail.deploy.export import export_graph, require_possible
from vitrail.deploy.measure import timed
from vitrail.deploy.merging import merging, strongest, weaker
from vitrail.deploy.predictor import Predictor, in_python
from vitrail.deploy.problems import ExportError
from vitrail.errors import ConfigError, DataError
from vitrail.files import whole_folder, write_json, write_text
from vitrail.runtime.device import quickest_precision
from vitrail.runtime.observer import Observer
from vitrail.runtime.output import free_folder, name_of
from vitrail.tasks.evaluation import Evaluation
from vitrail.training.run_folder import open_for
from vitrail.weights.folder import TrainedModel, fill_folder
from vitrail.weights.reference import from_pretrained

CALIBRATED, JUDGED, REPORTED = 300, 500, 1000
"""Images at most of each of the `SampleSets`."""
MOST_LOST = 1.0
"""Points of top-1 accuracy that int8 may lose."""
ENOUGH = 200
"""Images from which on accuracy alone tells what is lost; of fewer one is half a point or more, and certainty must fall, too."""
BATCH = 16
"""Images at a time, for accuracy and speed."""


@dataclass(frozen=True)
class Samples:
    """Prepared images, uint8 (N, C, H, W), with labels as `Evaluation` has them."""

    pixels: Tensor
    labels: Tensor
    labelled: bool
    """Whether those are given; else the model's own answers stand for them."""
    origin: str
    """Where they come from: ``train``, ``half of val``."""

    def asked(self, predictor: Predictor, observer: Observer, who: str) -> Evaluation:
        """What is said of all of them."""
        observer.begin(f"{who} answers", len(self.pixels))
        found = []
        for batch in self.pixels.split(BATCH):
            found.append(predictor.logits(batch))
            observer.advance(len(batch))
        return Evaluation(torch.cat(found), self.labels)


@dataclass(frozen=True)
class SampleSets:
    """Images for three purposes, none of them for two: accuracy on images that chose something would be too high."""

    calibration: Samples
    """In int8 the ranges of activations are learned from them."""
    judging: Samples
    """By them it is chosen how much is merged, whether int8 is kept, and which engine is recommended."""
    reporting: Samples
    """They choose nothing, and the accuracy that is told is measured on them."""

    def __str__(self) -> str:
        sets = {"calibrated": self.calibration, "judged": self.judging, "reported": self.reporting}
        return "; ".join(f"{done} on {len(samples.pixels)} images ({samples.origin})" for done, samples in sets.items())


def export(
    model: str | Path | TrainedModel,
    out: str | Path | None = None,
    *,
    to: Target = "onnx",
    precision: ExportPrecision = "fp32",
    calibrate: str | Path | None = None,
    merge: int | tuple[int, ...] | None = 0,
    max_drop: float = 0.5,
    image_size: int | str | tuple[int, int] | None = None,
    fold: bool = False,
    force: bool = False,
    observer: Observer | None = None,
) -> tuple[Path, dict[str, Any]]:
    """Write a model as a graph that an engine runs, with labels and preparation inside; gives its folder and what was measured.

    It is kept only if it answers as the model does; see `vitrail.deploy.export.verify`.

    Args:
        model: a run folder, a model folder, a file of weights, or a loaded model.
        out: the folder to write, which must not exist; ``exports/NAME-DATE-TIME`` by default.
        to: onnx; openvino; or torch, a ``.pt2`` beside the model folder.
        precision: fp32, bf16, fp16 or int8.
        calibrate: images, as for `evaluate` or without labels; by default those of a run. Training images calibrate int8,
            validation images judge what is chosen, and accuracy is reported on test images; see `samples_of`.
        merge: patches that every block merges into others like them, or a number for each block; None for as many as
            ``max_drop`` allows.
        max_drop: points of accuracy that merging, with all else, may lose on the judging images; beside accuracy itself also
            of the mean probability of the right label, which a few images tell better.
        image_size: height and width that the graph takes, or one side of a square; ``any`` for any multiples of the patch; the
            model's own by default.
        fold: whether the graph takes pixels, uint8, and normalises them.
        force: keep int8 also where it loses more than one point, or is slower than bf16.
        observer: told how it goes.

    Raises:
        ExportError: the graph cannot be made, or does not answer as the model does.
        VitrailError: others with the exit code of the command.
    """
    require_possible(to, precision)
    name = name_of(str(model)) if isinstance(model, str | Path) else "model"
    folder, observer = free_folder(out, "exports", name), observer or Observer()
    any_size = image_size == "any"
    trained = _to_export(model, None if any_size else image_size)
    samples = None
    if calibrate is not None or precision == "int8" or merge is None:
        python = in_python(trained)
        samples = samples_of(model, python, calibrate, observer)
    limit = _Limit(trained, samples.judging, max_drop, observer) if merge is None and samples else None
    schedules: list[int | tuple[int, ...]] = [*weaker(trained.config, limit.strongest())] if limit else [merge or 0]
    for counts in schedules:
        with suppress(_TooMuchLostError), whole_folder(folder, replace=False) as draft:
            shown = merging(trained, counts) if counts else trained
            about = Description.of_model(trained, name, precision, any_size=any_size, pixels=fold)
            observer.begin("exporting", 0)
            written = export_graph(shown, about, to, draft, samples.calibration.pixels if samples else None)
            if limit and any(shown.config.merged):
                limit.require(written.predictor)
            if to == "torch":
                fill_folder(draft, shown, card=shown.card or shown.plain_card())
            figures: dict[str, Any] = {"model": name, "to": to, "precision": precision, "token_merging": counts}
            figures |= {"verified": written.verified.to_dict()}
            if samples:
                beside = written.floats or in_python(trained, quickest_precision(torch.device("cpu")))
                figures |= _speed(python, written.predictor, beside, samples.reporting, observer)
                if precision == "int8" and not force:
                    _require_worth(_loss(python, written.predictor, samples.judging, observer), figures)
                figures |= {"samples": str(samples)} | _loss(python, written.predictor, samples.reporting, observer)
            write_json(draft / FIGURES, figures)
            if to != "torch":
                write_text(draft / "README.md", artefact_card(about, to, figures))
            break
    return folder, figures


def _to_export(model: str | Path | TrainedModel, image_size: int | str | tuple[int, int] | None) -> TrainedModel:
    """The model in Python."""
    if isinstance(model, TrainedModel):
        return model
    if graph_of(model) is not None:
        raise ConfigError("that is exported already", where=str(model), hint="give the model that it was made from")
    trained = from_pretrained(model, image_size=image_size)
    trained.eval()
    return trained


def samples_of(model: str | Path | TrainedModel, predictor: Predictor, data: str | Path | None, observer: Observer) -> SampleSets:
    """Images to calibrate with, others to judge by, and others again to report accuracy on.

    They are the training, validation and test images of the data, dealt as `vitrail.train` deals them where it has no splits.
    Where a split is missing, another is shared out at random, always in the same way: validation or test images between judging
    and reporting, so that training images only calibrate; images without any split between all three.

    Args:
        model: that of a run has data of its own.
        predictor: the model, whose answers stand for labels where there are none.
        data: images with labels, or without.
        observer: told how it goes, and which images are for what.

    Raises:
        DataError: an image or the data cannot be read, or there are too few images to be shared out.
    """
    most = (CALIBRATED, JUDGED, REPORTED)
    plain = unlabelled_items(data, sum(most), predictor.multi_label) if data is not None else []
    if plain:
        parts, labelled = _three_parts({"all": plain}, where=data), False
    else:
        source, own_splits = open_for(model, data)
        whole = own_splits or all(source.splits.values())
        parts = _three_parts(source.splits if whole else {"all": source.split("all")}, where=source.source)
        try:
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
    """Images to calibrate with, to judge by and to report on, in a random order, with where they come from."""
    found = {name: _mixed(items) for name, items in splits.items() if items}
    shares = {1: [3], 2: [1, 2] if "train" in found else [2, 1], 3: [1, 1, 1]}[len(found)]
    parts: list[tuple[str, list[Item]]] = []
    for (name, items), share in zip(found.items(), shares, strict=True):
        if len(items) < share:
            what = f"{len(items)} images ({name}) cannot be shared between {share} purposes: calibrating, judging, reporting"
            raise DataError(what, where=str(where), hint="give more images, best with the splits train, val and test")
        origin = {1: name, 2: f"half of {name}", 3: f"a third of {name}"}[share]
        parts += [(origin, items[i::share]) for i in range(share)]
    return parts


def _mixed(items: Sequence[Item]) -> list[Item]:
    """In a random order, always the same."""
    return [items[i] for i in shuffled(len(items), 0, 0)]


def _prepared(predictor: Predictor, items: list[Item], labelled: bool, origin: str, observer: Observer) -> Samples:
    """Items as pixels, with their labels or with the model's answers in place of them."""
    observer.begin("reading images", len(items))
    images, read = predictor.dataset(items), []
    with ThreadPoolExecutor(os.cpu_count(), "read") as pool:
        for sample in pool.map(images.__getitem__, [(0, number) for number in range(len(items))]):
            read.append(sample)
            observer.advance(1)
    pixels, labels = (torch.cat(part) for part in zip(*read, strict=True))
    samples = Samples(pixels, labels, labelled, origin)
    if labelled:
        return samples
    answers = samples.asked(predictor, observer, "the model").logits
    return replace(samples, labels=(answers > 0).float() if predictor.multi_label else answers.argmax(dim=1))


def points_lost(before: Evaluation, after: Evaluation) -> tuple[float, float]:
    """Points of top-1 accuracy that were lost, and of the mean probability of the right labels."""
    return 100 * (before.top(1) - after.top(1)), 100 * (certainty(before) - certainty(after))


def surely_lost(points: float, certainty: float, images: int) -> float:
    """Points of accuracy that were lost, as far as so many images can tell."""
    return points if images >= ENOUGH else min(points, certainty)


def certainty(evaluation: Evaluation) -> float:
    """The mean probability of the right labels."""
    if evaluation.multi_label:
        return (evaluation.probabilities[evaluation.labels > 0].mean() if evaluation.labels.any() else torch.zeros(())).item()
    return evaluation.probabilities.gather(1, evaluation.labels[:, None]).mean().item()


class _TooMuchLostError(Exception):
    """Of what was written with merging; less of it is tried next."""


class _Limit:
    """What merging may lose on some images.

    Args:
        trained: the model.
        samples: the images.
        max_drop: points that may be lost, of accuracy and of the mean probability of the right label.
        observer: told how it goes.
    """

    def __init__(self, trained: TrainedModel, samples: Samples, max_drop: float, observer: Observer):
        self.trained, self.samples, self.max_drop, self.observer = trained, samples, max_drop, observer
        self.precision = quickest_precision(torch.device("cpu"))
        self.before = samples.asked(in_python(trained, self.precision), observer, "the model")

    def strongest(self) -> tuple[int, ...]:
        """The schedule that merges most within it, in Python."""
        found = strongest(self.trained.config, self._allowed)
        if not any(found):
            self.observer.note(f"no merging loses less than {self.max_drop:g} points")
        return found

    def _allowed(self, counts: tuple[int, ...]) -> bool:
        merged = in_python(merging(self.trained, counts), self.precision)
        answers = self.samples.asked(merged, self.observer, f"merging {max(counts)} patches at a time")
        return max(points_lost(self.before, answers)) <= self.max_drop

    def require(self, predictor: Predictor) -> None:
        """Refuse a graph that loses more, with all that was done to it.

        Raises:
            _TooMuchLostError: it does.
        """
        answers = self.samples.asked(predictor, self.observer, predictor.name)
        lost = surely_lost(*points_lost(self.before, answers), len(self.samples.pixels))
        if lost > self.max_drop:
            self.observer.note(f"{predictor.name} with merging loses {lost:.2f} points; it is tried with less of it")
            raise _TooMuchLostError


def _loss(plain: Predictor, predictor: Predictor, samples: Samples, observer: Observer) -> dict[str, Any]:
    """Accuracy on some images before and after."""
    before, after = samples.asked(plain, observer, "the model"), samples.asked(predictor, observer, predictor.name)
    lost, certainty_lost = points_lost(before, after)
    return {
        "images": len(samples.pixels),
        "labelled": samples.labelled,
        "top1": {"before": before.top(1), "after": after.top(1)},
        "agreement": (before.logits.argmax(dim=1) == after.logits.argmax(dim=1)).double().mean().item(),
        "points_lost": lost,
        "certainty_lost": certainty_lost,
    }


def _speed(plain: Predictor, predictor: Predictor, beside: Predictor, samples: Samples, observer: Observer) -> dict[str, Any]:
    """Images per second beside the model in Python and without quantisation."""
    ways = {plain.name: plain, predictor.name: predictor}
    ways.setdefault(beside.name, beside)
    observer.begin("measuring speed", 0)
    rates = timed({name: way.logits for name, way in ways.items()}, samples.pixels[:BATCH])
    return {"images_per_second": {name: rate.images_per_second for name, rate in rates.items()}, "beside": beside.name}


def _require_worth(loss: Mapping[str, Any], speed: Mapping[str, Any]) -> None:
    """Refuse int8 that loses too much, or is slower than floats; see `_loss` and `_speed`.

    Raises:
        ExportError: it is not worth it.
    """
    lost = surely_lost(loss["points_lost"], loss["certainty_lost"], loss["images"])
    rates = speed["images_per_second"]
    name = next(name for name in rates if name.endswith("int8"))
    hint = "keep it all the same: --force"
    if lost > MOST_LOST:
        of = "accuracy" if loss["labelled"] else "agreement with the model"
        raise ExportError(f"int8 loses {lost:.1f} points of {of} on {loss['images']} images", where="--precision", hint=hint)
    beside = speed["beside"]
    if rates[name] < rates[beside]:
        what = f"int8 is slower than {beside}: {rates[name]:.0f} images per second, not {rates[beside]:.0f}"
        raise ExportError(what, where="--precision", hint=hint)
