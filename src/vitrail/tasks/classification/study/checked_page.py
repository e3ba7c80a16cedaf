"""The HTML page of a data check: near-duplicates, and with a model labels that are probably wrong."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from vitrail.data.checks.check import check_contents
from vitrail.data.checks.found import Check, path_in
from vitrail.data.items import Issue, Item
from vitrail.data.loading.prefetch import each_answer
from vitrail.data.readers.sources import read_data
from vitrail.data.tables.several_labels import SEPARATOR
from vitrail.deploy.embed import Embedder
from vitrail.deploy.predictor import predict_each
from vitrail.files import whole_folder, write_text
from vitrail.runtime.observer import Observer
from vitrail.runtime.output import free_folder, name_of
from vitrail.study.page import page
from vitrail.study.page.page import Markup
from vitrail.tasks.answer_table import write_table
from vitrail.tasks.classification.study.label_issues import Judged, judgeable, judged
from vitrail.weights.model_folder.folder import TrainedModel
from vitrail.weights.reference import open_model

BATCH = 32
SHOWN = 120
"""Largest number of images with suspicious labels on the page; the table has all."""
GROUPS = 40
"""Largest number of groups of near-duplicates on the page."""
EACH = 8
"""Largest number of images of a group on the page."""


def check_with_page(
    data: str | Path,
    model: str | Path | TrainedModel | None = None,
    out: str | Path | None = None,
    *,
    observer: Observer | None = None,
) -> tuple[Path, Check]:
    """Check every image, and with a model every label, and write a page; return the page's folder and the result."""
    folder, observer = free_folder(out, "checks", str(data)), observer or Observer()
    contents = read_data(data)
    items = [item for items in contents.splits.values() for item in items]
    trained = model if model is None or isinstance(model, TrainedModel) else open_model(model)
    if trained is not None:
        judgeable(items, contents.classes, multi_label=contents.multi_label, where=contents.source)  # before any image is decoded
    observer.begin("checking", len(items))
    found, ranked = check_contents(contents, on_image=observer.advance), None
    if trained is not None:
        ranked = suspects(found, trained, observer)
        found = replace(found, notices=[*found.notices, *(suspect.issue for suspect in ranked if suspect.wrong)])
    with whole_folder(folder, replace=False) as draft:
        write_check(draft, found, ranked, title=f"{name_of(contents.source)}, checked")
    return folder, found


@dataclass(frozen=True)
class Suspect:
    """An image and the judgement of its label."""

    split: str
    item: Item
    label: str
    suggestion: str
    confidence: float
    """Probability that the label is wrong."""
    wrong: bool
    """True if the label is probably wrong; labels that are probably right are ranked, too."""

    @property
    def issue(self) -> Issue:
        what = f"labelled {self.label!r}, looks more like {self.suggestion!r} ({100 * self.confidence:.1f} % sure)"
        return Issue("wrong-label", path_in(self.item), what)


def suspects(found: Check, trained: TrainedModel, observer: Observer) -> list[Suspect]:
    """Return the images whose labels can be judged, sorted from probably wrong to probably right; raises as `judgeable`."""
    contents = found.contents
    every = [(split, item) for split, items in contents.splits.items() for item in items if item.name not in found.unreadable]
    kept = judgeable([item for _, item in every], contents.classes, multi_label=contents.multi_label, where=contents.source)
    places = [every[place] for place in kept]
    labels = torch.tensor([item.target for _, item in places])
    answer: Judged = judged(vectors(trained, [item for _, item in places], observer), labels, classes=len(contents.classes))
    return [
        Suspect(
            *places[place], contents.classes[labels[place]], contents.classes[answer.suggestion[place]],
            float(answer.confidence[place]), bool(answer.wrong[place]),
        )
        for place in answer.ranked
    ]  # fmt: skip


def vectors(trained: TrainedModel, items: list[Item], observer: Observer) -> Tensor:
    """Return the vectors of images, float32 (N, D), as `vitrail.embed` computes them."""
    observer.begin("features", len(items))
    rows: list[np.ndarray] = []
    for batch in predict_each(Embedder(trained, None), [item.image for item in items], batch_size=BATCH):
        rows += each_answer([batch])
        observer.advance(len(batch))
    return torch.from_numpy(np.stack(rows))


