"""``vitrail train``."""

import shlex
import time
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from vitrail.cli.console import Whole, note, number, program, result
from vitrail.errors import ConfigError
from vitrail.tasks.metrics import COUNTS, main_metric

WORTH_MEASURING = 300
"""Seconds of a run from which on the machine is measured first, which takes a few."""


def train(
    *settings: Annotated[str, Parameter(allow_leading_hyphen=True, show=False)],
    data: str | None = None,
    out: Path | None = None,
    task: str | None = None,
    source: str | None = None,
    target: str | None = None,
    text: str | None = None,
    recipe: str | None = None,
    model: str | None = None,
    start: Annotated[str | None, Parameter(name="--from")] = None,
    tune: str | None = None,
    teacher: str | None = None,
    epochs: Whole | None = None,
    batch_size: Annotated[str | None, Parameter(name=["--batch-size", "--batch"])] = None,
    lr: float | None = None,
    time_limit: str | None = None,
    patience: Whole | None = None,
    seed: Whole | None = None,
    image_size: str | None = None,
    precision: str | None = None,
    checkpoint_every_steps: Whole | None = None,
    checkpoint_every_seconds: float | None = None,
    parallel: str | None = None,
    bad_images: str | None = None,
    bad_lines: str | None = None,
    balance: str | None = None,
    flip: bool | None = None,
    track: str | None = None,
    config: Path | None = None,
    fast_dev_run: Annotated[bool | None, Parameter(negative=())] = None,
) -> None:
    """Train a model on images and write a run folder.

    Any other setting goes by its dotted name: --model.depth 6 --optimizer.weight-decay 0.1 --augmentation.crop pad.
    `vitrail recipes NAME --full` shows every setting there is.

    Parameters
    ----------
    data
        digits; a folder of images: train/CLASS/*, val/CLASS/*, test/CLASS/*, or just CLASS/*; labels.csv with the columns
        image,label and perhaps split; cifar10:PATH; hf:NAME; wds:shards-{000..009}.tar.
    out
        The run folder; it must not exist. Default: runs/NAME-DATE-TIME.
    task
        What to learn: classification, the default; mae, masked autoencoding of images without labels; pose, with people as
        data: keypoints.json in COCO's format, a folder of such splits, or a table with columns such as nose_x and nose_y;
        caption, with captions as data: captions.csv with the columns image,caption, captions.json in COCO's format, or a folder
        of such splits; or translate, with sentences as data: a table pairs.tsv, two files TEXT.en and TEXT.de, given as TEXT, or
        a folder of such splits.
    source
        The language to translate from: a column of the table, or the suffix of a file.
    target
        The language to translate to.
    text
        Of captions, a file with a sentence in each line, from which the decoder learns to write before it sees an image.
    recipe
        Settings to begin with; see vitrail recipes. Default: the task's own with --task mae, pose, caption or translate, finetune
        with --from, the recipes of the digits or of CIFAR-10 for them, else scratch.
    model
        A name of vitrail models, such as ViT-S/16.
    start
        A trained model to start from: a run folder, a model folder, a file of weights, a hub id such as org/name, or a name of
        vitrail models --pretrained, such as ViT-Ti/16.
    tune
        What to train of a model given by --from: all of it, its head alone, or with lora low-rank adapters and the head.
    teacher
        A trained model of the same classes to learn from as well; see --distillation.kind.
    epochs
        Passes over the training images.
    batch_size
        Images per step, all processes together; auto finds the largest number that fits into memory, by trying.
    lr
        Learning rate at the top of the schedule.
    time_limit
        Longest time, such as 90s, 10m or 1h30m: the schedule is fitted to it.
    patience
        Epochs without a better one after which training ends. Default: none.
    seed
        Fixes weights, order and augmentation.
    image_size
        Side of the images in pixels, or HEIGHTxWIDTH.
    precision
        fp32, bf16 or fp16; auto takes bf16 where this machine is quicker in it.
    checkpoint_every_steps
        Steps between checkpoints, beside those at the end of each epoch.
    checkpoint_every_seconds
        Longest time without a checkpoint. Default: 300.
    parallel
        Under torchrun: ddp, a whole model in every process, or fsdp, a share of its parameters in each.
    bad_images
        skip leaves images that cannot be read out, up to 1 % or three of them; stop, the default, does not begin.
    bad_lines
        Of translation: skip leaves lines that are no pair of sentences out; stop, the default, does not begin.
    balance
        Rare classes weigh as much as frequent ones: by sampling, or by loss.
    flip
        Mirror half of the training images; --no-flip mirrors none, as is right for characters. Default: the recipe's.
    track
        tensorboard, wandb or mlflow: also keeps the metrics its way, in the run folder. W&B is offline unless WANDB_MODE says
        otherwise, MLflow local unless MLFLOW_TRACKING_URI is set.
    config
        A YAML file over the recipe, or, if it names a model, in its place; flags stand over both.
    fast_dev_run
        Two batches, one epoch: does everything work?
    """
    flags = {
        "data": data, "task": task, "source": source, "target": target, "text": text, "model": model, "start": start,
        "tune": tune, "teacher": teacher, "epochs": epochs,
        "batch_size": None if batch_size is None else number(batch_size), "lr": lr, "seed": seed,
        "time_limit": time_limit, "patience": patience,
        "image_size": None if image_size is None else number(image_size), "precision": precision,
        "checkpoint_every_steps": checkpoint_every_steps, "checkpoint_every_seconds": checkpoint_every_seconds,
        "parallel": parallel, "bad_images": bad_images, "bad_lines": bad_lines, "balance": balance, "track": track,
        "fast_dev_run": fast_dev_run,
    }  # fmt: skip
    if flip is not None:
        flags["augmentation.horizontal_flip"] = 0.5 if flip else 0.0
    given = {name: value for name, value in flags.items() if value is not None}
    run_training(all_settings(settings, given), recipe=recipe, config=config, out=out)


def run_training(settings: dict[str, Any], *, recipe: str | None, config: Path | None, out: Path | None) -> None:
    """Train with progress, then say how it went and what one would do next."""
    begun = time.monotonic()
    from vitrail.config.configuration import nested
    from vitrail.config.request import Request
    from vitrail.files import path_of

    # before torch is imported, which takes longer than most mistakes do to make
    asked = Request.read(recipe, path_of(config) if config else None, nested(settings))
    asked.require_possible(out)
    from vitrail import api
    from vitrail.cli.ship.calibration import measure_once
    from vitrail.training.runs.progress import TrainingProgress

    limit = asked.certain.training.time_limit
    if limit is None or limit >= WORTH_MEASURING:
        measure_once()
    with TrainingProgress(begun) as progress:
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
    """Return dotted settings and flags together; raises `ConfigError` for one that is given both ways."""
    dotted = dotted_settings(words)
    for name in dotted.keys() & flags.keys():
        raise ConfigError(f"--{name} contradicts a flag for the same", where=f"--{name}", hint="give one of them")
    return {**dotted, **flags}


def dotted_settings(words: tuple[str, ...]) -> dict[str, Any]:
    """Read ``--model.depth 6 --training.compile`` as ``{"model.depth": 6, "training.compile": True}``.

    Values are read as YAML: numbers, true, false, null, [0.9, 0.99]. Times and dates are words.
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
            values[name] = text  # no YAML, so a word
    return values
