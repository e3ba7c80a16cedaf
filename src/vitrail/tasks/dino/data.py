"""The data of a run of self-distillation: images, and labels that measure what was learned, where there are some."""

from vitrail.task_registry import task_row
from vitrail.training.feature_data import FeatureData

DATA = FeatureData(task_row("dino"))
