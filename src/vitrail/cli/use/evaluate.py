"""``vitrail evaluate``."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from vitrail.cli.console import Whole, note, result, result_json
from vitrail.tasks.metrics import COUNTS, metrics_in

FLOORS = {"one_caption": "one caption for all", "nearest_image": "the nearest training image's caption"}
"""What the floors of captions are called."""


def evaluate(
    model: str,
    *,
    data: str | None = None,
    split: Literal["train", "val", "test", "all"] | None = None,
    batch_size: Whole = 64,
    workers: Whole | None = None,
    precision: Literal["fp32", "bf16"] | None = None,
    engine: Literal["auto", "torch", "onnxruntime", "openvino"] = "auto",
    csv: Path | None = None,
    boxes: Path | None = None,
    mirror: bool | None = None,
    smoothing: float | None = None,
    pictures: Path | None = None,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Measure a model on labelled images, a translator on pairs of sentences, a model that finds joints on people.

    Classes are matched to the model's labels by name; a whole number is the index of a label. Under torchrun each process takes
    its share.

    Parameters
    ----------
    model
        A run folder, a model folder, an exported model, a file of weights, a hub id or a name of vitrail models --pretrained.
    data
        What vitrail train takes. Default: the data of the run.
    split
        Default: test, else val; all images of a folder without splits.
    batch_size
        Images per batch.
    workers
        Processes that prepare images. Default: beside a GPU one for each core, at most 16; beside a CPU none.
    precision
        fp32, or bf16: about twice as fast on processors that have it, exact to two or three digits. Default: fp32; an exported
        model has its own.
    engine
        What runs an exported model; auto takes the quicker one.
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
    smoothing
        Of a model that finds joints: deviation by which heatmaps are smoothed before a joint is read from them, in places; 0 for
        none. Default: as the model keeps it.
    pictures
        Of a model that finds joints: a folder to write, which must not exist, with the people who were found worst, and what is
        marked beside it, and with bars of the joints. Not with boxes.
    json
        One JSON document: every metric of the task by name, loss, images, split.
    """
    from vitrail.files import path_of
    from vitrail.runtime.output import require_free, require_free_file, require_outside
    from vitrail.weights.locate import require_possible

    require_possible(model)  # before torch is imported
    table, drawn_to = csv and path_of(csv), pictures and path_of(pictures)
    if table is not None:
        require_free_file(table, where="--csv")
    if drawn_to is not None:
        require_free(drawn_to, where="--pictures")
    if table is not None and drawn_to is not None:
        require_outside(table, drawn_to, where="--csv")
    from vitrail import api
    from vitrail.checks import require_not_negative, require_positive
    from vitrail.cli.progress import counting
    from vitrail.cli.ship.calibration import measure_before
    from vitrail.runtime.processes import open_processes

    require_positive(**{"--batch-size": batch_size})
    require_not_negative(**{"--workers": workers or 0})
    measure_before(model)
    with open_processes() as group, counting("evaluating") as progress:
        metrics, chosen = api.evaluate(
            model,
            data,
            split=split,
            batch_size=batch_size,
            workers=workers,
            precision=precision,
            engine=engine,
            on_start=progress.start,
            on_batch=progress.advance,
            on_note=note,
            table=table,
            boxes=boxes,
            mirror=mirror,
            smoothing=smoothing,
            pictures=drawn_to,
            group=group,
        )
    if drawn_to is not None:
        note(f"the worst answers and the joints as pictures: {drawn_to}")
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
    for floor, found in scores.get("floors", {}).items():
        told = ", ".join(f"{metric.short} {metric.shown(found[metric.name])}" for metric in metrics_in(found))
        result(f"without a captioner, {FLOORS[floor]}: {told}")
    if "warning" in scores:
        note(f"warning: {scores['warning']}")
    if left_out := scores.get("pck_left_out"):
        note(f"left out of PCK: {left_out:,} people, of whom the length of the {scores['pck_by']} is not known")
    for joint, share in scores.get("joints", {}).items():
        result(f"{joint:<20} {'unknown' if share is None else f'{100 * share:.2f} %'}")
