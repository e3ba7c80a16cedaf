"""Runs side by side: accuracy with its uncertainty, paired differences, cost, and the settings that differ."""

import filecmp
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from vitrail.data.loading.sampler import spread
from vitrail.models.configs.texts import COUNTED
from vitrail.study.compare.paired import Paired, answers_in, paired
from vitrail.study.page import figures
from vitrail.study.page.tables import duration
from vitrail.study.quality.calibration import wilson_interval
from vitrail.tasks.metrics import COUNTS, Metric, main_metric

WHERE = ("results", "about", "expected.result", "expected.cost", "expected.machine")
"""Settings that say nothing of what a run does."""
SPLITTING = ("split_seed", "test_share", "val_share", "group")
"""Settings of the data that decide which images a run is evaluated on."""
ANSWERS = "predictions.csv"
MOST_NOTES, COMPARED_FILES = 8, 200
"""Sentences on pairs of runs, and files of two data sets that are compared."""
TOKENS_PER_SECOND = "tokens_per_second"
"""A run's rate where it learns texts."""


@dataclass(frozen=True)
class Compared:
    """What is known of a run.

    Args:
        name: as it is called.
        state: of its status: finished, running, failed and so on.
        settings: the complete configuration, nested.
        rows: the metrics of its epochs.
        parameters: of its model.
        macs: multiply-adds of one image, or of a text of `COUNTED` tokens.
        split: what the best model was evaluated on; empty where it was not.
        scores: of that evaluation.
        family: the kind of its model, such as hybrid; empty where that is not known.
        folder: of the run; None where it has none.
        data: what identifies the data that it learned from, wherever that lies; None where it is not known.
    """

    name: str
    state: str
    settings: dict[str, Any]
    rows: list[dict[str, Any]]
    parameters: int
    macs: int
    split: str = ""
    scores: dict[str, float] = field(default_factory=dict)
    family: str = ""
    folder: Path | None = None
    data: dict[str, Any] | None = None

    @property
    def metric(self) -> Metric:
        """The one that decides, of its task."""
        return main_metric(self.scores)

    @property
    def task(self) -> str:
        """The name of what it learned; empty where that is not known."""
        return str(self.settings.get("task", {}).get("name", ""))

    @property
    def source(self) -> Path:
        """Where its data lay."""
        return Path(str(self.settings.get("data", {}).get("source"))).resolve()

    @property
    def place(self) -> Path:
        """The folder that the names of its images begin at: its data, or where the table of its data lies."""
        return self.source.parent if self.source.is_file() else self.source

    @property
    def score(self) -> float | None:
        """The value of that metric; None where the run was not evaluated."""
        return self.scores.get(self.metric.name)

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % for a score that counts images (Wilson 1927); None where there is none, or another score."""
        if self.score is None or not self.metric.counts_images:
            return None
        images = int(self.scores["images"])
        return wilson_interval(round(self.score * images), images)

    @property
    def epochs(self) -> int:
        """Of training; a probe counts as none."""
        return int(self.rows[-1]["epoch"]) if self.rows else 0

    @property
    def seconds(self) -> float:
        """Of training."""
        return float(sum(row["seconds"] for row in self.rows))

    @property
    def rate(self) -> float:
        """Images per second in training, or tokens, the median of the epochs; of a probe alone, of its features."""
        epochs = [row for row in self.rows if row["epoch"]] or self.rows
        return float(np.median([_rate(row) for row in epochs])) if epochs else 0.0

    @property
    def operations(self) -> float:
        """Of the whole training, forward and backward: six for every multiply-add of an image, or of a text of `COUNTED` tokens.

        At most: images that grow, patches that are dropped or masked and weights that stay take less. Of the model alone: a
        teacher or a decoder is not counted.
        """
        each = self.macs / (COUNTED if self.of_tokens else 1)
        return 6 * each * sum(row["seconds"] * _rate(row) for row in self.rows)

    @property
    def of_tokens(self) -> bool:
        """Whether tokens are counted in training, and not images."""
        return any(TOKENS_PER_SECOND in row for row in self.rows)

    def to_dict(self) -> dict[str, Any]:
        """For programs."""
        interval = self.interval
        return {
            "run": self.name,
            "state": self.state,
            "family": self.family,
            "split": self.split,
            "scores": self.scores,
            "interval": list(interval) if interval else None,
            "epochs": self.epochs,
            "seconds": self.seconds,
            "images_per_second": self.rate,
            **({TOKENS_PER_SECOND: self.rate} if self.of_tokens else {}),
            "parameters": self.parameters,
            "macs": self.macs,
            "operations": self.operations,
        }


def by_last_name(runs: list[Compared]) -> list[Compared]:
    """Runs by the last names of their folders, where these differ; else they keep their whole paths."""
    last = [Path(run.name).resolve().name for run in runs]
    return [replace(run, name=name) for run, name in zip(runs, last, strict=True)] if len(set(last)) == len(runs) else runs


def differences(runs: Sequence[Compared]) -> dict[str, list[Any]]:
    """Settings by dotted name that are not the same in all runs, with the value in each; None where a run has no such setting."""
    flat = [flattened(run.settings) for run in runs]
    names = list(dict.fromkeys(name for settings in flat for name in settings))
    values = {name: [settings.get(name) for settings in flat] for name in names if name not in WHERE}
    return {name: found for name, found in values.items() if any(value != found[0] for value in found)}


def flattened(settings: dict[str, Any], path: str = "") -> dict[str, Any]:
    """Nested settings by dotted name."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, dict) and value:
            found |= flattened(value, f"{path}{name}.")
        else:
            found[f"{path}{name}"] = value
    return found


