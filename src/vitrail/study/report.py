"""The report of a run: pictures, tables, and one self-contained page to show to a colleague."""

import base64
from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from PIL import Image
from sklearn.metrics import classification_report, confusion_matrix

from vitrail.data.preparation import Preparation
from vitrail.data.sources import Item
from vitrail.files import write_text
from vitrail.study import figures
from vitrail.study.cost import Cost

EXAMPLES = 24
CURVES = (
    "Training numbers are those of the augmented images as they were learned from, with label smoothing in the loss; "
    "validation numbers are those of the weights that are kept."
)
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1b1b1b; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: 0; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
img { max-width: 100%; height: auto; } figure { margin: 0; } figcaption, .note { color: #555; font-size: .9rem; }
table { border-collapse: collapse; } td, th { padding: .2rem .8rem .2rem 0; text-align: left; vertical-align: top; }
.number { font-size: 2rem; font-weight: 600; } .cards { display: flex; gap: 2.5rem; flex-wrap: wrap; margin: 1rem 0; }
pre { background: #f5f5f5; padding: .8rem; overflow-x: auto; font-size: .8rem; } details { margin: .6rem 0; }
"""


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
        items: its images.
        preparation: how the model sees them.
        probabilities: (N, classes), in the order of ``items``.
        scores: accuracy, loss and number of images of that split.
    """
    labels = np.array([item.label for item in items])
    guesses = probabilities.argmax(axis=1)
    per_class = classification_report(
        labels, guesses, labels=range(len(classes)), target_names=classes, digits=4, zero_division=0
    )
    write_text(folder / "classification_report.txt", per_class)
    plots = folder / "plots"
    plots.mkdir(exist_ok=True)
    figures.save(figures.curves(rows, kept), plots / "curves.png")
    matrix = confusion_matrix(labels, guesses, labels=range(len(classes)))
    figures.save(figures.confusion(matrix, classes), plots / "confusion.png")
    _examples(plots / "examples.png", items, preparation, probabilities, classes)
    wrong = int((labels != guesses).sum())
    shown = f"{min(wrong, EXAMPLES)} of {wrong} mistakes, the surest first"
    shown += "; then hits, the least sure first." if wrong < min(EXAMPLES, len(items)) else "."
    if wrong == 0:
        shown = "No mistakes. The hits of which the model was least sure."
    sections = [
        _headline(settings, environment, rows, cost, split, scores),
        _figure("Training", plots / "curves.png", CURVES),
        _figure(
            f"Confusion on {split}", plots / "confusion.png", "A row is a true class, a column a guess; the diagonal is right."
        ),
        _figure("Examples", plots / "examples.png", shown),
        f"<h2>Per class</h2><pre>{escape(per_class)}</pre>",
        _counts(classes, counts),
        "<h2>Settings</h2>",
        _folded("config.yaml", yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)),
        _folded("Machine and versions", yaml.safe_dump(environment, sort_keys=False)),
    ]
    title = f"{settings['model']['name']} on {settings['data']['source']}"
    write_text(folder / "report.html", page(title, sections))


def page(title: str, sections: Iterable[str]) -> str:
    """A page that needs nothing but itself."""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style></head><body><h1>{escape(title)}</h1>{''.join(sections)}</body></html>\n"
    )


def _headline(
    settings: dict[str, Any],
    environment: dict[str, Any],
    rows: list[dict[str, Any]],
    cost: Cost,
    split: str,
    scores: dict[str, float | int],
) -> str:
    cards = [
        (f"{100 * scores['top1']:.2f} %", f"top-1 accuracy on {scores['images']:,} {escape(split)} images"),
        (f"{scores['loss']:.3f}", "cross-entropy"),
        (f"{sum(row['seconds'] for row in rows):.0f} s", f"of training, {len(rows)} epoch{'s' if len(rows) > 1 else ''}"),
        (f"{cost.parameters / 1e6:.2f} M", f"parameters, {cost.macs / 1e6:,.1f} M multiply-adds per image"),
    ]
    shown = "".join(f'<div><div class="number">{number}</div><div class="note">{what}</div></div>' for number, what in cards)
    about = f'<p class="note">{escape(settings["about"].strip())}</p>' if settings["about"] else ""
    machine = f"{environment['processor']}, {environment['cores']} cores"
    return f'<p class="note">{escape(machine)}</p>{about}<div class="cards">{shown}</div>'


def _figure(title: str, picture: Path, caption: str) -> str:
    data = base64.b64encode(picture.read_bytes()).decode()
    return (
        f"<h2>{escape(title)}</h2><figure><img alt='{escape(title)}' src='data:image/png;base64,{data}'>"
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _folded(title: str, text: str) -> str:
    return f"<details><summary>{escape(title)}</summary><pre>{escape(text)}</pre></details>"


def _counts(classes: list[str], counts: dict[str, list[int]]) -> str:
    splits = [split for split, numbers in counts.items() if sum(numbers)]
    head = "".join(f"<th>{escape(s)}</th>" for s in splits)
    body = "".join(
        f"<tr><td>{i}</td><td>{escape(name)}</td>{''.join(f'<td>{counts[s][i]:,}</td>' for s in splits)}</tr>"
        for i, name in enumerate(classes)
    )
    return (
        "<h2>Images</h2><details><summary>per class and split</summary>"
        f"<table><tr><th>index</th><th>class</th>{head}</tr>{body}</table></details>"
    )


def _examples(file: Path, items: list[Item], preparation: Preparation, probabilities: np.ndarray, classes: list[str]) -> None:
    """The surest mistakes, then the least sure hits, as the model sees them."""
    images, captions, right = [], [], []
    for index in telling_order([item.label for item in items], probabilities)[:EXAMPLES]:
        guess = int(probabilities[index].argmax())
        true = items[index].label
        images.append(_picture(preparation, items[index]))
        said = f"{figures.short(classes[guess])} ({100 * probabilities[index, guess]:.0f} %)"
        captions.append(said if guess == true else f"{said}\nis {figures.short(classes[true])}")
        right.append(guess == true)
    figures.save(figures.examples(images, captions, right), file)


def telling_order(labels: list[int], probabilities: np.ndarray) -> list[int]:
    """Indices of images: mistakes first, the surest of them in front, then hits from the least sure."""
    guesses, sureness = probabilities.argmax(axis=1), probabilities.max(axis=1)
    wrong = guesses != np.asarray(labels)
    return np.lexsort((np.where(wrong, -sureness, sureness), ~wrong)).tolist()


def _picture(preparation: Preparation, item: Item) -> Image.Image:
    return preparation.crop(preparation.decode(item.image))
