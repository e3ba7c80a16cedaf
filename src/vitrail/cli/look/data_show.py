"""``vitrail data show``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from vitrail.cli.console import Whole, note, result
from vitrail.cli.look.data_check import kind_of, languages_of
from vitrail.cli.training.train import all_settings, dotted_settings
from vitrail.errors import ConfigError
from vitrail.files import path_of
from vitrail.runtime.output import require_free_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from vitrail.config.settings import RunSettings

MAX_COUNT = 40
TRANSLATES = ("task", "translate")
"""A setting that goes without saying where languages are named."""
SAMPLES = Path("samples.png")
"""Where pictures go unless it is said."""
OWN_TASKS = {"people": "pose", "captions": "caption"}
"""The task of data that can only be for one."""


def show(
    data: Annotated[str, Parameter(allow_leading_hyphen=True)],
    /,
    *settings: Annotated[str, Parameter(allow_leading_hyphen=True, show=False)],
    out: Path = SAMPLES,
    source: str | None = None,
    target: str | None = None,
    recipe: str | None = None,
    config: Path | None = None,
    start: Annotated[str | None, Parameter(name="--from")] = None,
    split: Literal["train", "val", "test", "all"] = "train",
    count: Whole = 6,
    seed: Whole | None = None,
) -> None:
    """Picture some images as the model will see them: prepared, and augmented in several ways. Sentences are printed.

    Takes the settings of vitrail train, by their dotted names: --augmentation.erasing 1 --augmentation.policy trivial. With
    --task pose, or of data that can only be people, it cuts out people and draws their joints; with --task caption, or of a file
    that has the word in its name, it shows a caption of each image.

    Parameters
    ----------
    data
        What vitrail train takes.
    out
        The picture to write, a PNG file that does not exist. There is none of sentences.
    source
        Of sentences, the language that is read: a column of the table, or the suffix of a file.
    target
        Of sentences, the language that is written.
    recipe
        Settings to begin with; see vitrail recipes. Default: pose for people, finetune with --from, the recipes of the
        digits or of CIFAR-10 for them, else scratch.
    config
        A YAML file over the recipe, or, if it names a model, in its place.
    start
        A trained model to start from, as in vitrail train.
    split
        Which images, people or sentences.
    count
        How many, of as many classes as possible.
    seed
        Picks the images and fixes the augmentation, as in training. Default: the recipe's.
    """
    from vitrail.checks import refuse_given, require_at_most, require_positive

    if data.startswith("-"):
        raise ConfigError(f"{data!r} in place of the data", where="command line", hint="name the data first, then settings")
    require_positive(**{"--count": count})
    require_at_most("--count", count, MAX_COUNT)
    if source is not None or target is not None:
        others = {"--recipe": recipe is not None, "--config": config is not None, "--from": start is not None}
        others |= {"--out": out != SAMPLES}
        others |= {f"--{name}": True for name, value in dotted_settings(settings).items() if (name, value) != TRANSLATES}
        refuse_given("sentences are shown as they are", others)
        _print_sentences(data, languages_of(source, target), split, count, seed or 0)
        return
    from vitrail.config.configuration import nested
    from vitrail.study.page.figures import save
    from vitrail.task_registry import task_row
    from vitrail.training.runs import setup as preparing

    out = path_of(out)
    _require_free_picture(out)
    own = dotted_settings(settings)
    named = any(name.partition(".")[0] == "task" for name in own) or recipe is not None or config is not None
    task = None if named else OWN_TASKS.get(kind_of(data, None, languages=False))
    flags = {"data": data, "start": start, "seed": seed, "task": task}
    given = {name: value for name, value in flags.items() if value is not None}
    run, _ = preparing.resolve_run(recipe, config, nested(all_settings(settings, given)))
    drawn = {"people": _people, "captions": _captioned}.get(task_row(run.task.name).items, _images)
    picture = drawn(run, split, count)
    out.parent.mkdir(parents=True, exist_ok=True)
    save(picture, out)
    result(str(out))


def _images(run: "RunSettings", split: str, count: int) -> "Figure":
    from vitrail.data.checks.mirror_check import flip_warning
    from vitrail.data.loading.dataset import ImageDataset
    from vitrail.data.loading.sampler import pick_items
    from vitrail.data.targets import class_targets
    from vitrail.study.page.samples import augmentation_sheet
    from vitrail.training.run_data import run_data_of

    kind = run_data_of(run)
    opened = kind.open_source(run)
    opened.tell(note)
    if warning := flip_warning(opened.classes, run.augmentation.horizontal_flip):
        note(warning)
    dataset = ImageDataset(
        opened.split(split),
        kind.preparation_of(run, opened),
        run.augmentation,
        run.training.seed,
        targets=class_targets(len(opened.classes), shares=opened.multi_label or run.augmentation.mixes),
    )
    return augmentation_sheet(dataset, pick_items(dataset.items, count, run.training.seed), opened.classes)


def _people(run: "RunSettings", split: str, count: int) -> "Figure":
    from vitrail.data.loading.sampler import some_items
    from vitrail.tasks.pose import data as people
    from vitrail.tasks.pose.people.dataset import PersonDataset
    from vitrail.tasks.pose.study.samples import people_sheet

    people.require_of_people(run)
    opened = people.DATA.open_source(run)
    opened.tell(note)
    for line in people.warnings_at_a_glance(run, opened):
        note(line)
    picked = some_items(opened.split(split), count, run.training.seed)
    seed, preparation = run.training.seed, people.DATA.preparation_of(run, opened)
    return people_sheet(PersonDataset(picked, preparation, opened.skeleton, run.augmentation, seed))


def _captioned(run: "RunSettings", split: str, count: int) -> "Figure":
    import textwrap

    from vitrail.data.loading.dataset import ImageDataset
    from vitrail.data.loading.sampler import some_items
    from vitrail.data.targets import Nothing
    from vitrail.study.page.samples import augmentation_sheet
    from vitrail.tasks.captioning import data as captions
    from vitrail.tasks.captioning.images.sources import open_captions

    captions.require_of_captions(run)
    opened = open_captions(run.data.source, **run.data.splitting)
    opened.tell(note)
    picked: Any = some_items(opened.split(split), count, run.training.seed)
    preparation = captions.DATA.preparation_of(run, opened)
    dataset = ImageDataset(picked, preparation, run.augmentation, run.training.seed, targets=Nothing())
    return augmentation_sheet(dataset, range(len(picked)), [], about=lambda item: textwrap.fill(item.target[0], 24))


def _print_sentences(data: str, languages: tuple[str, str], split: str, count: int, seed: int) -> None:
    """Some pairs at random, as the model gets them before they are cut into tokens."""
    from vitrail.data.loading.sampler import some_items
    from vitrail.tasks.translation.pairs import open_pairs

    width = max(map(len, languages))
    opened = open_pairs(data, languages)
    opened.tell(note)
    for pair in some_items(opened.split(split), count, seed):
        result(pair.name)
        for language, text in zip(languages, (pair.source, pair.target), strict=True):
            result(f"  {language:<{width}}  {text}")


def _require_free_picture(file: Path) -> None:
    if file.suffix.lower() != ".png":
        raise ConfigError(f"{file} is no name of a PNG file", where="--out", hint=f"name it {file.stem or 'samples'}.png")
    require_free_file(file, where="--out")
