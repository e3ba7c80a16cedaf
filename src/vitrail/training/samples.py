"""Sample training images of a run, as its loader augments them."""

from vitrail.config.settings import RunSettings
from vitrail.data.checks.mirror_check import flip_warning
from vitrail.data.loading.dataset import ImageDataset
from vitrail.data.loading.sampler import pick_items
from vitrail.data.targets import class_targets
from vitrail.runtime.observer import Note
from vitrail.training.run_data import run_data_of


def image_samples(run: RunSettings, split: str, count: int, note: Note) -> tuple[ImageDataset, list[int], list[str]]:
    """Return the images of a split, the indices of ``count`` of them from as many classes as possible, and the classes."""
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
    return dataset, pick_items(dataset.items, count, run.training.seed), opened.classes
