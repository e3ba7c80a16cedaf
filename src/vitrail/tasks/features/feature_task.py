"""A task whose model learns features of images without labels."""

from collections.abc import Sequence

from vitrail.data.images.preparation import Preparation
from vitrail.data.items import ImageData, Item, count_classes
from vitrail.data.loading.dataset import NumberedDataset
from vitrail.data.targets import ClassIndex, Nothing, Targets
from vitrail.models.base import ImageModel
from vitrail.tasks.features.feature_metrics import FeatureMetrics
from vitrail.tasks.floor import Floor
from vitrail.tasks.image_task import ImageTask
from vitrail.tasks.task import Metrics
from vitrail.weights.model_folder.folder import TrainedModel


class FeatureTask(ImageTask):
    """A model without classes. Labels, where there are some, only measure its features.

    Args:
        model: the model, whose vectors are the features.
        preparation: normalizes the pixels.
        classes: the number of classes of labelled images; 0 without labels.
    """

    scored_dataset = NumberedDataset

    def __init__(self, model: ImageModel, preparation: Preparation, classes: int = 0):
        super().__init__(model, preparation)
        self.classes = classes

    def targets(self, *, mixed: bool = False) -> Targets:
        return ClassIndex() if self.classes else Nothing()

    def metrics(self, *, keep: bool = False) -> FeatureMetrics:
        return FeatureMetrics(self.classes, keep=keep)

    def floor(self, metrics: Metrics, items: Sequence[Item], known: Sequence[Item]) -> Floor | None:
        """Return the scores of one vector for all images; with labels, every image is taken for the commonest class."""
        if not self.classes:
            return Floor("one vector for all images", {"rankme": 1.0})
        commonest = max(count_classes(items, self.classes))
        return Floor("the commonest class for all images", {"knn": commonest / len(items)})

    def trained(self, model: ImageModel) -> TrainedModel:
        return TrainedModel(model, [], self.preparation)


def classes_of(data: ImageData) -> int:
    """Return the number of classes by which features are measured; 0 where images have no label or several."""
    return 0 if data.multi_label else len(data.classes)
