"""The trained model of this kind: it returns labels or vectors."""

from vitrail.data.images.preparation import Preparation
from vitrail.models.base import ImageModel
from vitrail.weights.formats.checkpoint import Checkpoint, Source
from vitrail.weights.model_folder.folder import TrainedModel


def trained_of(model: ImageModel, source: Source, preparation: Preparation, checkpoint: Checkpoint) -> TrainedModel:
    """Return the model of a checkpoint together with its labels and preparation."""
    return TrainedModel(model, source.labels, preparation, source.multi_label, checkpoint.card, source.thresholds)
