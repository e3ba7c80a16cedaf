"""The result of training."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from vitrail.data.images.pictures import Picture
from vitrail.errors import ConfigError
from vitrail.models.cost import cost
from vitrail.runtime.environment import environment
from vitrail.runtime.notebook import table
from vitrail.task_registry import row_of_kind
from vitrail.tasks.metrics import COUNTS, main_metric, metrics_in
from vitrail.training.runs.run import Finished
from vitrail.weights.model_folder.classifier_output import Labels
from vitrail.weights.model_folder.trained import Trained


@dataclass(frozen=True)
class Run:
    """A finished run: its folder, the best model, and the scores of that model on ``split``, the split of the report."""

    folder: Path
    trained: Trained
    split: str
    scores: dict[str, float | int]
    warnings: tuple[str, ...] = ()
    """Reasons to think that the model has hardly learned anything."""
    longer: str = ""
    """Command that trains this model for more epochs; empty if that is not possible."""

    def predict(self, images: Picture | Iterable[Picture], *, top: int | None = 5) -> list[Labels]:
        """Predict labels as `vitrail.predict` does; for models that write text use `vitrail.translate` and `vitrail.caption`."""
        what, hint = self.trained.no_labels
        if what:
            raise ConfigError(what, where="Run.predict", hint=hint)
        labels: list[Labels] = row_of_kind("images", "vector").module("predictor").predict(self.trained, images, top=top)
        return labels

    @classmethod
    def of(cls, finished: Finished) -> Self:
        return cls(
            finished.trainer.folder.path,
            finished.trained,
            finished.split,
            finished.metrics.scores(),
            tuple(finished.doubts),
            finished.longer,
        )

    def __repr__(self) -> str:
        metric = main_metric(self.scores)
        return f"<Run {self.folder}: {self.split} {metric.title} {metric.shown(self.scores[metric.name])}{self._of_items()}>"

    def _repr_html_(self) -> str:
        rows = [(metric.title, metric.shown(self.scores[metric.name])) for metric in metrics_in(self.scores)]
        return table(f"{self.folder}: {self.split}{self._of_items()}", rows, below=f"report: {self.folder / 'report.html'}")

    def _of_items(self) -> str:
        return next((f" of {self.scores[name]:,} {name}" for name in COUNTS if name in self.scores), "")


def write_report(finished: Finished) -> None:
    """Write the plots, tables and ``report.html`` of a run to its folder."""
    from vitrail.study.page import report  # scikit-learn and matplotlib take a second to import
    from vitrail.study.page.report_part import Reported

    trainer, folder = finished.trainer, finished.trainer.folder.path
    (folder / "plots").mkdir(exist_ok=True)
    run = Reported(
        trainer.settings.model_dump(mode="json"), trainer.rows, finished.task, trainer.data, finished.split, finished.items,
        finished.metrics, finished.validation, folder / "plots", finished.doubts, finished.floor,
        trainer.clock.left - trainer.budget.report,
    )  # fmt: skip
    kept = trainer.best or {"epoch": 0}
    report.write_report(folder, run, environment=environment(), kept=kept, cost=cost(trainer.settings.model.config))