HEAD = (
    "run",
    "score",
    "95 % interval",
    "images",
    "epochs",
    "training",
    "images/s",
    "pixels",
    "parameters",
    "multiply-adds",
)

TEXTS = {"images": "sentences", "images/s": "tokens/s"}
"""The same columns of models of texts."""


def head_of(runs: Sequence[Compared]) -> tuple[str, ...]:
    """What stands above the columns of `HEAD` for these runs."""
    trained = [run for run in runs if run.rows]
    texts = bool(trained) and all(run.of_tokens for run in trained)
    return tuple(TEXTS.get(name, name) for name in HEAD) if texts else HEAD


def _rate(row: Mapping[str, Any]) -> float:
    """Images, or tokens, per second in an epoch."""
    return float(next(value for name, value in row.items() if name.endswith("_per_second")))


def count_of(scores: Mapping[str, Any]) -> int:
    """The images, or sentences, that scores are about."""
    return int(next(scores[name] for name in COUNTS if name in scores))


PAIRS = ("run", "against", "difference, points", "it alone right", "the other alone", "images", "p")


def table(runs: Sequence[Compared]) -> list[tuple[str, ...]]:
    """A row for every run, in the columns of `HEAD`."""
    return [
        (
            run.name if run.state == "finished" else f"{run.name} ({run.state})",
            "–" if run.score is None else run.metric.shown(run.score),
            "{:.1f} to {:.1f}".format(*(100 * side for side in run.interval)) if run.interval else "–",
            f"{count_of(run.scores):,} {run.split}" if run.scores else "–",
            str(run.epochs),
            duration(run.seconds),
            f"{run.rate:,.0f}",
            "×".join(map(str, run.settings.get("model", {}).get("image_size", []))) or "–",
            f"{run.parameters / 1e6:,.2f} M" if run.parameters else "–",
            f"{run.macs / 1e6:,.1f} M" if run.macs else "–",
        )
        for run in runs
    ]


def text(runs: Sequence[Compared]) -> str:
    """The tables for a terminal: the runs, and below them the settings that differ."""
    parts = [columns([head_of(runs), *table(runs)])]
    if pairs := paired_runs(runs):
        parts.append(columns([PAIRS, *paired_table(pairs)]))
    if notes := pair_notes(runs):
        parts.append("\n".join(f"note: {note}" for note in notes))
    different = differences(runs)
    if different:
        head = ("setting", *(run.name for run in runs))
        parts.append(columns([head, *((name, *map(shown, values)) for name, values in different.items())]))
    return "\n\n".join(parts)


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells as text, the first row above a line."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([lines[0], "─" * max(map(len, lines)), *lines[1:]])


