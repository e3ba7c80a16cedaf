"""The report of a run: pictures, tables, and one self-contained page to show to a colleague."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from vitrail.data.preparation import Preparation
from vitrail.data.sources import Item
from vitrail.files import write_text
from vitrail.models.cost import Cost
from vitrail.study import figures, page
from vitrail.study.multi_label import THESE, MultiLabel
from vitrail.study.predictions import Predictions
from vitrail.study.single_label import SingleLabel
from vitrail.study.tables import cost_table, count_table, duration

CAUTIONS = {
    "val": "The epoch that is kept was chosen on these images, which flatters it a little; there are none for testing.",
    "all": "The model was trained on these images; how it does on others is not known.",
}
"""What one has to know of the split that is shown."""


def write_report(
    folder: Path,
    *,
    settings: dict[str, Any],
    environment: dict[str, Any],
    rows: list[dict[str, Any]],
    kept: int,
    cost: Cost,
    classes: list[str],
    counts: dict[str, list[int]],
    split: str,
    items: list[Item],
    preparation: Preparation,
    probabilities: np.ndarray,
    scores: dict[str, float | int],
    validation: tuple[np.ndarray, np.ndarray] | None = None,
) -> None:
    """Write ``classification_report.txt``, the pictures in ``plots/`` and ``report.html`` of a finished run.

    Args:
        folder: the run folder.
        settings: the complete configuration.
        environment: versions and machine.
        rows: metrics of every epoch.
        kept: the epoch whose weights are evaluated.
        cost: parameters and multiply-adds.
        classes: names by index.
        counts: images of every class, by split.
        split: the split that was evaluated.
        items: its images; a tuple of labels each makes a report on several labels.
        preparation: how the model sees them.
        probabilities: (N, classes), in the order of ``items``.
        scores: accuracy, loss and number of images of that split.
        validation: labels and probabilities, (N, classes) each, of the validation images, for the thresholds of several labels.
    """
    plots = folder / "plots"
    plots.mkdir(exist_ok=True)
    predictions = Predictions(classes, split, items, preparation, probabilities, scores)
    part = for_multi_label(predictions, counts, validation) if predictions.multi_label else SingleLabel(predictions)
    write_text(folder / "classification_report.txt", part.text)
    figures.save(figures.curves(rows, kept), plots / "curves.png")
    seconds = sum(row["seconds"] for row in rows)
    cards = [
        *part.cards(),
        (duration(seconds), f"of training, {len(rows)} epoch{'s' if len(rows) > 1 else ''}"),
        (f"{cost.parameters / 1e6:.2f} M", f"parameters; {cost.macs / 1e6:,.1f} M multiply-adds per image"),
    ]
    sections = [
        *map(page.note, _about(settings, environment)),
        page.cards(cards),
        *([page.paragraph(CAUTIONS[split])] if split in CAUTIONS else []),
        page.section("Training", page.picture(plots / "curves.png", "Curves of training", curves_caption(settings, rows))),
        *part.sections(plots),
        page.section("Cost", cost_table(cost), page.note(_speed(rows))),
        page.section("Data", count_table(classes, counts, counted="labels" if predictions.multi_label else "images")),
        page.section(
            "Settings",
            page.folded("config.yaml", page.verbatim(yaml.safe_dump(settings, sort_keys=False, allow_unicode=True))),
            page.folded("Machine and versions", page.verbatim(yaml.safe_dump(environment, sort_keys=False, allow_unicode=True))),
        ),
    ]
    title = f"{settings['model']['name']} on {settings['data']['source']}"
    write_text(folder / "report.html", page.page(title, sections))


def for_multi_label(
    predictions: Predictions, counts: dict[str, list[int]], validation: tuple[np.ndarray, np.ndarray] | None
) -> MultiLabel:
    """Thresholds come from the validation images, or from those that stood in for them, unless these are the ones shown."""
    if validation is None or predictions.split == "val":
        return MultiLabel(predictions, None, THESE)
    return MultiLabel(predictions, validation, "the validation images" if any(counts["val"]) else "the training images")


def _about(settings: dict[str, Any], environment: dict[str, Any]) -> Iterator[str]:
    """The machine, and what the recipe says of itself."""
    yield ", ".join(
        [environment["processor"], f"{environment['cores']} core{'s' if environment['cores'] != 1 else ''}", *environment["gpus"]]
    )
    if settings["about"]:
        yield settings["about"].strip()
    if expected := [words for words in settings["expected"].values() if words]:
        yield f"Expected by the recipe: {'; '.join(expected)}."


def curves_caption(settings: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """What the curves of training measure."""
    caption = "Training numbers are those of the augmented images as they were learned from"
    if settings["training"]["label_smoothing"]:
        caption += ", with label smoothing in the loss"
    caption += "; validation numbers are those of the weights that are kept."
    if settings["augmentation"]["mixup"] or settings["augmentation"]["cutmix"]:
        caption += " Training images were mixed in pairs"
        caption += "." if "val_map" in rows[0] else "; their accuracy counts a guess of the larger share as right."
    if "val_map" in rows[0] and "train_map" not in rows[0]:
        caption += " Average precision is measured on validation images alone."
    return caption


def _speed(rows: list[dict[str, Any]]) -> str:
    seconds = sum(row["seconds"] for row in rows)
    images = sum(row["seconds"] * row["images_per_second"] for row in rows)
    rate = f" ({images / seconds:,.0f} images per second)" if seconds else ""
    total = f", {duration(seconds)} for all {len(rows)}" if len(rows) > 1 else ""
    return f"Multiply-adds are those of one image forward. Training took {duration(seconds / len(rows))} per epoch{rate}{total}."
