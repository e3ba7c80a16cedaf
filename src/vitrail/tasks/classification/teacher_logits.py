"""What a teacher says of the training images, where it is asked once."""

from collections.abc import Callable

from vitrail.data.loading.batches import Samples
from vitrail.data.loading.dataset import ImageDataset
from vitrail.data.loading.loader import EpochLoader
from vitrail.runtime.observer import Observer
from vitrail.runtime.processes import Processes
from vitrail.tasks.classification.distillation import Distillation
from vitrail.training.finetune.features import FeatureFile, read_features
from vitrail.training.loop.learner import Learner


def ask_once(
    learner: Learner,
    learned: Samples,
    loader_of: Callable[[Samples], EpochLoader],
    observer: Observer,
    on_batch: Callable[[int], None],
    group: Processes,
) -> None:
    """Let the teacher answer for every image that is learned from, as it is; a run that goes on asks again.

    Nothing where there is no teacher, or it answers for every view of an image.

    Args:
        learner: of the run.
        learned: what it learns from.
        loader_of: puts images into batches, as the run does.
        observer: is told of the beginning.
        on_batch: hears the size of every batch; what it raises ends it.
        group: the processes, which share the work and all have the answers.
    """
    task = learner.task
    if not isinstance(task, Distillation) or not task.distillation.once:
        return
    assert isinstance(learned, ImageDataset)
    loader = loader_of(task.dataset(learned.items, transform=learned.transform))
    observer.begin("asking the teacher", len(learned.items))
    kept = FeatureFile(None, (len(learned.items), len(task.classes)), "")
    try:
        with learner.precision():
            logits = read_features(task.teacher, loader, kept, device=learner.device, view=0, on_batch=on_batch, group=group)
    finally:
        loader.close()
    task.answers.update(zip((item.name for item in learned.items), logits.numpy(), strict=True))
