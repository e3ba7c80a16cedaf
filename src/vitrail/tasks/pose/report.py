"""Report on pose estimation: all scores, scores by joint, and the worst predictions."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from vitrail.files import whole_folder
from vitrail.study.page import figures, page
from vitrail.study.page.page import Markup, Number
from vitrail.study.page.report_part import SPLIT_WORDS, Part, Reported
from vitrail.study.page.tables import percent, split_table
from vitrail.tasks.metrics import metrics_in
from vitrail.tasks.pose.metrics import (
    PCK,
    Found,
    correct_joints,
    distances,
    joint_similarity,
    marked_joints,
    oks,
    pck,
    usual_length,
)
from vitrail.tasks.pose.people.people import Person
from vitrail.tasks.pose.people.skeleton import Skeleton
from vitrail.tasks.pose.study.skeletons import worst_sheet
from vitrail.tasks.pose.task import PoseMetrics

JOINTS = "joints.csv"
"""File in the run folder with all joints of all evaluated people."""
CHART, WORST = "joints.png", "worst.png"
"""Figures: a bar per joint, and the worst predictions."""
LENGTHS = {"torso": "the distance of left shoulder and right hip", "box": "the longer side of the box"}
"""Descriptions of PCK's lengths."""
CARDS = ("pck", "oks", "ap", "ar")
"""Metrics at the top of the report; the others are in a table."""


@dataclass(frozen=True)
class FoundPeople:
    """Annotated people with their predicted joints."""

    people: Sequence[Person]
    skeleton: Skeleton
    found: Found

    @property
    def near(self) -> PCK:
        """Fractions of joints near enough, by the default length for these people."""
        return pck(self.found, self.people, self.skeleton, by=usual_length(self.people, self.skeleton))


def report_part(run: Reported) -> Part:
    """Return scores, scores by joint, and figures of the worst predictions."""
    metrics, scores = cast(PoseMetrics, run.metrics), run.metrics.scores()
    kept = FoundPeople(run.items, metrics.skeleton, metrics.found)
    save_pictures(kept, run.plots)
    sections = [_joints(kept, run), _worst(run)]
    if others := _other_scores(scores):
        sections.insert(1, others)
    return Part(
        cards=_cards(scores, f"{len(kept.people):,} {SPLIT_WORDS[run.split]}people"),
        sections=sections,
        data=split_table(run.data),
        caption="" if "train_pck" in run.rows[0] else "PCK is measured on validation people alone.",
        tables={JOINTS: joint_rows(kept)},
    )


def write_pictures(folder: Path, kept: FoundPeople) -> None:
    """Write the figures of a report to a new folder; an interrupted write leaves no folder."""
    with whole_folder(folder, replace=False) as draft:
        save_pictures(kept, draft)


def save_pictures(kept: FoundPeople, folder: Path) -> None:
    """Write `CHART` and `WORST` to a folder."""
    figures.save(joint_chart(kept.skeleton.joints, kept.near.per_joint), folder / CHART)
    figures.save(worst_answers(kept), folder / WORST)


def _cards(scores: dict[str, float | int], whom: str) -> list[tuple[str, str]]:
    return [(one.shown(scores[one.name]), f"{one.title} on {whom}") for one in metrics_in(scores) if one.name in CARDS]


def _other_scores(scores: dict[str, float | int]) -> Markup | None:
    others = [metric for metric in metrics_in(scores) if metric.name not in (*CARDS, "loss")]
    if not others:
        return None
    rows = [(metric.title, Number(metric.shown(scores[metric.name]))) for metric in others]
    coco = [page.note("By COCO's rules: medium people cover 32² to 96² pixels, large ones more.")] if "ap" in scores else []
    return page.section("Other scores", page.table(("score", ""), rows), *coco)


def _joints(kept: FoundPeople, run: Reported) -> Markup:
    by, near = usual_length(kept.people, kept.skeleton), kept.near
    caption = f"PCK@0.2: the share of marked joints that are found within a fifth of {LENGTHS[by]}."
    if near.left_out:
        caption += f" Left out: {near.left_out:,} of {len(kept.people):,} people, of whom that length is not known."
    return page.section(
        "Joints",
        page.picture(run.plots / CHART, "PCK by joint", caption),
        joint_table(kept, near),
        page.note("The mean distance is in pixels of the picture. PCK, distance and OKS are of marked joints alone."),
    )


