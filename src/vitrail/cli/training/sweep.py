"""``vitrail sweep``."""

from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from vitrail.cli.console import note, result, result_json
from vitrail.cli.flags import Config, Recipe, Start, Words
from vitrail.errors import ConfigError


def sweep(
    *settings: Words,
    out: Path,
    over: list[str],
    data: str | None = None,
    recipe: Recipe = None,
    start: Start = None,
    config: Config = None,
    against: str | None = None,
    on: Literal["ray"] | None = None,
    json: bool = False,
) -> None:
    """Train a model for every combination of settings, and write one table and one plot.

    The same command again continues an interrupted sweep. Other settings are given by their dotted names, as to vitrail train.

    Parameters
    ----------
    out
        A folder; each run is a subfolder.
    over
        A setting and its values: model.position=none,learned-1d,learned-2d,relative. May be given several times. Runs that differ
        only in the seed (seed=0,1,2) are averaged. model=ViT-Ti/8,ResNet-18,Mixer-S/16 may mix architectures: each takes those
        of the other --model settings that it has.
    data
        Data as for vitrail train.
    against
        The x axis of the plot: a setting with numbers, or operations. Default: the first setting of --over with numbers.
    on
        ray: train the runs at the same time, on the Ray cluster of RAY_ADDRESS or on this machine. Default: one after another.
    json
        One JSON document: the runs with their settings.
    """
    from vitrail import api
    from vitrail.cli.training.train import all_settings
    from vitrail.study.compare.comparison import columns
    from vitrail.study.compare.sweeps import combinations, document, table
    from vitrail.training.runs.progress import TrainingProgress

    axes: dict[str, list[Any]] = {}
    for words in over:
        name, values = _axis(words)
        axes[name] = [*axes.get(name, []), *values]
    shared = all_settings(settings, {"start": start} if start is not None else {})
    with TrainingProgress() as progress:
        found = api.sweep(data, out, over=axes, recipe=recipe, config=config, against=against, on=on, observer=progress, **shared)
    if json:
        result_json(document(found))
    else:
        head, rows = table(combinations(found))
        result(columns([head, *rows]))
    note(f"\nreport: {out / 'report.html'}")


def _axis(words: str) -> tuple[str, list[Any]]:
    """Parse ``model.depth=2,4`` to a name and a list of values."""
    import yaml

    from vitrail.config.known_settings import takes_words
    from vitrail.plain_yaml import value_of, words_of
    from vitrail.training.sweep import dotted_name

    name, equals, values = words.partition("=")
    if not equals:
        raise ConfigError(f"{words!r} has no values", where="--over", hint="write --over model.position=none,relative")
    name = name.replace("-", "_")
    try:
        if takes_words(dotted_name(name)):
            return name, words_of(values)
        return name, [_number(value) for value in value_of(f"[{values}]", where=f"--over {name}")]
    except (yaml.YAMLError, ValueError, RecursionError):
        raise ConfigError(f"the values {values!r} are not a list", where=f"--over {name}", hint="write them as 1,2,3") from None


def _number(value: Any) -> Any:
    """Convert text such as 1e-3, which YAML does not read as a number, to a float."""
    with suppress(ValueError):
        return float(value) if isinstance(value, str) else value
    return value
