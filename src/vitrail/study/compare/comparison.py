"""Comparison of runs: scores with uncertainty, paired differences, costs, and the settings that differ."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from vitrail.models.configs.texts import COUNTED
from vitrail.study.page import figures
from vitrail.study.page.page import Markup
from vitrail.study.page.tables import duration
from vitrail.study.quality.calibration import wilson_interval
from vitrail.task_registry import TASKS
from vitrail.tasks.metrics import COUNTS, Metric, main_metric

WHERE = ("results", "about", "expected.result", "expected.cost", "expected.machine")
"""Settings that do not influence a run."""
SPLITTING = ("split_seed", "test_share", "val_share", "group")
"""Settings of the data that decide which images a run is evaluated on."""
TOKENS_PER_SECOND = "tokens_per_second"
"""Training speed of a run on texts."""


@dataclass(frozen=True)
class Compared:
    """A run in a comparison, from `RunFolder.record`; ``macs`` are for one image, or for a text of `COUNTED` tokens."""

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
        """Main metric of the run's task."""
        return main_metric(self.scores)

    @property
    def task(self) -> str:
        """Name of the run's task; empty if unknown."""
        return str(self.settings.get("task", {}).get("name", ""))

    @property
    def source(self) -> Path:
        """Absolute path of the data."""
        return Path(str(self.settings.get("data", {}).get("source"))).resolve()

    @property
    def data_folder(self) -> Path:
        """Folder that image names are relative to."""
        return self.source.parent if self.source.is_file() else self.source

    @property
    def score(self) -> float | None:
        """Value of the main metric; None without an evaluation."""
        return self.scores.get(self.metric.name)

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % interval of a score that is a fraction of images (Wilson 1927); None for other scores."""
        if self.score is None or not self.metric.counts_images:
            return None
        images = int(self.scores["images"])
        return wilson_interval(round(self.score * images), images)

    @property
    def epochs(self) -> int:
        """Number of training epochs; 0 for a probe."""
        return int(self.rows[-1]["epoch"]) if self.rows else 0

    @property
    def seconds(self) -> float:
        """Training time in seconds."""
        return float(sum(row["seconds"] for row in self.rows))

    @property
    def rate(self) -> float:
        """Training images, or tokens, per second: the median over epochs; for a probe without epochs, its speed."""
        epochs = [row for row in self.rows if row["epoch"]] or self.rows
        return float(np.median([_rate(row) for row in epochs])) if epochs else 0.0

    @property
    def operations(self) -> float:
        """Estimated operations of the whole training, forward and backward: six for every multiply-add.

        This is an upper bound: smaller images, dropped patches and frozen weights need fewer. Teachers and decoders are not
        counted.
        """
        each = self.macs / (COUNTED if self.of_tokens else 1)
        return 6 * each * sum(row["seconds"] * _rate(row) for row in self.rows)

    @property
    def of_tokens(self) -> bool:
        """True if training speed is in tokens instead of images."""
        return any(TOKENS_PER_SECOND in row for row in self.rows)

    def to_dict(self) -> dict[str, Any]:
        """Return the run's entry of ``comparison.json``."""
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


class TaskComparison:
    """Additions of a task to a comparison of its runs; a task may define one as ``COMPARISON`` in its module ``compared``."""

    def sections(self, runs: Sequence[Compared], folder: Path) -> list[Markup]:
        """Return sections of the page; their images are written to the folder."""
        return []

    def texts(self, runs: Sequence[Compared]) -> list[str]:
        """Return paragraphs for the terminal output."""
        return []

    def document(self, runs: Sequence[Compared]) -> dict[str, Any]:
        """Return entries of ``comparison.json``."""
        return {}

    def same_items(self, runs: Sequence[Compared]) -> bool | None:
        """Return whether all runs were evaluated on the same items; None if the task cannot decide it."""
        return None


def task_comparisons(runs: Sequence[Compared]) -> Iterator[TaskComparison]:
    """Yield the additions of all tasks among the runs."""
    for row in TASKS.values():
        if row.name in {run.task for run in runs} and row.has("compared"):
            yield row.module("compared").COMPARISON


