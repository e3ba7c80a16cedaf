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

from vitrail import api
from vitrail.data.items import ImageData, Item
from vitrail.data.order import shuffled
from vitrail.deploy.answering import Answerer, in_python
from vitrail.deploy.artefact import FIGURES, Description, ExportPrecision, Target, artefact_card, graph_of
from vitrail.deploy.export import export_graph, require_possible
from vitrail.deploy.measure import timed
from vitrail.deploy.merging import merging, strongest, weaker
from vitrail.deploy.problems import ExportError
from vitrail.errors import ConfigError, DataError
from vitrail.files import whole_folder, write_json, write_text
from vitrail.models.inference import quickest_precision
from vitrail.study.subjects import plain_subjects, unlabelled
from vitrail.training.evaluation import Evaluation
from vitrail.training.observer import Observer
from vitrail.training.run_folder import free_folder, name_of
from vitrail.weights.folder import TrainedModel, fill_folder
from vitrail.weights.reference import from_pretrained

CALIBRATION, REPORTED = 300, 1000
"""Images at most that ranges and merging are chosen by, and that accuracy is then measured on."""
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

    def asked(self, answerer: Answerer, observer: Observer, who: str) -> Evaluation:
        """What is said of all of them."""
        observer.begin(f"{who} answers", len(self.pixels))
        found = []
        for batch in self.pixels.split(BATCH):
            found.append(answerer.logits(batch))
            observer.advance(len(batch))
        return Evaluation(torch.cat(found), self.labels)


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
        calibrate: images, as for `evaluate` or without labels. By up to 300 of them ranges and merging are chosen, and accuracy
            is measured on up to 1,000 others. By default those of a run.
        merge: patches that every block merges into others like them, or a number for each block; None for as many as
            ``max_drop`` allows.
        max_drop: points of accuracy that merging, with all else, may lose; beside accuracy itself also of the mean probability
            of the right label, which a few images tell better.
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
    chosen = asked = None
    if calibrate is not None or precision == "int8" or merge is None:
        python = in_python(trained)
        chosen, asked = samples_of(model, python, calibrate, observer)
    limit = _Limit(trained, chosen, max_drop, observer) if merge is None and chosen is not None else None
    schedules: list[int | tuple[int, ...]] = [*weaker(trained.config, limit.strongest())] if limit else [merge or 0]
    for counts in schedules:
        with suppress(_TooMuchLostError), whole_folder(folder, replace=False) as draft:
            shown = merging(trained, counts) if counts else trained
            about = Description.of_model(trained, name, precision, any_size=any_size, pixels=fold)
            observer.begin("exporting", 0)
            written = export_graph(shown, about, to, draft, None if chosen is None else chosen.pixels)
            if limit and any(shown.config.merged):
                limit.require(written.answerer)
            if to == "torch":
                fill_folder(draft, shown, card=shown.card or shown.plain_card())
            figures: dict[str, Any] = {"model": name, "to": to, "precision": precision, "token_merging": counts}
            figures |= {"verified": written.verified.to_dict()}
            if asked is not None:
                beside = written.floats or in_python(trained, quickest_precision(torch.device("cpu")))
                figures |= _measured(python, written.answerer, beside, asked, observer)
                if precision == "int8" and not force:
                    _require_worth(figures)
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


def samples_of(
    model: str | Path | TrainedModel, answerer: Answerer, data: str | Path | None, observer: Observer
) -> tuple[Samples, Samples]:
    """Images to choose by, `CALIBRATION` at most, and others to measure on, `REPORTED` at most.

    Args:
        model: that of a run has data of its own.
        answerer: the model, whose answers stand for labels where there are none.
        data: images with labels, or without.
        observer: told how it goes.

    Raises:
        DataError: an image or the data cannot be read.
    """
    plain = plain_subjects(data, CALIBRATION + REPORTED, answerer.multi_label) if data is not None else None
    if plain is not None:
        chosen, asked, labelled = plain.items[::2], plain.items[1::2] or plain.items, False
    else:
        source, own_splits = api.open_for(model, data)
        chosen, asked = _apart(source, own_splits)
        try:
            chosen, asked, labelled = answerer.relabelled(source, chosen), answerer.relabelled(source, asked), True
        except DataError as error:
            observer.note(f"the model's own answers stand for labels: {error.what}")
            chosen, asked = ([unlabelled(i.name, i.image, answerer.multi_label) for i in items] for items in (chosen, asked))
            labelled = False
    return (
        _prepared(answerer, chosen[:CALIBRATION], labelled, observer),
        _prepared(answerer, asked[:REPORTED], labelled, observer),
    )


