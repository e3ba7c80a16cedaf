"""``vitrail evaluate``."""

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from vitrail.cli.console import Whole, note, result, result_json
from vitrail.cli.flags import Engine, ModelOrExported, Overlap, Precision, Smoothing, Split, Window
from vitrail.tasks.metrics import COUNTS, metrics_in


def evaluate(
    model: ModelOrExported,
    *,
    data: str | None = None,
    split: Split = None,
    batch_size: Whole | None = None,
    workers: Whole | None = None,
    precision: Precision = None,
    engine: Engine = "auto",
    csv: Path | None = None,
    boxes: Path | None = None,
    mirror: Annotated[bool | None, Parameter(negative="--no-mirror")] = None,
    smoothing: Smoothing = None,
    window: Window = None,
    overlap: Overlap = None,
    pictures: Path | None = None,
    count: Whole | None = None,
    features: str | None = None,
    classifier: str | None = None,
    steps: Whole | None = None,
    guidance: float | None = None,
    bits: Whole | None = None,
    latents: Path | None = None,
    json: bool = False,
) -> None:
    """Evaluate a model: a classifier on labelled images, a translator on sentence pairs, a pose model on people, a segmenter
    on masks.

    Classes of the data are matched to the model's labels by name; a number is the index of a label. Under torchrun the processes
    share the work.

    Parameters
    ----------
    data
        Data as for vitrail train. Default: the data of the run.
    batch_size
        Images per batch. Default: 64, for segmenters 8.
    workers
        Number of processes that prepare images. Default: on a GPU one for each core, at most 16; on a CPU none.
    csv
        A file to write, which must not exist: a row for each image with the true label, the predicted label, its score, whether
        it is correct, and the next labels; for pose models a row for each person; for segmenters a row for each class in an
        image.
    boxes
        For pose models: a detector's results in COCO's format. Joints are predicted in these boxes instead of the annotated
        ones, and scores are COCO's: a person without a detection counts as missed.
    mirror
        Average the predictions for an image, or a box, and its mirror image, in twice the time. Default: on for pose models,
        unless the run says otherwise, and off for others. It has no effect for models that evaluate a box in eight rotations.
    pictures
        For pose models: a folder to write, which must not exist, with the people of the worst scores next to their annotations,
        and a bar chart of the joints. It cannot be combined with boxes. For diffusion models: a folder for the samples that
        are nearest to a training image, next to it.
    count
        For diffusion models: number of images to sample and compare with real ones; 0 computes the loss only. Default: 600.
    features
        For diffusion models: a model whose feature vectors are compared. Default: the pixels are compared.
    classifier
        For diffusion models: a classifier that checks the class of each sampled image.
    steps
        For diffusion models: number of sampling steps. Default: 50.
    guidance
        For diffusion models: weight of classifier-free guidance. Default: 1, without guidance.
    bits
        For diffusion models with a learned variance: number of images whose bits per dimension are counted. Default: 32.
    latents
        For diffusion models of latents: the folder of the VAE. Default: the one that the model names.
    json
        One JSON document: every metric of the task by name, loss, images, split.
    """
    from vitrail.cli.use.answers import require_free_outputs
    from vitrail.files import path_of
    from vitrail.weights.locate import require_possible

    require_possible(model)  # before torch is imported
    table, drawn_to = csv and path_of(csv), pictures and path_of(pictures)
    require_free_outputs(table, growing=False, pictures=drawn_to)
    from vitrail import api
    from vitrail.checks import require_not_negative, require_positive
    from vitrail.cli.progress import counting
    from vitrail.cli.ship.calibration import measure_before
    from vitrail.runtime.processes import open_processes

    require_positive(**{"--batch-size": 1 if batch_size is None else batch_size})
    require_not_negative(**{"--workers": workers or 0})
    measure_before(model)
    options: dict[str, Any] = {
        "batch_size": batch_size, "workers": workers, "table": table, "boxes": boxes, "mirror": mirror, "smoothing": smoothing,
        "window": window, "overlap": overlap, "pictures": drawn_to, "count": count, "features": features,
        "classifier": classifier, "steps": steps, "guidance": guidance, "bits": bits, "latents": latents,
    }  # fmt: skip
    with open_processes() as group, counting("evaluating") as progress:
        ways: dict[str, Any] = {"split": split, "precision": precision, "engine": engine, "observer": progress, "group": group}
        metrics, chosen = api.evaluate(model, data, **ways, **options)
    scores = metrics.details()
    if json:
        result_json({**scores, "split": chosen})
        return
    result(f"split   {chosen}")
    for name in COUNTS:
        if name in scores:
            result(f"{name:<7} {scores[name]}")
    for metric in metrics_in(scores):
        result(f"{metric.short:<7} {metric.shown(scores[metric.name])}")
    for line in metrics.lines(scores):
        result(line)
    for line in metrics.remarks(scores):
        note(line)
