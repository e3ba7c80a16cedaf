"""Evaluation of classifiers on labelled images, by torch or an engine."""

from vitrail.tasks.classification.predictor import LabelEvaluation
from vitrail.tasks.evaluation import Request, TableOptions
from vitrail.training.runs.data_of_model import open_for


class LabelEvaluationOptions(TableOptions):
    """Options for the evaluation of a classifier."""

    keep: bool = False
    """Whether the metrics store ``logits``, ``labels`` and ``probabilities`` of every image."""
    mirror: bool = False
    """Whether to average the logits of each image and its mirror image, in twice the time."""


SETTINGS = LabelEvaluationOptions


def evaluation(request: Request) -> LabelEvaluation:
    """Return the evaluation of a predictor on images, whose classes are matched to its labels; raises `VitrailError`."""
    options = request.options
    predictor = request.model.with_mirror_images() if options.mirror else request.model
    source, own_splits = open_for(request.reference, request.data, note=request.note)
    split = request.split or (source.evaluation_split if own_splits else "all")
    items = predictor.relabelled(source, source.split(split), request.note)
    keep = options.keep or options.table is not None
    found: LabelEvaluation = predictor.evaluation(items, batch_size=options.batch_size, split=split, keep=keep)
    return found
