"""``vitrail compare``."""

from pathlib import Path

from vitrail.cli.console import note, result, result_json


def compare(runs: list[Path], /, *, out: Path | None = None, json: bool = False) -> None:
    """Compare runs: scores with their uncertainty, curves, cost, and the settings that differ.

    Parameters
    ----------
    runs
        Run folders, in the order of the table.
    out
        A folder for report.html with the curves, and comparison.json. Default: only the table is printed.
    json
        One JSON document: runs and differences.
    """
    from vitrail.config.run_files import require_run
    from vitrail.files import path_of

    for run in runs:
        require_run(path_of(run))  # before torch is imported
    from vitrail import api
    from vitrail.study.compare.comparison import document, text

    compared = api.compare(runs, out)
    if json:
        result_json(document(compared))
    else:
        result(text(compared))
    if out is not None:
        note(f"\nreport: {out / 'report.html'}")
