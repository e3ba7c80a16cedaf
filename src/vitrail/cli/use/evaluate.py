"""``vitrail evaluate``."""

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from vitrail.cli.console import Whole, note, result, result_json
from vitrail.cli.flags import Engine, ModelOrExported, Precision, Smoothing, Split
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
    """Measure a model on labelled images, a translator on pairs of sentences, a model that finds joints on people.

    Classes are matched to the model's labels by name; a whole number is the index of a label. Under torchrun each process takes
    its share.

    Parameters
    ----------
    data
        What vitrail train takes. Default: the data of the run.
    batch_size
        Images per batch. Default: 64.
    workers
        Processes that prepare images. Default: beside a GPU one for each core, at most 16; beside a CPU none.
    csv
        A file to write: a row for each image with its true label, the one given, its score, whether that is correct, and the
        labels that follow; of a model that finds joints a row for each person. It must not exist.
    boxes
        Of a model that finds joints: look for people in the boxes of this file, a detector's results in COCO's format, and not in
        their own. Scores are COCO's then: who is not found counts as missed.
    mirror
        Take the mean of the answers to an image, or a box, and to its mirror image, for twice the time. Default: not, but of a
        model that finds joints as in the run, which does unless it is told otherwise. A box that is looked at in eight turns has
        no use for it.
    pictures
        Of a model that finds joints: a folder to write, which must not exist, with the people who were found worst, and what is
        marked beside it, and with bars of the joints. Not with boxes. Of a model that makes images: the images nearest to a
        training image, each beside it.
    count
        Of a model that makes images: so many are made and compared with real ones; 0 for the loss alone. Default: 600.
    features
        Of a model that makes images: a model whose vectors stand for the images. Default: their pixels do.
    classifier
        Of a model that makes images: a model that says which class each one shows.
    steps
        Of a model that makes images: steps from noise to image. Default: 50.
    guidance
        Of a model that makes images: weight of the class. Default: 1, which is none.
    bits
        Of a model that makes images and has learned a variance: count the bits per dimension of so many images. Default: 32.
    latents
        Of a model that makes images from latents: the folder of its VAE. Default: the one that the model names.
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
        "pictures": drawn_to, "count": count, "features": features, "classifier": classifier, "steps": steps,
        "guidance": guidance, "bits": bits, "latents": latents,
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
