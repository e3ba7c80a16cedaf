"""``vitrail data show``."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from vitrail.cli.console import Whole, note, result
from vitrail.cli.train import dotted_settings
from vitrail.errors import ConfigError

MAX_COUNT = 40


def show(
    data: Annotated[str, Parameter(allow_leading_hyphen=True)],
    /,
    *settings: Annotated[str, Parameter(allow_leading_hyphen=True, show=False)],
    out: Path = Path("samples.png"),
    recipe: str | None = None,
    config: Path | None = None,
    start: Annotated[str | None, Parameter(name="--from")] = None,
    split: Literal["train", "val", "test", "all"] = "train",
    count: Whole = 6,
    seed: Whole | None = None,
) -> None:
    """Picture some images as the model will see them: prepared, and augmented in several ways.

    Takes the settings of vitrail train, by their dotted names: --augmentation.erasing 1 --augmentation.policy trivial.

    Parameters
    ----------
    data
        What vitrail train takes.
    out
        The picture to write, a PNG file that does not exist.
    recipe
        Settings to begin with; see vitrail recipes. Default: finetune with --from, the recipes of the
        digits or of CIFAR-10 for them, else scratch.
    config
        A YAML file over the recipe, or, if it names a model, in its place.
    start
        A trained model to start from, as in vitrail train.
    split
        Which images.
    count
        How many, of as many classes as possible.
    seed
        Picks the images and fixes the augmentation, as in training. Default: the recipe's.
    """
    from vitrail.checks import require_at_most, require_positive
    from vitrail.data.dataset import ImageDataset
    from vitrail.data.mirrors import flip_warning
    from vitrail.data.order import pick_items
    from vitrail.data.targets import class_targets
    from vitrail.study.figures import save
    from vitrail.study.samples import augmentation_sheet
    from vitrail.training import images, preparing
    from vitrail.training.configuration import nested

    if data.startswith("-"):
        raise ConfigError(f"{data!r} in place of the data", where="command line", hint="name the data first, then settings")
    require_positive(**{"--count": count})
    require_at_most("--count", count, MAX_COUNT)
    _require_free(out)
    flags = {"data": data, "start": start, "seed": seed}
    given = {name: value for name, value in flags.items() if value is not None}
    run, _ = preparing.resolve_run(recipe, config, nested({**dotted_settings(settings), **given}))
    source = images.open_source(run)
    source.tell(note)
    if warning := flip_warning(source.classes, run.augmentation.horizontal_flip):
        note(warning)
    dataset = ImageDataset(
        source.split(split),
        images.preparation_of(run),
        run.augmentation,
        run.training.seed,
        targets=class_targets(len(source.classes), shares=source.multi_label or run.augmentation.mixes),
    )
    picked = pick_items(dataset.items, count, run.training.seed)
    save(augmentation_sheet(dataset, picked, source.classes), out)
    result(str(out))


def _require_free(file: Path) -> None:
    if file.suffix.lower() != ".png":
        raise ConfigError(f"{file} is no name of a PNG file", where="--out", hint=f"name it {file.stem or 'samples'}.png")
    if file.exists():
        raise ConfigError(f"{file} exists already", where="--out", hint="name another file, or remove this one")
    if not file.parent.is_dir():
        raise ConfigError(f"there is no folder {file.parent}", where="--out", hint="make it, or name another")