def _apart(source: ImageData, own_splits: bool) -> tuple[list[Item], list[Item]]:
    """Training images and others at random; where there are no splits, half of the images each."""
    train, rest = source.splits.get("train", []), source.splits.get(source.evaluation_split, [])
    if own_splits and train and rest:
        return _mixed(train), _mixed(rest)
    every = _mixed(source.split("all"))
    middle = min(CALIBRATION, len(every) // 2)
    return every[:middle] or every, every[middle:]


def _mixed(items: Sequence[Item]) -> list[Item]:
    """In a random order, always the same."""
    return [items[i] for i in shuffled(len(items), 0, 0)]


def _prepared(answerer: Answerer, items: list[Item], labelled: bool, observer: Observer) -> Samples:
    """Items as pixels, with their labels or with the model's answers in place of them."""
    observer.begin("reading images", len(items))
    images, read = api.images_for(answerer, items), []
    with ThreadPoolExecutor(os.cpu_count(), "read") as pool:
        for sample in pool.map(images.__getitem__, [(0, number) for number in range(len(items))]):
            read.append(sample)
            observer.advance(1)
    pixels, labels = (torch.cat(part) for part in zip(*read, strict=True))
    samples = Samples(pixels, labels, labelled)
    if labelled:
        return samples
    answers = samples.asked(answerer, observer, "the model").logits
    return replace(samples, labels=(answers > 0).float() if answerer.multi_label else answers.argmax(dim=1))


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

    def require(self, answerer: Answerer) -> None:
        """Refuse a graph that loses more, with all that was done to it.

        Raises:
            _TooMuchLostError: it does.
        """
        answers = self.samples.asked(answerer, self.observer, answerer.name)
        lost = surely_lost(*points_lost(self.before, answers), len(self.samples.pixels))
        if lost > self.max_drop:
            self.observer.note(f"{answerer.name} with merging loses {lost:.2f} points; it is tried with less of it")
            raise _TooMuchLostError


def _measured(plain: Answerer, answerer: Answerer, beside: Answerer, samples: Samples, observer: Observer) -> dict[str, Any]:
    """Accuracy before and after, and images per second beside the model in Python and without quantisation."""
    before, after = samples.asked(plain, observer, "the model"), samples.asked(answerer, observer, answerer.name)
    lost, certainty_lost = points_lost(before, after)
    ways = {plain.name: plain, answerer.name: answerer}
    ways.setdefault(beside.name, beside)
    observer.begin("measuring speed", 0)
    rates = timed({name: way.logits for name, way in ways.items()}, samples.pixels[:BATCH])
    return {
        "images": len(samples.pixels),
        "labelled": samples.labelled,
        "top1": {"before": before.top(1), "after": after.top(1)},
        "agreement": (before.logits.argmax(dim=1) == after.logits.argmax(dim=1)).double().mean().item(),
        "points_lost": lost,
        "certainty_lost": certainty_lost,
        "images_per_second": {name: timing.images_per_second for name, timing in rates.items()},
        "beside": beside.name,
    }


def _require_worth(figures: Mapping[str, Any]) -> None:
    """Refuse int8 that loses too much, or is slower than floats."""
    lost = surely_lost(figures["points_lost"], figures["certainty_lost"], figures["images"])
    rates = figures["images_per_second"]
    name = next(name for name in rates if name.endswith("int8"))
    hint = "keep it all the same: --force"
    if lost > MOST_LOST:
        of = "accuracy" if figures["labelled"] else "agreement with the model"
        raise ExportError(f"int8 loses {lost:.1f} points of {of} on {figures['images']} images", where="--precision", hint=hint)
    beside = figures["beside"]
    if rates[name] < rates[beside]:
        what = f"int8 is slower than {beside}: {rates[name]:.0f} images per second, not {rates[beside]:.0f}"
        raise ExportError(what, where="--precision", hint=hint)
