"""The data of a run of classification: what labels decide, and what comes before the first epoch."""

from collections.abc import Callable

from vitrail.config.settings import RunSettings
from vitrail.data.items import ImageData
from vitrail.data.loading.batches import Samples
from vitrail.data.loading.loader import EpochLoader
from vitrail.errors import DataError
from vitrail.runtime.observer import Observer
from vitrail.runtime.processes import Processes
from vitrail.task_registry import task_row
from vitrail.tasks.classification.advice import advice_to_start
from vitrail.tasks.classification.probe import Probed, is_probed, run_probe
from vitrail.tasks.classification.teacher_logits import ask_once
from vitrail.tasks.task import Task
from vitrail.training.images import ImageRunData
from vitrail.training.loop.clock import OutOfTimeError
from vitrail.training.loop.learner import Learner
from vitrail.training.runs.plan import RunPlan, Work

NO_TIME = "there is no time to ask the teacher for every image once: it is asked in every step"


class ClassificationData(ImageRunData):
    """Images and their classes as the data of a run."""

    counts_batch_memory = True

    def classes_to_learn(self, source: ImageData) -> int:
        return len(source.classes)

    def require_learnable(self, source: ImageData) -> None:
        """Refuse data of less than two classes, or with a class that has no training images; raises `DataError`."""
        if len(source.classes) < 2:
            found = f"only the class {source.classes[0]!r}" if source.classes else "no class"
            raise DataError(
                f"{found} found; a classifier needs two or more",
                where=source.source,
                hint="sort the images into one folder per class: FOLDER/CLASS/image.jpg or FOLDER/train/CLASS/image.jpg",
            )
        super().require_learnable(source)
        unseen = [name for name, count in zip(source.classes, source.counts("train"), strict=True) if not count]
        if unseen:
            raise DataError(
                f"the classes {', '.join(map(repr, unseen[:8]))} have no training images",
                where=source.source,
                hint="add some, or take the classes out of the other splits",
            )

    def require_same_classes(self, settings: RunSettings, source: ImageData) -> None:
        if len(source.classes) != settings.model.config.num_classes:
            raise DataError(
                f"the data has {len(source.classes)} classes, the run was started with {settings.model.config.num_classes}",
                where=settings.data.source,
                hint="bring the data back as it was, or train anew",
            )

    def advice(self, settings: RunSettings, source: ImageData) -> str | None:
        return advice_to_start(settings, source)

    def has_first_model(self, settings: RunSettings, task: Task) -> bool:
        return is_probed(settings, task)

    def begin(self, plan: RunPlan, task: Task, work: Work) -> Probed | None:
        """Fit a head to features of the frozen model to start from."""
        return run_probe(plan, task, work) if is_probed(plan.settings, task) else None

    def before_steps(
        self,
        learner: Learner,
        learned: Samples,
        loader_of: Callable[[Samples], EpochLoader],
        observer: Observer,
        on_batch: Callable[[int], None],
        group: Processes,
    ) -> None:
        """Let a teacher answer for every image, where it is asked once."""
        try:
            ask_once(learner, learned, loader_of, observer, on_batch, group)
        except OutOfTimeError:
            raise OutOfTimeError(NO_TIME) from None


DATA = ClassificationData(task_row("classification"))
