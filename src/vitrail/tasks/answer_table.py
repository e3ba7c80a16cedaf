"""Answers to images as a table for spreadsheets, a row each: ``predict --csv``, ``evaluate --csv`` and ``predictions.csv``."""

import csv
import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from torch import Tensor

from vitrail.data.items import Item
from vitrail.data.table import SEPARATOR
from vitrail.errors import DataError
from vitrail.files import text_file, write_bytes
from vitrail.weights.labelled import Answer, Labelled

MOST = 5
"""Labels that the table of an evaluation has of each image."""
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""How a cell begins that a spreadsheet would run."""
NUMBER = re.compile(r"-[0-9]+(\.[0-9]+)?")
"""A negative number, such as the place of a joint beyond the picture, which is no formula."""
Row = list[str]


def predicted_rows(model: Labelled, answers: Sequence[tuple[Path, Answer]]) -> list[Row]:
    """A head, then a row for each image: its label and score and those that follow, or all that it is told to show."""
    rows = [_said(model, answer) for _, answer in answers]
    return [["image", *_head(model, rows)], *([str(file), *row] for (file, _), row in zip(answers, rows, strict=True))]


def evaluated_rows(model: Labelled, items: Sequence[Item], probabilities: Tensor) -> list[Row]:
    """As `predicted_rows`, with the labels of the items, and whether the answer is right: of several labels, whether all are.

    Args:
        model: what answered.
        items: the images, with the model's own labels.
        probabilities: (N, classes), in the order of the items.
    """
    answers = model.answers(probabilities, MOST)
    rows = [_said(model, answer) for answer in answers]
    head, own = _head(model, rows), 2
    table = [["image", "true_labels" if model.multi_label else "true_label", *head[:own], "correct", *head[own:]]]
    for item, answer, row in zip(items, answers, rows, strict=True):
        true = [model.labels[label] for label in item.labels]
        correct = "yes" if set(true) == {label for label, _ in answer.told} else "no"
        table.append([item.name, SEPARATOR.join(true), *row[:own], correct, *row[own:]])
    return table


def _head(model: Labelled, rows: Sequence[Row]) -> Row:
    if model.multi_label:
        return ["labels", "scores"]
    count = max((len(row) for row in rows), default=2) // 2
    accepted = ["accepted"] * model.reject
    return [*accepted, "label", "score", *(f"{name}_{place}" for place in range(2, count + 1) for name in ("label", "score"))]


def _said(model: Labelled, answer: Answer) -> Row:
    if model.multi_label:
        return [SEPARATOR.join(label for label, _ in answer.told), SEPARATOR.join(_score(score) for _, score in answer.told)]
    accepted = ["yes" if answer.told else "no"] * model.reject
    return [*accepted, *(cell for label, score in answer.best for cell in (label, _score(score)))]


def _score(score: float) -> str:
    return f"{score:.6f}"


def write_table(file: Path, rows: Iterable[Sequence[str]]) -> None:
    """Write rows as CSV, whole or not at all, as spreadsheets read it: UTF-8 that says so, and no cell is a formula.

    Names may be anybody's, and a spreadsheet runs a cell that begins like a formula; such a cell gets an apostrophe in front
    (OWASP, "CSV Injection").
    """
    text = io.StringIO()
    cells = [[_plain(cell) for cell in row] for row in rows]
    returns = any("\r" in cell for row in cells for cell in row)  # which csv quotes only where lines end with them
    csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL if returns else csv.QUOTE_MINIMAL).writerows(cells)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(file, text.getvalue().encode("utf-8-sig", "backslashreplace"))


def read_table(file: Path, *columns: str) -> list[Row]:
    """The rows that `write_table` wrote; raises `DataError` for a file that is none of its own, or has not all the columns."""
    try:
        with text_file(file) as table:
            rows = [[_as_it_was(cell) for cell in row] for row in csv.reader(table, strict=True)]
    except OSError as error:
        raise DataError(f"the table cannot be read: {error.strerror}", where=file, hint="bring it back as it was") from None
    except (ValueError, csv.Error) as error:
        raise DataError(f"the table is damaged: {error}", where=file, hint="bring it back as it was") from None
    if not rows or not {*columns} <= {*rows[0]} or any(len(row) != len(rows[0]) for row in rows):
        what = f"the table is damaged: every row has {', '.join(columns)}"
        raise DataError(what, where=file, hint="bring it back as it was")
    return rows


def _as_it_was(cell: str) -> str:
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(FORMULA) else cell


def _plain(cell: str) -> str:
    return f"'{cell}" if cell.startswith(FORMULA) and not NUMBER.fullmatch(cell) else cell
