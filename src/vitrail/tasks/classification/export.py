"""Export of classifiers as graphs in any precision, with a measurement of the lost accuracy."""

from typing import Any

from vitrail.tasks.classification.judging.judging import Judging
from vitrail.tasks.classification.predictor import LabelDescription, require_classes
from vitrail.weights.model_folder.folder import TrainedModel

FLOATS = ""
"""Reason why ``--precision auto`` does not try int8; classifiers have none."""
judging = Judging
DESCRIPTION = LabelDescription


def require_exportable(trained: TrainedModel, to: str, asked: dict[str, bool], note: Any) -> None:
    """Raise `ModelFileError` for a model without labels, except for an export to torch."""
    if to != "torch":
        require_classes(trained)
