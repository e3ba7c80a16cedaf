"""Evaluation of a segmenter on images with masks, in Python or in an engine."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vitrail.errors import ConfigError
from vitrail.models.configs.base import Size
from vitrail.runtime.observer import Note
from vitrail.tasks.evaluation import Evaluation, Request, TableOptions
from vitrail.tasks.segmentation.data import DATA
from vitrail.tasks.segmentation.files.data import SegmentationData
from vitrail.tasks.segmentation.files.sources import open_masks
from vitrail.tasks.segmentation.predictor import SegmentationOptions, SegmentationPredictor
from vitrail.tasks.segmentation.settings import OVERLAP, Overlap, SegmentationSettings
from vitrail.tasks.segmentation.weights import no_masks
from vitrail.training.runs.data_of_model import own_run


class SegmentationEvaluationOptions(TableOptions):
    """Options of an evaluation of masks; the table has a row for each class of each image."""

    batch_size: int = 8
    """Images per batch."""
    window: Size | None = None
    """Height and width of the windows; by default as in the run, else the whole image."""
    overlap: Overlap = OVERLAP
    """Fraction of a window's side that the next window shows, too; by default as in the run."""
    mirror: bool = False
    """Average the logits of an image and of its mirror image; by default as in the run."""

    @classmethod
    def missing(cls, where: object) -> Any:
        return no_masks(where)


SETTINGS = SegmentationEvaluationOptions
VIEW = ("window", "overlap", "mirror")
"""Options that a run has, too."""


def evaluation(request: Request) -> Evaluation:
    """Return the evaluation of a predictor on images with masks.

    Raises:
        DataError: there are no masks, their classes are not the model's, or an image is too large without windows.
        ConfigError: no data is given, and the model is not a run.
    """
    options = request.options
    predictor: SegmentationPredictor = request.model
    source, split, settings = open_masks_for(predictor.classes, request.reference, request.data, request.split, request.note)
    view = {name: getattr(options if name in options.model_fields_set else settings, name) for name in VIEW}
    predictor = replace(predictor, settings=SegmentationOptions.read(view))
    return predictor.evaluation(source.split(split), source.coding, batch_size=options.batch_size, split=split)


def open_masks_for(
    classes: Sequence[str], reference: object, data: str | Path | None, split: str | None, note: Note
) -> tuple[SegmentationData, str, SegmentationSettings]:
    """Open masks to evaluate a model with these classes on, by default a run's own; return them, their split and the settings.

    Raises:
        DataError: there are no masks, or they have a class that the model lacks.
        ConfigError: no data is given, and the model is not a run.
    """
    run, own = own_run(reference, data)
    if data is None and run is None:
        raise ConfigError("no data given", where="--data", hint="give images with masks to evaluate on: --data FOLDER")
    task = run.settings.task if run else SegmentationSettings()
    assert isinstance(task, SegmentationSettings)
    if run and own:
        source = DATA.used(DATA.open_source(run.settings, run=run), run.bad_images, run.settings)
    else:
        source = open_masks(str(data), void=task.void)
    assert isinstance(source, SegmentationData)
    source = source.matched(list(classes), note)
    source.tell(note)
    return source, split or (source.evaluation_split if own or source.has_splits else "all"), task
