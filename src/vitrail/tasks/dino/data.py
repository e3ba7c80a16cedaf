"""The data of a run of self-distillation: images, and labels that measure what was learned, where there are some."""

from vitrail.config.settings import RunSettings
from vitrail.data.items import ImageData
from vitrail.task_registry import task_row
from vitrail.tasks.dino.settings import DinoSettings
from vitrail.training.feature_data import FeatureData
from vitrail.training.runs.run_folder import begun_by
from vitrail.weights.model_folder.folder import TrainedModel


class DinoData(FeatureData):
    """Images whose number decides the size of the projection, unless the run goes on from another run's."""

    def complete(self, settings: RunSettings, source: ImageData, start: TrainedModel | None) -> RunSettings:
        completed = super().complete(settings, source, start)
        task, begun = completed.task, begun_by(settings)
        assert isinstance(task, DinoSettings)
        if begun is not None and task.out_dim is None and isinstance(begun.settings.task, DinoSettings):
            return completed.changed(task=task.changed(out_dim=begun.settings.task.out_dim))
        return completed.changed(task=task.changed(out_dim=task.outputs_for(self._images(settings, source))))

    def advice(self, settings: RunSettings, source: ImageData) -> str | None:
        """Return a line about the outputs of the projection, on which much depends."""
        assert isinstance(settings.task, DinoSettings)
        outputs, images = settings.task.out_dim, self._images(settings, source)
        return f"{outputs:,} outputs of the projection for {images:,} images; --task.out-dim sets another number"

    @staticmethod
    def _images(settings: RunSettings, source: ImageData) -> int:
        return round(settings.data.train_share * len(source.splits["train"]))


DATA = DinoData(task_row("dino"))
