"""Benchmark results of a model in several engines and precisions, as a folder."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vitrail.files import whole_folder, write_json
from vitrail.study.page.figures import save
from vitrail.study.page.images import frontier
from vitrail.tasks.metrics import main_metric


def write_bench(folder: Path, found: Mapping[str, Any], best: Sequence[Mapping[str, Any]]) -> None:
    """Write ``bench.json``, and ``frontier.png`` with its ``best`` rows, to a new folder."""
    with whole_folder(folder, replace=False) as draft:
        write_json(draft / "bench.json", found)
        metric = main_metric(best[0])
        shown = [(row["engine"], row["precision"], row["images_per_second"], row.get(metric.name)) for row in best]
        save(frontier(shown, metric), draft / "frontier.png")
