"""Images per second of the input pipeline alone and of training, with the settings of a recipe.

    python benchmarks/input_pipeline.py DATA [--recipe cifar10]

The first epoch decodes every image; later ones find those that fit in memory. Each line is the median of three.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path

from vitrail import open_data
from vitrail.data.loading.batches import Batch
from vitrail.data.loading.dataset import ImageDataset
from vitrail.data.loading.loader import EpochLoader
from vitrail.models.vision.vit import ViT
from vitrail.training.images import preparation_of
from vitrail.training.loop.trainer import Trainer
from vitrail.training.runs import setup as preparing
from vitrail.training.runs.create_task import create_task
from vitrail.training.runs.run_folder import RunFolder

IMAGES = 12_800


def rate(work: Callable[[], None], images: int) -> float:
    """Images per second."""
    start = time.perf_counter()
    work()
    return images / (time.perf_counter() - start)


def drain(loader: EpochLoader, epoch: int) -> None:
    """Load an epoch and do nothing with it."""
    for _ in loader.epoch(epoch):
        pass


def learn(trainer: Trainer, batches: list[Batch]) -> None:
    """A training step on each of some batches that are there already."""
    for batch in batches:
        trainer._step(batch)


def main(source: str, recipe: str) -> None:
    """Measure and print."""
    settings, _ = preparing.resolve_run(recipe, None, {"data": {"source": source}})
    data = open_data(settings.data.source)
    settings = settings.changed(model=settings.model.changed(num_classes=len(data.classes)))
    data.splits["train"][:] = data.splits["train"][:: max(1, len(data.splits["train"]) // IMAGES)]
    with tempfile.TemporaryDirectory() as folder:
        run = RunFolder.create(Path(folder) / "run", settings, None)
        task = create_task(settings, ViT(settings.model.config), preparation_of(settings), data)
        trainer = Trainer(settings, task, data, run)
        count = len(data.splits["train"])
        targets = trainer.learner.task.targets(mixed=settings.augmentation.mixes)

        first, later, training = [], [], []
        for i in range(3):
            loader = EpochLoader(
                ImageDataset(data.split("train"), trainer.learner.task.preparation, settings.augmentation, targets=targets),
                settings.training.batch_size,
                shuffle=True,
            )
            first.append(rate(partial(drain, loader, 0), count))
            later.append(rate(partial(drain, loader, 1), count))
            batches = list(islice(loader.epoch(2 + i), 20))
            training.append(rate(partial(learn, trainer, batches), sum(len(batch["images"]) for batch in batches)))
    trained = statistics.median(training)
    for name, values in (("first epoch", first), ("later epochs", later), ("training", training)):
        value = statistics.median(values)
        print(f"{name:<14}{value:>10,.0f} images/s  {value / trained:>6.1f} × training")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="images, as vitrail train takes them: CIFAR-10 for the recipe cifar10")
    parser.add_argument("--recipe", default="cifar10", help="whose model, batches and augmentation are taken")
    arguments = parser.parse_args()
    main(arguments.data, arguments.recipe)
