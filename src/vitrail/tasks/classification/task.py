"""The choice of the task for a classification run, by its data and its teacher."""

from vitrail.data.images.preparation import Preparation
from vitrail.data.items import ImageData
from vitrail.models.base import ImageModel
from vitrail.tasks.classification.labels.multi_label import MultiLabel
from vitrail.tasks.classification.labels.single_label import Classification
from vitrail.tasks.classification.learning.distillation import Distillation
from vitrail.tasks.task import Options


def create(model: ImageModel, preparation: Preparation, data: ImageData, options: Options) -> Classification:
    """Return the task of a run; raises `ConfigError` if settings, model or data are not suitable."""
    if options.teacher is not None:
        return Distillation.create(model, preparation, data, options)
    kind = MultiLabel if data.multi_label else Classification
    return kind.create(model, preparation, data, options)
