"""What training comes to."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from vitrail.deploy.pictures import Picture
from vitrail.deploy.predict import predict
from vitrail.deploy.predictor import Labels
from vitrail.runtime.notebook import table
from vitrail.tasks.metrics import main_metric, metrics_in
from vitrail.training.run import Finished
from vitrail.weights.folder import TrainedModel


@dataclass(frozen=True)
class Run:
    """A finished run: its folder, the best model, and its scores on the split that reports are made on."""

    folder: Path
    trained: TrainedModel
    split: str
    scores: dict[str, float | int]

    def predict(self, images: Picture | Iterable[Picture], *, top: int = 5) -> list[Labels]:
        """See `predict`."""
        return predict(self.trained, images, top=top)

    @classmethod
    def of(cls, finished: Finished) -> Self:
        """A run as training leaves it."""
        return cls(finished.trainer.folder.path, finished.trained, finished.split, finished.metrics.scores())

    def __repr__(self) -> str:
        metric = main_metric(self.scores)
        return f"<Run {self.folder}: {self.split} {metric.title} {metric.shown(self.scores[metric.name])}{self._of_images()}>"

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        rows = [(metric.title, metric.shown(self.scores[metric.name])) for metric in metrics_in(self.scores)]
        return table(f"{self.folder}: {self.split}{self._of_images()}", rows, below=f"report: {self.folder / 'report.html'}")

    def _of_images(self) -> str:
        return f" of {self.scores['images']:,} images" if "images" in self.scores else ""
