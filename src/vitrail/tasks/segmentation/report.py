"""Report on segmentation: scores, IoU by class, confusion, and the worst images with truth, prediction and difference."""

from collections.abc import Sequence
from typing import cast

import numpy as np
from PIL import Image

from vitrail.data.images.decode import decode
from vitrail.data.items import Item
from vitrail.study.page import figures, page
from vitrail.study.page import images as sheets
from vitrail.study.page.page import Markup, Number
from vitrail.study.page.report_part import SPLIT_WORDS, Part, Reported
from vitrail.study.page.tables import percent, split_table
from vitrail.tasks.answer_table import Row
from vitrail.tasks.metrics import METRICS
from vitrail.tasks.segmentation.answer import laid_over
from vitrail.tasks.segmentation.judging.metrics import SegmentationMetrics
from vitrail.tasks.segmentation.task import Segmentation

CARDS = ("miou", "pixel_accuracy", "mean_accuracy", "boundary_iou")
CLASSES, IMAGES = "classes.csv", "images.csv"
"""Tables in the run folder: the scores of each class, and of each image."""
CONFUSION, WORST = "confusion.png", "worst.png"
SHOWN = 8
"""Number of worst images that are drawn."""
WRONG, VOID = (213, 94, 0), (0, 0, 0)
"""Colours in the picture of differences: pixels of a wrong class, and pixels without a true one."""


def report_part(run: Reported) -> Part:
    """Return scores, a table of classes, the confusion matrix, and the worst images."""
    metrics, task = cast(SegmentationMetrics, run.metrics), cast(Segmentation, run.task)
    scores, whom = metrics.scores(), f"{len(run.items):,} {SPLIT_WORDS[run.split]}images"
    figures.save(figures.confusion(_in_per_cent(metrics.confusion), metrics.classes), run.plots / CONFUSION)
    return Part(
        cards=[(METRICS[name].shown(scores[name]), f"{METRICS[name].title} on {whom}") for name in CARDS],
        sections=[_classes(metrics), _confusion(run), _worst(run, task, metrics)],
        data=split_table(run.data),
        caption="The loss of training has class weights, Dice and the auxiliary head in it, if the run has them; that of "
        "validation is the plain cross-entropy.",
        tables={CLASSES: class_rows(metrics), IMAGES: image_rows(metrics, run.items)},
    )


def _in_per_cent(counts: np.ndarray) -> np.ndarray:
    """Return each row of a confusion matrix in whole per cent, which are readable in its cells."""
    result: np.ndarray = np.rint(100 * counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)).astype(np.int64)
    return result


def _classes(metrics: SegmentationMetrics) -> Markup:
    rows = metrics.of_classes()
    table = page.table(
        ("class", "pixels", "IoU, %", "accuracy, %", "boundary IoU, %", ""),
        [
            (
                name,
                Number(f"{row['true']:,}"),
                *(percent(row[key]) for key in ("iou", "accuracy", "boundary_iou")),
                page.bar(float(np.nan_to_num(row["iou"]))),
            )
            for name, row in zip(metrics.classes, rows, strict=True)
        ],
        total=(
            "mean over classes",
            Number(f"{metrics.confusion.sum():,}"),
            *(percent(metrics.scores()[name]) for name in ("miou", "mean_accuracy", "boundary_iou")),
            Markup(""),
        ),
    )
    words = (
        "Pixels are summed over all images before IoU is computed; void is left out. A class that is neither true nor predicted"
    )
    note = f"{words} anywhere (–) is not in the mean. Boundary IoU is of pixels near a border: 2 % of the image's diagonal."
    return page.section("Classes", table, page.note(note))


def _confusion(run: Reported) -> Markup:
    caption = "Per cent of the pixels of each true class, by predicted class."
    return page.section("Confusion", page.picture(run.plots / CONFUSION, "Confusion", caption))


def _worst(run: Reported, task: Segmentation, metrics: SegmentationMetrics) -> Markup:
    """Draw the images of lowest mean IoU; their predictions are computed again, since masks of a data set fill the memory."""
    worst = sorted((row for row in metrics.rows if row.true.any()), key=lambda row: row.iou)[:SHOWN]
    shown = [_four(run.items[row.number], task) for row in worst]
    if not shown:
        return page.section("Worst images", page.note("No image has a pixel of a known class."))
    captions = [f"{figures.short_path(run.items[row.number].name)}: mean IoU {100 * row.iou:.1f} %" for row in worst]
    figures.save(sheets.sheet(shown, ("image", "truth", "prediction", "difference"), captions), run.plots / WORST)
    caption = (
        "The images of the lowest mean IoU of their classes. In the difference, pixels of a wrong class are orange, and pixels "
        f"without a true class black. All images are in {IMAGES}."
    )
    legend = page.gallery((page.inline(Image.new("RGB", (40, 24), color), name), name, "") for name, color in _legend(task))
    return page.section("Worst images", page.picture(run.plots / WORST, "Worst images", caption), legend)


def _legend(task: Segmentation) -> list[tuple[str, tuple[int, int, int]]]:
    return list(zip(task.coding.classes, task.coding.colors, strict=True))


def _four(item: Item, task: Segmentation) -> list[Image.Image]:
    """Return an image at the size of a sheet, then with its true mask, with the predicted one, and with their difference."""
    assert item.mask is not None
    picture, truth = decode(item.image), task.coding.read(item.mask)
    predicted = task.mask(item).astype(truth.dtype)
    small = sheets.thumbnail(picture)

    def over(mask: np.ndarray, colors: Sequence[tuple[int, int, int]], opacity: float) -> Image.Image:
        return laid_over(small, np.asarray(Image.fromarray(mask).resize(small.size, Image.Resampling.NEAREST)), colors, opacity)

    known = truth < len(task.coding.classes)
    different = np.where(known, np.where(truth == predicted, 255, 0), 1).astype(np.uint8)
    return [small, *(over(mask, task.coding.colors, 0.7) for mask in (truth, predicted)), over(different, (WRONG, VOID), 0.8)]


def class_rows(metrics: SegmentationMetrics) -> list[Row]:
    """Return a header and a row per class: its scores and its pixels."""
    rows = metrics.of_classes()
    head = list(rows[0])
    cells = [[_cell(row[key]) for key in head] for row in rows]
    return [["class", *head], *([name, *row] for name, row in zip(metrics.classes, cells, strict=True))]


def _cell(value: float) -> str:
    return str(value) if isinstance(value, int) else "" if np.isnan(value) else f"{value:.6f}"


def image_rows(metrics: SegmentationMetrics, items: Sequence[Item]) -> list[Row]:
    """Return a header and a row per image: mean IoU of its classes, pixel accuracy, and known pixels."""
    rows = [["image", "miou", "pixel_accuracy", "pixels"]]
    for row in metrics.rows:
        known = int(row.true.sum())
        right = row.right.sum() / known if known else np.nan
        rows.append([items[row.number].name, _cell(row.iou), _cell(float(right)), str(known)])
    return rows
