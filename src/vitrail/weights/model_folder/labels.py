"""The labels of a model in ``config.json``, in transformers' format."""

from collections.abc import Sequence
from typing import Any

from vitrail.errors import ConfigError
from vitrail.files import is_text
from vitrail.weights.model_folder.classifier_output import Labelled

THRESHOLDS = "thresholds"
"""Entry of ``config.json`` for the least probability at which each label is accepted. With one label per image: to reject."""
PROBLEMS = ("single_label_classification", "multi_label_classification")
"""transformers' names for one label per image, and for any number of labels."""


def label_description(model: Labelled) -> dict[str, Any]:
    """Return the entries of ``config.json`` for labels and their thresholds."""
    return {
        **problem_description(model),
        "id2label": {str(i): label for i, label in enumerate(model.labels)},
        "label2id": {label: i for i, label in enumerate(model.labels)},
    }


def problem_description(model: Labelled) -> dict[str, Any]:
    """Return the entries for the problem type (one or several labels per image) and for the thresholds, if there are any."""
    bounds = {THRESHOLDS: list(model.thresholds)} if model.thresholds else {}
    return {"problem_type": PROBLEMS[model.multi_label], **bounds}


def require_text(labels: Sequence[str]) -> None:
    """Raise `ConfigError` for a label that cannot be encoded in UTF-8."""
    if strange := [label for label in labels if not is_text(label)]:
        raise ConfigError(f"the label {strange[0]!r} is not valid UTF-8", where="labels", hint="rename the class")


def distinct(labels: list[str]) -> list[str]:
    """Return labels without duplicates: ImageNet has two cranes, the second becomes ``crane (517)``."""
    seen: set[str] = set()
    result = []
    for i, label in enumerate(labels):
        result.append(f"{label} ({i})" if label in seen else label)
        seen |= {label, result[-1]}
    return result
