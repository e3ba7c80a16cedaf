"""``vitrail sweep``."""

from pathlib import Path
from typing import Annotated, Any

import yaml
from cyclopts import Parameter

from vitrail.cli.console import note, result, result_json
from vitrail.errors import ConfigError


def sweep(
    *settings: Annotated[str, Parameter(allow_leading_hyphen=True, show=False)],
    out: Path,
    over: Annotated[list[str], Parameter(negative=())],
    data: str | None = None,
    recipe: str | None = None,
    config: Path | None = None,
    against: str | None = None,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Train a model for every combination of some settings; one table and one picture in the end.

    The same command again goes on where it was. Any other setting goes by its dotted name, as in vitrail train.

    Parameters
    ----------
    out
        A folder; every run has one of its own in it.
    over
        A setting and its values: model.position=none,learned-1d,learned-2d,relative. May be given several times; the runs of
        seed=0,1,2 are averaged.
    data
        What vitrail train takes.
    recipe
        As in vitrail train.
    config
        As in vitrail train.
    against
        What the picture has scores against: a setting with numbers, or operations. Default: the first that has numbers.
    json
        One JSON document: the runs with their settings.
    """
    from vitrail import grid
    from vitrail.cli.progress import TrainingProgress
    from vitrail.cli.train import dotted_settings
    from vitrail.study.comparison import columns
    from vitrail.study.sweeps import cells, table

    axes = dict(_axis(words) for words in over)
    with TrainingProgress() as progress:
        found = grid.sweep(
            data, out, over=axes, recipe=recipe, config=config, against=against, observer=progress, **dotted_settings(settings)
        )
    if json:
        result_json([{"settings": values, **run.to_dict()} for values, run in found])
    else:
        head, rows = table(cells(found))
        result(columns([head, *rows]))
    note(f"\nreport: {out / 'report.html'}")


def _axis(words: str) -> tuple[str, list[Any]]:
    """``model.depth=2,4`` as a name and values."""
    name, equals, values = words.partition("=")
    if not equals:
        raise ConfigError(f"{words!r} has no values", where="--over", hint="write --over model.position=none,relative")
    return name.replace("-", "_"), [yaml.safe_load(value) for value in values.split(",")]
