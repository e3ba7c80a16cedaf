"""The data of a classification run, and the work before its first epoch."""

from vitrail.config.settings import RunSettings
from vitrail.data.items import ImageData
from vitrail.task_registry import task_row
from vitrail.tasks.classification.learning.distillation import Distillation
from vitrail.tasks.classification.learning.probe import Probed, is_probed, run_probe
from vitrail.tasks.task import Task
from vitrail.training.finetune.teacher_answers import answers_to_all
from vitrail.training.images import ImageRunData
from vitrail.training.run_data import BeforeSteps
from vitrail.training.runs.plan import RunPlan, Work
from vitrail.weights.published import SMALLEST

FEW = 10_000
"""Number of training images below which a pretrained model is far better than one from scratch."""
LEAST_SIDE = 64
"""Least side of photographs, in pixels; smaller images are digits, icons or CIFAR-10's."""


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
        task = work.learner.task
        if isinstance(task, Distillation) and task.distillation.once:
            task.answers.update(answers_to_all(work, task.teacher, len(task.classes)))


DATA = ClassificationData(task_row("classification"))