def joint_table(kept: FoundPeople, near: PCK) -> Markup:
    """Return a table of PCK, mean distance and OKS by joint, with the worst joints by PCK marked."""
    far = distances(kept.found, kept.people, kept.skeleton)  # (N, K)
    alike = joint_similarity(kept.found, kept.people, kept.skeleton)
    count = np.isfinite(far).sum(axis=0)
    shares = near.per_joint
    rows = [
        (
            name,
            Number(f"{count[i]:,}"),
            percent(shares[i]),
            _mean(far[:, i], 1),
            _mean(alike[:, i], 3),
            page.bar(float(np.nan_to_num(shares[i]))),
        )
        for i, name in enumerate(kept.skeleton.joints)
    ]
    total = ("all joints", Number(f"{count.sum():,}"), percent(near.total), _mean(far, 1), _mean(alike, 3), Markup(""))
    worst = [i for i in np.argsort(shares, kind="stable").tolist() if shares[i] < 1][: max(1, len(shares) // 5)]
    return page.table(("joint", "marked", "PCK@0.2, %", "mean distance", "OKS", ""), rows, marked=worst, total=total)


def _mean(values: np.ndarray, digits: int) -> Number:
    known = values[np.isfinite(values)]
    return Number(f"{known.mean():.{digits}f}" if len(known) else "–")


def joint_chart(joints: Sequence[str], shares: np.ndarray) -> Figure:
    """Draw PCK as a bar per joint."""
    with matplotlib.rc_context(figures.STYLE):
        figure = Figure(figsize=(6.4, 0.7 + 0.22 * len(joints)), layout="constrained")
        axes = figure.subplots()
        bars = axes.barh(range(len(joints)), 100 * np.nan_to_num(shares), color=figures.BLUE)
        axes.bar_label(bars, [percent(share) for share in shares], fontsize=8, padding=2)
        axes.set_yticks(range(len(joints)), [figures.readable(name, 24) for name in joints], parse_math=False)
        axes.invert_yaxis()
        axes.set(xlabel="PCK@0.2, %", xlim=(0, 108), xticks=range(0, 101, 20))
    return figure


def worst_answers(kept: FoundPeople) -> Figure:
    """Draw the people with the lowest OKS, with annotated next to predicted joints."""
    people, skeleton, found = kept.people, kept.skeleton, kept.found
    alike, right = oks(found, people, skeleton), correct_joints(found, people, skeleton, by=usual_length(people, skeleton))
    captions = [_caption(*pair) for pair in zip(alike, right, strict=True)]
    return worst_sheet(people, found, skeleton, alike, captions)


def _worst(run: Reported) -> Markup:
    caption = (
        "The people with the lowest OKS, each with the joints that were found and the joints that are marked: the person's left "
        "side blue, the right side orange. Joints of which the model is not sure are fainter. All joints are in "
    )
    return page.section("Worst answers", page.picture(run.plots / WORST, "Worst answers", f"{caption}{JOINTS}."))


def _caption(alike: float, right: np.ndarray) -> str:
    known = np.isfinite(right).sum()
    return f"OKS {alike:.2f}" + (f", {np.nansum(right):.0f} of {known} joints" if known else "")


def joint_rows(kept: FoundPeople) -> list[Sequence[str]]:
    """Return a header and a row for each joint of each person: predicted position, score, and annotated position."""
    places, marked = marked_joints(kept.people, kept.skeleton)
    rows: list[Sequence[str]] = [("person", "joint", "x", "y", "score", "marked_x", "marked_y")]
    for i, person in enumerate(kept.people):
        for j, joint in enumerate(kept.skeleton.joints):
            truth = [f"{value:.2f}" for value in places[i, j]] if marked[i, j] else ["", ""]
            x, y = kept.found.joints[i, j]
            rows.append((person.name, joint, f"{x:.2f}", f"{y:.2f}", f"{kept.found.scores[i, j]:.4f}", *truth))
    return rows
