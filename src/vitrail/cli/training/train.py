"""``vitrail train``."""

import shlex
import time
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from vitrail.cli.console import note, number, program, result
from vitrail.cli.flags import Config, Recipe, Start, Words, with_flags
from vitrail.errors import ConfigError
from vitrail.runtime.terminal import restarts
from vitrail.tasks.metrics import COUNTS, main_metric

WORTH_MEASURING = 300
"""Time limit in seconds from which on the machine's kernels are measured first, which takes some seconds."""
HELP = {
    "data": "digits; a folder of images: train/CLASS/*, val/CLASS/*, test/CLASS/*, or just CLASS/*; labels.csv with the columns "
    "image,label and perhaps split; cifar10:PATH; hf:NAME; wds:shards-{000..009}.tar.",
    "task": "What to learn: classification, the default; dino, distill or mae, from images without labels; pose, with people as "
    "data: keypoints.json in COCO's format, a folder of such splits, or a table with columns such as nose_x and nose_y; caption, "
    "with captions as data: captions.csv with the columns image,caption, captions.json in COCO's format, or a folder of such "
    "splits; or translate, with sentences as data: a table pairs.tsv, two files TEXT.en and TEXT.de, given as TEXT, or a folder "
    "of such splits.",
    "model": "A name of vitrail models.",
    "image_size": "Side of the images in pixels, or HEIGHTxWIDTH.",
}


@with_flags(HELP)
def train(
    *settings: Words,
    out: Path | None = None,
    recipe: Recipe = None,
    start: Start = None,
    config: Config = None,
    flip: Annotated[bool | None, Parameter(negative="--no-flip")] = None,
    **flags: Any,
) -> None:
    """Train a model and write a run folder. If torchrun starts it again after an error, the run in --out goes on.

    Other settings are given by their dotted names: --model.depth 6 --optimizer.weight-decay 0.1 --augmentation.crop pad.
    `vitrail recipes NAME --full` lists all settings.

    Parameters
    ----------
    out
        The run folder; it must not exist. Default: runs/NAME-DATE-TIME.
    flip
        Flip half of the training images horizontally; --no-flip flips none, which is right for characters. Default: the recipe's.
    """
    flags |= {"start": start, "augmentation.horizontal_flip": None if flip is None else 0.5 if flip else 0.0}
    given = {name: value for name, value in flags.items() if value is not None}
    given |= {name: number(given[name]) for name in ("batch_size", "image_size") if name in given}
    run_training(all_settings(settings, given), recipe=recipe, config=config, out=out)


def run_training(settings: dict[str, Any], *, recipe: str | None, config: Path | None, out: Path | None) -> None:
    """Train with a progress bar, then print the result and useful next commands."""
    begun = time.monotonic()
    from vitrail.config.configuration import nested
    from vitrail.config.request import Request
    from vitrail.config.run_files import is_run
    from vitrail.files import path_of

    # report mistakes before torch is imported, which takes seconds
    asked = Request.read(recipe, path_of(config) if config else None, nested(settings))
    restarted = out if out is not None and restarts() and is_run(path_of(out)) else None
    if restarted is None:
        asked.require_possible(out)
    from vitrail import api
    from vitrail.cli.ship.calibration import measure_once
    from vitrail.training.runs.progress import TrainingProgress

    limit = asked.certain.training.time_limit
    if limit is None or limit >= WORTH_MEASURING:
        measure_once()
    with TrainingProgress(begun) as progress:
        if restarted is not None:
            run = api.resume(restarted, observer=progress)
        else:
            run = api.train(out=out, recipe=recipe, config=config, observer=progress, **settings)
    print_result(run)


def print_result(run: Any) -> None:
    """Print the result of a run on stdout, and useful next commands on stderr."""
    metric = main_metric(run.scores)
    count, things = next((run.scores[name], name) for name in COUNTS if name in run.scores)
    numbers = f"{metric.title} {metric.shown(run.scores[metric.name])} on {count} {things}"
    result(f"{run.split} {numbers}" + ("" if metric.name == "loss" else f", loss {run.scores['loss']:.4f}"))
    note(f"\nreport: {run.folder / 'report.html'}\n\nnext:")
    if run.longer:
        note(f"  {run.longer.replace('vitrail', program(), 1)}")
    folder = shlex.quote(str(run.folder))
    for words in ["evaluate {}", *([] if run.warnings else run.trained.uses)]:
        note(f"  {program()} {words.format(folder)}")


def all_settings(words: tuple[str, ...], flags: dict[str, Any]) -> dict[str, Any]:
    """Merge dotted settings and flags; raises `ConfigError` for a setting that is given as both."""
    dotted = dotted_settings(words)
    for name in dotted.keys() & flags.keys():
        raise ConfigError(f"--{name} contradicts a flag for the same setting", where=f"--{name}", hint="give one of them")
    return {**dotted, **flags}


def dotted_settings(words: tuple[str, ...]) -> dict[str, Any]:
    """Parse ``--model.depth 6 --training.compile`` to ``{"model.depth": 6, "training.compile": True}``.

    Values are YAML: numbers, true, false, null, [0.9, 0.99]; times and dates are text.
    """
    import yaml

    from vitrail.plain_yaml import value_of

    values: dict[str, Any] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            raise ConfigError(f"unexpected {word!r}", where="command line", hint="settings are written --name value")
        name, equals, text = word[2:].partition("=")
        if not equals:
            text = rest.pop(0) if rest and not rest[0].startswith("--") else "true"
        name = name.replace("-", "_")
        if name in values:
            raise ConfigError(f"--{name} is given twice", where="command line", hint="give it once")
        try:
            values[name] = value_of(text, where=f"--{name}")
        except (yaml.YAMLError, ValueError, RecursionError):
            values[name] = text  # not YAML, so it is plain text
    return values
