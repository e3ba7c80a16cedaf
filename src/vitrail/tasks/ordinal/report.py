"""The report on ordered classes: how far guesses lie from the truth."""

import numpy as np
from sklearn.metrics import confusion_matrix

from vitrail.study.page import figures, page
from vitrail.study.page.page import Number
from vitrail.study.page.report_part import SPLIT_WORDS, Part, Reported
from vitrail.study.page.tables import count_table
from vitrail.tasks.ordinal.task import Ordinal, OrdinalMetrics


def report_part(run: Reported) -> Part:
    """Return scores, the errors of each class, and the confusion of classes in their order."""
    task, metrics, data = run.task, run.metrics, run.data
    assert isinstance(task, Ordinal) and isinstance(metrics, OrdinalMetrics)
    guessed, true = (ranks.numpy() for ranks in metrics.guesses)
    scores, order = metrics.scores(), task.order
    matrix = confusion_matrix(true, guessed, labels=range(len(order)))
    figures.save(figures.confusion(matrix, order), run.plots / "confusion.png")
    what = f"on {len(true):,} {SPLIT_WORDS[run.split]}images"
    caption = "Classes stand in their order: the further from the diagonal, the worse the mistake."
    table = page.table(("class", "images", "mean absolute error", "accuracy, %"), _rows(order, true, guessed))
    names = [(item.name, order[t], order[g]) for item, t, g in zip(run.items, true, guessed, strict=True)]
    return Part(
        cards=[
            (f"{scores['mean_absolute_error']:.3f}", f"mean absolute error, in classes, {what}"),
            (f"{100 * scores['top1']:.2f} %", f"accuracy {what}"),
        ],
        sections=[
            page.section("Confusion", page.picture(run.plots / "confusion.png", "Confusion", caption)),
            page.section("Classes", table),
        ],
        data=count_table(data.classes, {name: data.counts(name) for name in data.splits}),
        caption="The loss is the mean of the questions whether an image is above each class.",
        tables={"predictions.csv": [("image", "label", "prediction"), *names]},
    )


def _rows(order: list[str], true: np.ndarray, guessed: np.ndarray) -> list[tuple[str, Number, Number, Number]]:
    rows = []
    for rank, name in enumerate(order):
        off = np.abs(guessed[true == rank] - rank)
        error, right = (f"{off.mean():.3f}", f"{100 * (off == 0).mean():.1f}") if len(off) else ("–", "–")
        rows.append((name, Number(f"{len(off):,}"), Number(error), Number(right)))
    return rows
