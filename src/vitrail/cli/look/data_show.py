"""``vitrail data show``."""

from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from vitrail.cli.console import Whole, note, result
from vitrail.cli.flags import Config, Recipe, Source, Start, Target, Words
from vitrail.cli.training.train import all_settings, dotted_settings
from vitrail.errors import ConfigError
from vitrail.files import path_of
from vitrail.runtime.output import require_free_file

MAX_COUNT = 40
TRANSLATES = ("task", "translate")
"""A setting that is implied by ``--source`` and ``--target``, and so allowed."""
SAMPLES = Path("samples.png")
"""Default of ``--out``."""


def show(
    data: Annotated[str, Parameter(allow_leading_hyphen=True)],
    /,
    *settings: Words,
    out: Path = SAMPLES,
    source: Source = None,
    target: Target = None,
    recipe: Recipe = None,
    config: Config = None,
    start: Start = None,
    split: Literal["train", "val", "test", "all"] = "train",
    count: Whole = 6,
    seed: Whole | None = None,
) -> None:
    """Draw some images as the model will see them: prepared, and with several random augmentations. Sentences are printed.

    Takes the settings of vitrail train, by their dotted names: --augmentation.erasing 1 --augmentation.policy trivial. With
    --task pose, or for data that can only be people, it crops people and draws their joints. With --task caption, or for a file
    with this word in its name, it shows a caption of each image. With --task segment, or for a folder of images and masks, it
    lays the masks over the images.

    Parameters
    ----------
    data
        Data as for vitrail train.
    out
        The PNG file to write, which must not exist. Sentences are printed, without a file.
    split
        The split to take images, people or sentences from.
    count
        The number of images, people or sentences; of as many classes as possible.
    seed
        Seed for the selection and for the augmentation, as in training. Default: the recipe's.
    """
    from vitrail.checks import require_at_most, require_positive

    if data.startswith("-"):
        raise ConfigError(f"found {data!r} in place of the data", where="command line", hint="give the data first, then settings")
    require_positive(**{"--count": count})
    require_at_most("--count", count, MAX_COUNT)
    if source is not None or target is not None:
        others = {"--recipe": recipe is not None, "--config": config is not None, "--from": start is not None}
        others |= {"--out": out != SAMPLES}
        _print_sentences(data, source, target, others, settings, split, count, seed or 0)
        return
    out = path_of(out)
    _require_free_picture(out)
    flags = {"data": data, "start": start, "seed": seed}
    picture = _picture(flags, settings, recipe, config, split, count)
    from vitrail.study.page.figures import save

    out.parent.mkdir(parents=True, exist_ok=True)
    save(picture, out)
    result(str(out))


def _print_sentences(
    data: str, source: str | None, target: str | None, others: dict[str, bool], settings: tuple[str, ...],
    split: str, count: int, seed: int,
) -> None:  # fmt: skip
    """Print sentences of both languages; raises `ConfigError` for ``others`` and settings, which apply to images only."""
    from vitrail.checks import refuse_given
    from vitrail.tasks.inspection import InspectionRequest, inspection_of, row_for

    others |= {f"--{name}": True for name, value in dotted_settings(settings).items() if (name, value) != TRANSLATES}
    refuse_given("sentences are printed without preparation", others)
    request = InspectionRequest(data, source, target)
    for line in inspection_of(row_for(data, languages=True)).texts(request, split, count, seed, note):
        result(line)


def _picture(
    flags: dict[str, Any], settings: tuple[str, ...], recipe: str | None, config: Path | None, split: str, count: int
) -> Any:
    """Draw a sheet of images or people, as a run with these settings would see them."""
    from vitrail.config.configuration import nested
    from vitrail.task_registry import task_row
    from vitrail.tasks.inspection import inspection_of, row_for
    from vitrail.training.runs import setup

    own = dotted_settings(settings)
    named = any(name.partition(".")[0] == "task" for name in own) or recipe is not None or config is not None
    row = None if named else row_for(flags["data"])
    flags = {**flags, "task": row.name if row is not None and row.items != "images" else None}
    given = {name: value for name, value in flags.items() if value is not None}
    run, _ = setup.resolve_run(recipe, config, nested(all_settings(settings, given)))
    shown = task_row(run.task.name)
    if shown.items == "images":
        from vitrail.study.page.samples import augmentation_sheet
        from vitrail.training.samples import image_samples

        return augmentation_sheet(*image_samples(run, split, count, note))
    return inspection_of(shown).sheet(run, split, count, note)


def _require_free_picture(file: Path) -> None:
    if file.suffix.lower() != ".png":
        raise ConfigError(f"{file} does not end with .png", where="--out", hint=f"name it {file.stem or 'samples'}.png")
    require_free_file(file, where="--out")
