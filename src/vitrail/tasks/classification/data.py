"""The data of a classification run, and the work before its first epoch."""

from vitrail.config.settings import RunSettings
from vitrail.data.items import ImageData
from vitrail.data.loading.dataset import ImageDataset
from vitrail.task_registry import task_row
from vitrail.tasks.classification.learning.distillation import Distillation
from vitrail.tasks.classification.learning.probe import Probed, is_probed, run_probe
from vitrail.tasks.task import Task
from vitrail.training.finetune.features import FeatureFile, read_features
from vitrail.training.images import ImageRunData
from vitrail.training.loop.clock import OutOfTimeError
from vitrail.training.run_data import BeforeSteps
from vitrail.training.runs.plan import RunPlan, Work
from vitrail.weights.published import SMALLEST

FEW = 10_000
"""Number of training images below which a pretrained model is far better than one from scratch."""
LEAST_SIDE = 64
"""Least side of photographs, in pixels; smaller images are digits, icons or CIFAR-10's."""
NO_TIME = "there is no time to compute the teacher's logits of all images first: they are computed in every step"


class ClassificationData(ImageRunData):
    """Images and their classes as the data of a run."""

    counts_batch_memory = True

    def advice(self, settings: RunSettings, source: ImageData) -> str | None:
        """Return advice to start from a pretrained model, if a classifier is to be trained from scratch on few photographs."""
        images = len(source.split("train"))
        if settings.start is not None or images >= FEW or min(settings.model.config.image_size) < LEAST_SIDE:
            return None
        return (
            f"{images:,} images are few to learn from scratch: a model that is trained already usually answers far better, "
            f"within minutes: add --from {SMALLEST} (in Python start={SMALLEST!r}; needs the extra hf, and a network once)"
        )

    def has_first_model(self, settings: RunSettings, task: Task) -> bool:
        return is_probed(settings, task)

    def begin(self, plan: RunPlan, task: Task, work: Work) -> Probed | None:
        """Fit a head to features of the frozen start model, if the settings ask for a probe."""
        return run_probe(plan, task, work) if is_probed(plan.settings, task) else None

    def before_steps(self, work: BeforeSteps) -> None:
        """Compute the teacher's logits of every image, with the setting ``distillation.once``; also when a run is resumed."""
        learner, learned = work.learner, work.samples
        task = learner.task
        if not isinstance(task, Distillation) or not task.distillation.once:
            return
        assert isinstance(learned, ImageDataset)
        loader = work.loader_of(task.dataset(learned.items, transform=learned.transform))
        work.observer.begin("asking the teacher", len(learned.items))
        kept = FeatureFile(None, (len(learned.items), len(task.classes)), "")
        try:
            with learner.precision():
                logits = read_features(
                    task.teacher, loader, kept, device=learner.device, view=0, on_batch=work.on_batch, group=learner.group
                )
        except OutOfTimeError:
            raise OutOfTimeError(NO_TIME) from None
        finally:
            loader.close()
        task.answers.update(zip((item.name for item in learned.items), logits.numpy(), strict=True))


DATA = ClassificationData(task_row("classification"))
