"""``vitrail export``."""

from typing import Annotated, Literal

from cyclopts import Parameter

from vitrail.cli.console import result, result_json
from vitrail.tasks.metrics import metric_of


def export(
    model: str,
    *,
    to: Literal["onnx", "openvino", "torch"] = "onnx",
    precision: Literal["fp32", "bf16", "fp16", "int8"] = "fp32",
    calibrate: str | None = None,
    merge: str = "0",
    max_drop: float = 0.5,
    image_size: str | None = None,
    fold_normalization: Annotated[bool, Parameter(negative=())] = False,
    force: Annotated[bool, Parameter(negative=())] = False,
    out: str | None = None,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Write a model as a graph for an engine, verified; predict, evaluate and serve take it like any model.

    Labels and preparation are inside. Needs the extra export: pip install 'vitrail[export]'.

    Parameters
    ----------
    model
        A run folder, a model folder, a file of weights, a hub id or a name of vitrail models --pretrained.
    to
        onnx, openvino, or torch: a .pt2 beside the model folder.
    precision
        int8 is the quickest, and needs images to calibrate with.
    calibrate
        Images, as vitrail train takes them, or without labels: training images calibrate int8, validation images decide
        what is chosen, and accuracy is measured on test images; data without splits is split. Default: the data of the run.
    merge
        Patches that every block merges into others like them, or a number for each: 0,0,0,24; or auto.
    max_drop
        Points of accuracy on the validation images that merge auto may lose.
    image_size
        Height and width that the graph takes, 384 or 384x256; or any: all multiples of the patch. Default: the model's.
    fold_normalization
        The graph takes pixels of 0 to 255, uint8, and normalises them itself.
    force
        Keep int8 also where it loses more than a point, or is slower than bf16.
    out
        The folder to write. Default: exports/NAME-DATE-TIME.
    json
        One JSON document: what is in export.json, and the folder.
    """
    from vitrail.weights.locate import require_possible

    require_possible(model)  # before torch is imported
    from vitrail import api
    from vitrail.checks import require_not_negative
    from vitrail.cli.progress import StageProgress
    from vitrail.deploy.merging import read_merging

    require_not_negative(**{"--max-drop": max_drop})
    counts = read_merging(merge)
    with StageProgress() as progress:
        folder, figures = api.export(
            model,
            out,
            to=to,
            precision=precision,
            calibrate=calibrate,
            merge=counts,
            max_drop=max_drop,
            image_size=image_size,
            fold=fold_normalization,
            force=force,
            observer=progress,
        )
    if json:
        result_json({"folder": str(folder), **figures})
        return
    verified = figures["verified"]
    whose = "a single image's" if precision == "int8" else "the model's"
    result(f"verified   logits within {verified['largest_difference']:.1e} of {whose}, batches {verified['batches']}")
    if figures["token_merging"]:
        result(f"merging    {figures['token_merging']} patches by block")
    if "metric" in figures:
        metric, score = metric_of(figures["metric"]), figures[figures["metric"]]
        of = metric.short if figures["labelled"] else "agrees"
        after, before = metric.shown(score["after"], 1), metric.shown(score["before"], 1)
        result(f"{of:<11}{after}, the model {before}, {figures['images']} images")
        rates = ", ".join(f"{name} {rate:.1f}" for name, rate in figures["images_per_second"].items())
        result(f"images/s   {rates}")
    result(f"folder     {folder}")
