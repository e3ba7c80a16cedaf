"""The data of a run of classification: what labels decide, and what comes before the first epoch."""

from vitrail.config.settings import RunSettings
from vitrail.data.items import ImageData
from vitrail.task_registry import task_row
from vitrail.tasks.classification.advice import advice_to_start
from vitrail.tasks.classification.probe import Probed, is_probed, run_probe
from vitrail.tasks.classification.teacher_logits import ask_once
from vitrail.tasks.task import Task
from vitrail.training.images import ImageRunData
from vitrail.training.loop.clock import OutOfTimeError
from vitrail.training.run_data import BeforeSteps
from vitrail.training.runs.plan import RunPlan, Work

NO_TIME = "there is no time to ask the teacher for every image once: it is asked in every step"


class ClassificationData(ImageRunData):
    """Images and their classes as the data of a run."""

    counts_batch_memory = True

    def advice(self, settings: RunSettings, source: ImageData) -> str | None:
        return advice_to_start(settings, source)

    def has_first_model(self, settings: RunSettings, task: Task) -> bool:
        return is_probed(settings, task)

    def begin(self, plan: RunPlan, task: Task, work: Work) -> Probed | None:
        """Fit a head to features of the frozen model to start from."""
        return run_probe(plan, task, work) if is_probed(plan.settings, task) else None

    def before_steps(self, work: BeforeSteps) -> None:
        """Let a teacher answer for every image, where it is asked once."""
        try:
            ask_once(work)
        except OutOfTimeError:
            raise OutOfTimeError(NO_TIME) from None


DATA = ClassificationData(task_row("classification"))