def shown(value: Any) -> str:
    """A setting's value, short; of a path the end, which differs from others."""
    words = "–" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"…{words[-39:]}" if "/" in words and len(words) > 40 else figures.short(words, 40)


def document(runs: Sequence[Compared]) -> dict[str, Any]:
    """For programs."""
    pairs = [pair.to_dict() for pair in paired_runs(runs)]
    known = {"runs": [run.to_dict() for run in runs], "paired": pairs, "notes": pair_notes(runs)}
    return {**known, "differences": differences(runs)}


def paired_runs(runs: Sequence[Compared]) -> list[Paired]:
    """Every two runs on the images that both were evaluated on, of the same data."""
    return [pair for pair in _pairs(runs) if isinstance(pair, Paired)]


def pair_notes(runs: Sequence[Compared]) -> list[str]:
    """Sentences on runs that are compared on a part of their images, or not image by image; at most `MOST_NOTES`, and a count."""
    notes = [note for pair in _pairs(runs) if (note := pair.note if isinstance(pair, Paired) else pair)]
    return notes[:MOST_NOTES] + ([f"and {len(notes) - MOST_NOTES:,} more pairs of runs"] if len(notes) > MOST_NOTES else [])


def _pairs(runs: Sequence[Compared]) -> Iterator[Paired | str]:
    """Every two runs that keep answers to images, compared image by image, or why that cannot be done."""
    answers = [(run, own) for run in runs if run.folder is not None and (own := answers_in(run.folder / ANSWERS))]
    for (first, own), (second, others) in combinations(answers, 2):
        names = f"{first.name} and {second.name} are not compared image by image: "
        if not (common := own.keys() & others.keys()):
            yield f"{names}none of their {len(own):,} and {len(others):,} images has the same name and label"
        elif not same_data(first, second) and not _same_files(first, second, sorted(name for name, _ in common)):
            yield f"{names}the same names may be other images in {first.source} and {second.source}"
        else:
            yield from paired([(first.name, own), (second.name, others)])


def _same_files(first: Compared, second: Compared, names: Sequence[str]) -> bool:
    """Return whether files of these names, at most `COMPARED_FILES` evenly taken, hold the same bytes in the data of two runs."""
    chosen = [names[place] for place in spread(len(names), COMPARED_FILES)]
    try:
        return all(filecmp.cmp(first.place / name, second.place / name, shallow=False) for name in chosen)
    except (OSError, ValueError):
        return False


def same_data(first: Compared, second: Compared) -> bool:
    """Whether two runs learned from one data set: of the same folder, or of another with the same names, labels and files.

    Names alone would not do: ``0001.png`` is in many.
    """
    return first.place == second.place or (first.data is not None and first.data == second.data)


def same_images(runs: Sequence[Compared]) -> bool:
    """Whether runs were evaluated on the same images of one data set: by the answers that all keep, else by their splits."""
    first = runs[0]
    if not all(same_data(first, run) for run in runs):
        return False
    kept = [answers_in(run.folder / ANSWERS).keys() for run in runs if run.folder is not None]
    if len(kept) == len(runs) and all(kept):
        return all(images == kept[0] for images in kept)
    return all(_same_splits(first, run) for run in runs)


def _same_splits(first: Compared, second: Compared) -> bool:
    """Whether two runs on one data set split it alike: it had the same in every split, or was split by the same settings."""
    by_hand = [[run.settings.get("data", {}).get(name) for name in SPLITTING] for run in (first, second)]
    return (first.data is not None and first.data == second.data) or by_hand[0] == by_hand[1]


def paired_table(pairs: Sequence[Paired]) -> list[tuple[str, ...]]:
    """A row for every two runs, in the columns of `PAIRS`."""
    return [
        (
            pair.first,
            pair.second,
            f"{100 * pair.difference:+.2f}",
            f"{pair.only_first:,}",
            f"{pair.only_second:,}",
            f"{pair.images:,}",
            f"{pair.p:.2g}" if pair.p >= 0.0001 else "< 0.0001",
        )
        for pair in pairs
    ]
