"""The report on classification, with one class or several per image."""

import torch

from vitrail.study.page.report_part import Part, Reported
from vitrail.study.page.tables import count_table
from vitrail.study.sections.study_images import Subjects
from vitrail.tasks.classification.labels.answer import evaluated_rows
from vitrail.tasks.classification.labels.multi_label import scanty_thresholds
from vitrail.tasks.classification.labels.single_label import LabelMetrics
from vitrail.tasks.classification.study.multi_label_report import MultiLabel
from vitrail.tasks.classification.study.predictions import Predictions
from vitrail.tasks.classification.study.single_label_report import SingleLabel


def report_part(run: Reported) -> Part:
    """Return the part of a report with scores, classes, calibration, mistakes, and the number of images in each class."""
    metrics, data = run.metrics, run.data
    assert isinstance(metrics, LabelMetrics)
    trained = run.task.trained(run.task.model)
    predictions = Predictions.of(trained, Subjects(list(run.items), run.split), metrics)
    shown = several_labels(predictions, run) if predictions.multi_label else SingleLabel(predictions, chosen_on(run))
    counts = {name: data.counts(name) for name in data.splits}
    return Part(
        cards=list(shown.cards()),
        sections=list(shown.sections(run.plots)),
        data=count_table(data.classes, counts, counted="labels" if predictions.multi_label else "images"),
        caption=curves_caption(run),
        texts={"classification_report.txt": shown.text},
        tables={"predictions.csv": evaluated_rows(trained, run.items, torch.from_numpy(predictions.probabilities))},
    )


def chosen_on(run: Reported) -> str:
    """Return the words for the images on which a run chooses its thresholds."""
    return "the validation images" if run.data.splits.get("val") else "the training images"


def several_labels(predictions: Predictions, run: Reported) -> MultiLabel:
    """Return the part for several labels, with thresholds chosen on the validation images, or on training images without them."""
    if run.validation is None or predictions.split == "val":
        shown = MultiLabel(predictions)
        shown.warning = scanty_thresholds(shown.true, predictions.classes)
        return shown
    assert isinstance(run.validation, LabelMetrics)
    warning = scanty_thresholds(run.validation.labels.numpy() > 0, predictions.classes)
    return MultiLabel(predictions, predictions.thresholds, chosen_on(run), warning)


def curves_caption(run: Reported) -> str:
    """Return notes on the curves: label smoothing, mixed images, and metrics that only validation images have."""
    augmentation, several = run.settings["augmentation"], "val_map" in run.rows[0]
    words = ["The training loss has label smoothing in it."] if run.settings["training"]["label_smoothing"] else []
    if augmentation["mixup"] or augmentation["cutmix"]:
        mixed = "Training images were mixed in pairs"
        words.append(f"{mixed}." if several else f"{mixed}; their accuracy counts a guess of the larger share as correct.")
    if several and "train_map" not in run.rows[0]:
        words.append("Average precision is measured on validation images alone.")
    return " ".join(words)
