"""How good the captions of a captioner are, beside what can be had without one."""

from collections.abc import Callable
from pathlib import Path

from vitrail.data.loading.loader import EpochLoader
from vitrail.deploy.predictor import OnBatch
from vitrail.models.inference import in_evaluation_mode
from vitrail.runtime.device import pick_device
from vitrail.runtime.output import require_free_file
from vitrail.runtime.processes import ALONE, Processes
from vitrail.tasks.answer_table import write_table
from vitrail.tasks.captioning.floors import floors
from vitrail.tasks.captioning.task import Captioning, CaptionMetrics, ToEvaluate, caption_rows
from vitrail.tasks.captioning.weights import TrainedCaptioner, open_captioner
from vitrail.tasks.evaluation import answering
from vitrail.tasks.evaluation import evaluate as evaluate_task

OpenCaptions = Callable[[TrainedCaptioner], ToEvaluate]


def evaluate_captions(
    model: str | Path | TrainedCaptioner,
    open_captions: OpenCaptions,
    *,
    batch_size: int = 64,
    workers: int = 0,
    table: Path | None = None,
    on_start: OnBatch | None = None,
    on_batch: OnBatch | None = None,
    group: Processes = ALONE,
) -> tuple[CaptionMetrics, str]:
    """Scores of a captioner, and the split of the images; see `vitrail.evaluate`.

    Where it is known what was learned from, ``metrics.floors`` are what can be had without a captioner; see
    `vitrail.tasks.captioning.floors.floors`.

    Args:
        model: a captioner, or the MODEL that it is behind.
        open_captions: gives what it is evaluated on.
        batch_size, workers: images per batch; processes that prepare them.
        table: a CSV file to write, with a row for each image.
        on_start, on_batch: called with the number of images; with the size of every finished batch.
        group: the processes that do it together.
    """
    with group.together():
        if table is not None:
            require_free_file(table, where="--csv")
        trained = model if isinstance(model, TrainedCaptioner) else open_captioner(model)
        (items, split, settings, known), device = open_captions(trained), pick_device()
    copy = in_evaluation_mode(trained.model, device)
    task = Captioning(copy, trained.preparation, trained.tokenizer, settings).to(device)
    if on_start:
        on_start(len(items))
    part = (group.rank, group.count)
    metrics = task.metrics(keep=True)
    metrics.take_items(items)
    loader = EpochLoader(task.dataset(items), batch_size, shuffle=False, workers=workers, part=part)
    with answering(task, device) as answer:
        evaluate_task(answer, loader, metrics, on_batch=on_batch, group=group)
    if known:
        metrics.floors = floors(task, known, items)
    if table is not None and group.first:
        write_table(table, caption_rows(items, metrics))
    return metrics, split
