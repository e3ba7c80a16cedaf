"""A fast copy of a model that writes text, for beam search, and a check of the scores."""

import math
from collections.abc import Sequence

import torch

from vitrail.deploy.export.packed_linear import in_blocks
from vitrail.errors import ModelFileError
from vitrail.models.text.search import Written
from vitrail.models.text.text_model import TextModel


def fast_copy(model: TextModel) -> TextModel:
    """Return a copy of the model with prepacked weights, which writes faster on a CPU; on other devices the model itself."""
    weight = next(model.parameters())
    return model.for_writing(in_blocks) if weight.device.type == "cpu" and weight.dtype == torch.float32 else model


def require_scores(written: Sequence[Written]) -> Sequence[Written]:
    """Return the texts; raises `ModelFileError` if a score is not finite."""
    if not all(math.isfinite(text.score) for text in written):
        hint = "its weights are damaged, or their values too large"
        raise ModelFileError("the model's scores are not finite", where="model", hint=hint)
    return written
