"""The labels of a model as ``config.json`` has them, in transformers' words."""

from collections.abc import Sequence
from typing import Any

from vitrail.errors import ConfigError
from vitrail.files import is_text
from vitrail.weights.model_folder.classifier_output import Labelled

THRESHOLDS = "thresholds"
"""Key of ``config.json`` for the least probabilities of accepted labels: of one label, where images are rejected."""
PROBLEMS = ("single_label_classification", "multi_label_classification")
"""transformers' names for one label an image, and for any number."""


def label_description(model: Labelled) -> dict[str, Any]:
    """Return the entries of ``config.json`` on labels and their thresholds."""
    return {
        **problem_description(model),
        "id2label": {str(i): label for i, label in enumerate(model.labels)},
        "label2id": {label: i for i, label in enumerate(model.labels)},
    }


def problem_description(model: Labelled) -> dict[str, Any]:
    """Return the entries that say if there may be several labels, and the least probability of each accepted label."""
    bounds = {THRESHOLDS: list(model.thresholds)} if model.thresholds else {}
    return {"problem_type": PROBLEMS[model.multi_label], **bounds}


def require_text(labels: Sequence[str]) -> None:
    """Refuse a label that is no text; raises `ConfigError`."""
    if strange := [label for label in labels if not is_text(label)]:
        raise ConfigError(f"the label {strange[0]!r} is not in UTF-8", where="labels", hint="name the class otherwise")


def distinct(labels: list[str]) -> list[str]:
    """Return names of which none stands for two classes: ImageNet has two cranes, the second becomes ``crane (517)``."""
    seen: set[str] = set()
    result = []
    for i, label in enumerate(labels):
        result.append(f"{label} ({i})" if label in seen else label)
        seen |= {label, result[-1]}
    return result
