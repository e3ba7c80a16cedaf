"""``vitrail export``."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from vitrail.cli.console import result, result_json
from vitrail.cli.flags import Model
from vitrail.errors import ConfigError, DataError
from vitrail.tasks.metrics import metric_of

MAX_DROP = 0.5
"""Default of ``--max-drop``: points of accuracy that merging may lose."""


def export(
    model: Model,
    *,
    to: Literal["onnx", "openvino", "torch", "triton", "ctranslate2"] = "onnx",
    precision: Literal["fp32", "bf16", "fp16", "int8", "auto"] = "fp32",
    calibrate: str | None = None,
    merge: str = "0",
    max_drop: float = MAX_DROP,
    image_size: str | None = None,
    fold_normalization: bool = False,
    full_size: bool = False,
    force: bool = False,
    out: str | None = None,
    json: bool = False,
) -> None:
    """Export a model for an engine and verify it; predict, evaluate, serve, sample and translate take it like any model.

    The export includes the labels or joints and the preparation. It needs the extra export: pip install 'vitrail[export]'; for a
    translator the extra ctranslate2.

    Parameters
    ----------
    to
        onnx; openvino; torch, a .pt2 file together with the model folder; triton, a model repository for Triton. For a
        translator ctranslate2.
    precision
        int8 is usually the fastest; for models of images it needs images for calibration. auto measures, and reports its reason:
        it takes int8 if it is faster here and keeps the accuracy, else the fastest floating-point type.
    calibrate
        Images as for vitrail train, or without labels. Training images calibrate int8, validation images decide the choices, and
        accuracy is measured on test images; data without splits is split. For a translator, sentences to measure it on.
        Default: the data of the run.
    merge
        Number of patches that every block merges into similar ones, or a number for each block: 0,0,0,24; or auto.
    max_drop
        Points of accuracy on the validation images that merge auto may lose.
    image_size
        Height and width of the graph's input, 384 or 384x256; or any, for all multiples of the patch. Default: the model's.
    fold_normalization
        Include the normalization in the graph, which then takes uint8 pixels of 0 to 255.
    full_size
        For segmenters: a graph that gives logits at the size of the images. Default: at the decoder's stride, usually 4, which is
        16 times less data; vitrail predict enlarges them.
    force
        Keep int8 even if it certainly loses more than a quarter of a point, if the images do not suffice to tell, or if auto
        finds it slower than floating point.
    out
        The folder to write. Default: exports/NAME-DATE-TIME.
    json
        One JSON document: the content of export.json, and the folder.
    """
    from vitrail.weights.locate import require_possible

    require_possible(model)  # before torch is imported
    from vitrail import api
    from vitrail.checks import require_not_negative
    from vitrail.cli.progress import StageProgress
    from vitrail.cli.ship.calibration import measure_once
    from vitrail.deploy.export.merging import read_merging

    require_not_negative(**{"--max-drop": max_drop})
    options: dict[str, Any] = {"to": to, "precision": precision, "calibrate": calibrate, "force": force}
    of_images = {
        "merge": (read_merging(merge), merge != "0"), "max_drop": (max_drop, max_drop != MAX_DROP),
        "image_size": (image_size, image_size is not None), "fold": (fold_normalization, fold_normalization),
        "full_size": (full_size, full_size),
    }  # fmt: skip
    options |= {name: value for name, (value, is_given) in of_images.items() if is_given}
    if precision == "auto":
        measure_once()
    with StageProgress() as progress, _data_to_calibrate_with():
        folder, figures = api.export(model, out, observer=progress, **options)
    if json:
        result_json({"folder": str(folder), **figures})
        return
    (_tell if "gives" in figures else _tell_of_translator)(figures)
    result(f"folder     {folder}")


@contextmanager
def _data_to_calibrate_with() -> Iterator[None]:
    """Replace --data by --calibrate in errors, since this command has no --data."""
    try:
        yield
    except (ConfigError, DataError) as error:
        if error.where != "--data":
            raise
        raise type(error)(error.what, where="--calibrate", hint=error.hint) from None


def _tell(figures: dict[str, Any]) -> None:
    precision, verified = figures["precision"], figures["verified"]
    gives, difference, batches = figures["gives"], f"{verified['largest_difference']:.1e}", verified["batches"]
    if precision == "int8":
        result(f"verified   {gives} of an image alone and in a batch differ by at most {difference}, batches {batches}")
    else:
        result(f"verified   {gives} within {difference} of the model's, batches {batches}")
    if "because" in figures:
        result(f"precision  {precision}: {figures['because']}")
    if figures["token_merging"]:
        result(f"merging    {figures['token_merging']} patches by block")
    if (loss := figures.get("judged")) and "views" not in loss:
        of = metric_of(figures["metric"]).short
        result(f"judged     int8 loses {loss['points']:.1f} ± {loss['error']:.1f} points of {of} on {loss['images']} images")
    elif loss:
        from vitrail.tasks.classification.judging.int8_check import Judged

        result(f"judged     int8 loses {Judged(**loss)}")
    if "metric" in figures:
        metric, score = metric_of(figures["metric"]), figures[figures["metric"]]
        of = metric.short if figures["labelled"] else "agrees"
        after, before = metric.shown(score["after"], 1), metric.shown(score["before"], 1)
        result(f"{of:<11}{after}, the model {before}, {figures['images']} images")
        rates = ", ".join(f"{name} {rate:.1f}" for name, rate in figures["images_per_second"].items())
        result(f"images/s   {rates}")


def _tell_of_translator(figures: dict[str, Any]) -> None:
    verified = figures["verified"]
    known = f"log-probabilities within {verified['largest_difference']:.1e} of the model's"
    result(
        f"verified   {known}, {100 * verified['same']:.0f} % of {verified['sentences']} texts the same by the likeliest tokens"
    )
    if "metric" in figures:
        metric = metric_of(figures["metric"])
        after, before = (metric.shown(figures[metric.name][when]) for when in ("after", "before"))
        same = f"{100 * figures['same']:.1f} % of {figures['sentences']} translations the same"
        result(f"{metric.short:<11}{after}, the model {before}; {same}")
        rates = ", ".join(f"{name} {rate:.0f}" for name, rate in figures["sentences_per_second"].items())
        result(f"a second   sentences: {rates}")
    if "judged" in figures:
        from vitrail.tasks.translation.task import BY_SENTENCE

        loss, on = figures["judged"], f"{BY_SENTENCE.title} on {figures['sentences']} sentences"
        result(f"judged     {figures['precision']} loses {loss['points']:.1f} ± {loss['error']:.1f} points of {on}")