def by_last_name(runs: list[Compared]) -> list[Compared]:
    """Return runs named by the last part of their paths, or by full paths if last parts are not unique."""
    last = [Path(run.name).resolve().name for run in runs]
    return [replace(run, name=name) for run, name in zip(runs, last, strict=True)] if len(set(last)) == len(runs) else runs


def differences(runs: Sequence[Compared]) -> dict[str, list[Any]]:
    """Return the settings that differ between runs, by dotted name: a value for each run, None if it is missing."""
    flat = [flattened(run.settings) for run in runs]
    names = dict.fromkeys(name for settings in flat for name in settings if name not in WHERE)
    values = {name: [settings.get(name) for settings in flat] for name in names}
    return {name: row for name, row in values.items() if any(value != row[0] for value in row)}


def flattened(settings: dict[str, Any], path: str = "") -> dict[str, Any]:
    """Flatten nested settings to dotted names."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        flat |= flattened(value, f"{path}{name}.") if isinstance(value, dict) and value else {f"{path}{name}": value}
    return flat


HEAD = (
    "run", "score", "95 % interval", "images", "epochs", "training", "images/s", "pixels", "parameters", "multiply-adds",
)  # fmt: skip
TEXTS = {"images": "sentences", "images/s": "tokens/s"}
"""Columns of `HEAD` that have other names for text models."""


def head_of(runs: Sequence[Compared]) -> tuple[str, ...]:
    """Return the column names for these runs."""
    trained = [run for run in runs if run.rows]
    texts = bool(trained) and all(run.of_tokens for run in trained)
    return tuple(TEXTS.get(name, name) for name in HEAD) if texts else HEAD


def _rate(row: Mapping[str, Any]) -> float:
    return float(next(value for name, value in row.items() if name.endswith("_per_second")))


def count_of(scores: Mapping[str, Any]) -> int:
    """Return the number of images, or sentences, in the evaluation."""
    return int(next(scores[name] for name in COUNTS if name in scores))


def table(runs: Sequence[Compared]) -> list[tuple[str, ...]]:
    """Return a row for every run, with the columns of `HEAD`."""
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
    """Return the comparison for a terminal: the runs, their tasks' additions, and the settings that differ."""
    parts = [columns([head_of(runs), *table(runs)])]
    parts += [paragraph for task in task_comparisons(runs) for paragraph in task.texts(runs)]
    if different := differences(runs):
        head = ("setting", *(run.name for run in runs))
        parts.append(columns([head, *((name, *map(shown, values)) for name, values in different.items())]))
    return "\n\n".join(parts)


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Format rows of cells as aligned text, with a line below the first row."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([lines[0], "─" * max(map(len, lines)), *lines[1:]])


def shown(value: Any) -> str:
    """Return a setting's value as text, shortened to 40 characters; of a long path the end is kept."""
    words = "–" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"…{words[-39:]}" if "/" in words and len(words) > 40 else figures.short(words, 40)


def document(runs: Sequence[Compared]) -> dict[str, Any]:
    """Return the content of ``comparison.json``."""
    entries: dict[str, Any] = {"runs": [run.to_dict() for run in runs], "paired": [], "notes": []}
    for task in task_comparisons(runs):
        entries |= task.document(runs)
    return {**entries, "differences": differences(runs)}


def same_data(first: Compared, second: Compared) -> bool:
    """Return whether two runs used one folder, or data with the same names, labels and files.

    Names alone are not enough: many data sets have a ``0001.png``.
    """
    return first.data_folder == second.data_folder or (first.data is not None and first.data == second.data)


def same_items(runs: Sequence[Compared]) -> bool:
    """Return whether runs were evaluated on the same items of one data set: as their tasks decide, else by their splits."""
    first = runs[0]
    if not all(same_data(first, run) for run in runs):
        return False
    known = [same for task in task_comparisons(runs) if (same := task.same_items(runs)) is not None]
    return all(known) if known else all(_same_splits(first, run) for run in runs)


def _same_splits(first: Compared, second: Compared) -> bool:
    """Return whether two runs on one data set have the same splits, by equal fingerprints or equal settings."""
    by_hand = [[run.settings.get("data", {}).get(name) for name in SPLITTING] for run in (first, second)]
    return (first.data is not None and first.data == second.data) or by_hand[0] == by_hand[1]
