"""What a teacher says of the training images, where it is asked once."""

from vitrail.data.loading.dataset import ImageDataset
from vitrail.tasks.classification.distillation import Distillation
from vitrail.training.finetune.features import FeatureFile, read_features
from vitrail.training.run_data import BeforeSteps


def ask_once(work: BeforeSteps) -> None:
    """Let the teacher answer for every training image as it is; a run that goes on asks again.

    Does nothing where there is no teacher, or it answers for every view of an image. What ``work.on_batch`` raises ends it.
    """
    learner, samples = work.learner, work.samples
    task = learner.task
    if not isinstance(task, Distillation) or not task.distillation.once:
        return
    assert isinstance(samples, ImageDataset)
    loader = work.loader_of(task.dataset(samples.items, transform=samples.transform))
    work.observer.begin("asking the teacher", len(samples.items))
    kept = FeatureFile(None, (len(samples.items), len(task.classes)), "")
    try:
        with learner.precision():
            logits = read_features(
                task.teacher, loader, kept, device=learner.device, view=0, on_batch=work.on_batch, group=learner.group
            )
    finally:
        loader.close()
    task.answers.update(zip((item.name for item in samples.items), logits.numpy(), strict=True))
