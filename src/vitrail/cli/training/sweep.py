"""``vitrail sweep``."""

from contextlib import suppress
from pathlib import Path
from typing import Any

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
    json: bool = False,
) -> None:
    """Train a model for every combination of some settings; one table and one picture in the end.

    The same command again goes on where it was. Any other setting goes by its dotted name, as in vitrail train.

    Parameters
    ----------
    out
        A folder; every run has one of its own in it.
    over
        A setting and its values: model.position=none,learned-1d,learned-2d,relative. May be given several times; the runs of
        seed=0,1,2 are averaged. model=ViT-Ti/8,ResNet-18,Mixer-S/16 may be of several architectures: each takes the other
        --model settings that it has.
    data
        What vitrail train takes.
    against
        What the picture has scores against: a setting with numbers, or operations. Default: the first that has numbers.
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
        found = api.sweep(data, out, over=axes, recipe=recipe, config=config, against=against, observer=progress, **shared)
    if json:
        result_json(document(found))
    else:
        head, rows = table(combinations(found))
        result(columns([head, *rows]))
    note(f"\nreport: {out / 'report.html'}")


def _axis(words: str) -> tuple[str, list[Any]]:
    """Read ``model.depth=2,4`` as a name and values."""
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
        raise ConfigError(f"the values {values!r} cannot be read", where=f"--over {name}", hint="write them as 1,2,3") from None


def _number(value: Any) -> Any:
    """Return 1e-3, which YAML takes for a word, as a number."""
    with suppress(ValueError):
        return float(value) if isinstance(value, str) else value
    return value
