"""Evaluation of a captioning model, with baselines that need no captioner."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from vitrail.models.inference import in_evaluation_mode
from vitrail.runtime.device import pick_device
from vitrail.tasks.captioning.data import open_captions_for
from vitrail.tasks.captioning.floors import floors
from vitrail.tasks.captioning.images.captioned_images import Captioned
from vitrail.tasks.captioning.task import Captioning, CaptionMetrics, caption_rows
from vitrail.tasks.captioning.weights import TrainedCaptioner, open_captioner
from vitrail.tasks.evaluation import Request, StreamedEvaluation, TableOptions


class CaptionEvaluationOptions(TableOptions):
    """Options of an evaluation of captions."""

    refusal: ClassVar[str] = "the evaluation of a captioner has no such option: it runs in Python, in fp32"


SETTINGS = CaptionEvaluationOptions


def evaluation(request: Request) -> "CaptionEvaluation":
    """Return the evaluation of a captioning model. Raises the errors of `open_captions_for`."""
    model = request.model
    trained = model if isinstance(model, TrainedCaptioner) else open_captioner(model)
    items, split, settings, known = open_captions_for(request.reference, request.data, request.split, request.note)
    copy = in_evaluation_mode(trained.model, pick_device())
    task = Captioning(copy, trained.preparation, trained.tokenizer, settings)
    return CaptionEvaluation.of_task(task, items, split, request.options.batch_size, captioning=task, known=known)


@dataclass
class CaptionEvaluation(StreamedEvaluation):
    """Evaluation on images with captions; ``known`` are training images for the baselines, empty if there are none."""

    captioning: Any = None
    known: Sequence[Captioned] = ()

    def run(self, **options: Any) -> CaptionMetrics:
        """Return the metrics, with ``floors`` (the baselines) if there are training images."""
        metrics: CaptionMetrics = super().run(**options)
        if self.known:
            metrics.floors = floors(self.captioning, self.known, self.items)
        return metrics

    def rows(self) -> Sequence[Sequence[str]]:
        return caption_rows(self.items, self.metrics)
