"""Export of models that give labels: graphs in any precision, judged on images."""

from typing import Any

from vitrail.tasks.classification.judging.judging import Judging
from vitrail.tasks.classification.predictor import LabelDescription, require_classes
from vitrail.weights.model_folder.folder import TrainedModel

FLOATS = ""
"""Reason why `auto` leaves int8 out; none here."""
judging = Judging
DESCRIPTION = LabelDescription


def require_exportable(trained: TrainedModel, to: str, asked: dict[str, bool], note: Any) -> None:
    """Refuse a model that an engine would give no labels of; raises `ModelFileError`."""
    if to != "torch":
        require_classes(trained)