def write_check(folder: Path, found: Check, ranked: list[Suspect] | None, *, title: str) -> None:
    """Write ``report.html``, ``near-duplicates.csv`` and, if labels were judged, ``wrong-labels.csv`` to a folder.

    Images have the same names as in ``predictions.csv``, relative to the data folder, so that the tables can be joined.
    """
    groups = [(number, split, item) for number, group in enumerate(found.alike, 1) for split, item in group]
    names = found.contents.classes
    rows = [(str(n), item.name, split, SEPARATOR.join(names[label] for label in item.labels)) for n, split, item in groups]
    write_table(folder / "near-duplicates.csv", [("group", "image", "split", "label"), *rows])
    if ranked is not None:
        head = ("rank", "image", "split", "label", "suggestion", "confidence", "probably_wrong")
        lines = [
            (str(rank), s.item.name, s.split, s.label, s.suggestion, f"{s.confidence:.4f}", "yes" if s.wrong else "no")
            for rank, s in enumerate(ranked, 1)
        ]
        write_table(folder / "wrong-labels.csv", [head, *lines])
    sections = [_cards(found, ranked), *([] if ranked is None else [_labels(ranked)]), _alike(found), _faults(found)]
    write_text(folder / "report.html", page.page(title, sections))


def _cards(found: Check, ranked: list[Suspect] | None) -> Markup:
    images = sum(map(len, found.contents.splits.values()))
    across = sum(len({split for split, _ in group}) > 1 for group in found.alike)
    judged_ = [] if ranked is None else [(f"{sum(s.wrong for s in ranked):,}", f"labels probably wrong, of {len(ranked):,}")]
    near = [(f"{len(found.alike):,}", "groups of near-duplicates"), (f"{across:,}", "of them in several splits")]
    return page.cards([(f"{images:,}", "images"), *judged_, *near, (f"{len(found.issues):,}", "faults")])


def _labels(ranked: list[Suspect]) -> Markup:
    wrong = [suspect for suspect in ranked if suspect.wrong]
    if not wrong:
        return page.section("Probably wrong labels", page.paragraph("None."))
    words = (
        "Heads on the model's features were asked about images that they had not seen. These look more like another class than "
        "images of that class usually do (confident learning), the surest first. Look at each: odd images are among them."
    )
    cells = [
        (_picture(s.item), f"{s.label} → {s.suggestion}, {100 * s.confidence:.1f}\u00a0%", _name(s.split, s.item))
        for s in wrong[:SHOWN]
    ]
    rest = f"{len(wrong) - SHOWN:,} more, and the rank of every image, are in wrong-labels.csv."
    every = "The rank of every image is in wrong-labels.csv."
    parts = page.paragraph(words), page.gallery(cells), page.note(rest if len(wrong) > SHOWN else every)
    return page.section("Probably wrong labels", *parts)


def _alike(found: Check) -> Markup:
    """Return the section on near-duplicates: groups in several splits first, then groups with different labels."""
    if not found.alike:
        return page.section("Near-duplicates", page.paragraph("None."))
    names = found.contents.classes
    serious = [(len({split for split, _ in g}) > 1, len({item.target for _, item in g}) > 1) for g in found.alike]
    order = sorted(range(len(found.alike)), key=lambda number: serious[number], reverse=True)
    parts = [page.paragraph("Nearly the same picture: in several splits scores are too good, under several labels one is wrong.")]
    for number in order[:GROUPS]:
        splits, labels = serious[number]
        group = found.alike[number]
        words = ["in several splits"] * splits + ["under several labels"] * labels
        cells = [
            (_picture(item), ", ".join(names[label] for label in item.labels), _name(split, item)) for split, item in group[:EACH]
        ]
        more = [f"{len(group) - EACH} more pictures"] if len(group) > EACH else []
        parts += [page.note("; ".join([f"Group {number + 1}", *words, *more])), page.gallery(cells)]
    if len(order) > GROUPS:
        parts.append(page.note(f"{len(order) - GROUPS:,} more groups are in near-duplicates.csv."))
    return page.section("Near-duplicates", *parts)


def _faults(found: Check) -> Markup:
    rows = [(issue.kind, issue.path, issue.what) for issue in found.issues[:SHOWN]]
    more = [page.note(f"{len(found.issues) - SHOWN:,} more")] if len(found.issues) > SHOWN else []
    return page.section("Faults", page.table(("kind", "where", "what"), rows) if rows else page.paragraph("None."), *more)


def _name(split: str, item: Item) -> str:
    return item.name if split == "all" else f"{item.name} ({split})"


def _picture(item: Item) -> Markup:
    return page.thumbnail(item.image, item.name)
