"""``vitrail bench``."""

from typing import Annotated, Any, Literal

from cyclopts import Parameter

from vitrail.cli.console import Whole, note, result, result_json
from vitrail.cli.flags import ModelOrExported
from vitrail.tasks.metrics import metrics_in

MANY = Parameter(consume_multiple=True)


def bench(
    model: ModelOrExported,
    *,
    data: str | None = None,
    engines: Annotated[list[Literal["torch", "onnxruntime", "openvino"]] | None, MANY] = None,
    precisions: Annotated[list[Literal["fp32", "bf16", "fp16", "int8"]] | None, MANY] = None,
    batch_sizes: Annotated[list[Whole] | None, MANY] = None,
    threads: Annotated[list[Whole] | None, MANY] = None,
    max_drop: float = 0.5,
    out: str | None = None,
    json: bool = False,
) -> None:
    """Measure a model's speed, memory and accuracy in every engine and precision, and recommend one.

    Parameters
    ----------
    data
        Images as for vitrail train. Training images calibrate int8, validation images decide the recommendation, and accuracy
        is measured on test images; data without splits is split. Default: the data of the run.
    engines
        Engines to measure, of torch onnxruntime openvino. Default: all installed ones.
    precisions
        Precisions to measure, of fp32 bf16 fp16 int8. Default: all.
    batch_sizes
        Batch sizes to measure. Default: 1 16.
    threads
        Numbers of CPU threads to measure. Default: all cores.
    max_drop
        Points of accuracy on the validation images that the recommended model may lose.
    out
        A folder for bench.json and frontier.png.
    json
        One JSON document: the rows, and the recommended one.
    """
    from vitrail.weights.locate import require_possible

    require_possible(model)  # before torch is imported
    from vitrail import api
    from vitrail.checks import require_not_negative, require_positive
    from vitrail.cli.progress import StageProgress
    from vitrail.cli.ship.calibration import measure_before

    require_not_negative(**{"--max-drop": max_drop})
    for number in (*(batch_sizes or ()), *(threads or ())):
        require_positive(**{"--batch-sizes, --threads": number})
    measure_before(model)
    options: dict[str, Any] = {"engines": engines or (), "precisions": precisions or (), "threads": threads or ()}
    options |= {"batch_sizes": batch_sizes or (1, 16), "max_drop": max_drop}
    with StageProgress() as progress:
        measured = api.bench(model, data, out, observer=progress, **options)
    if json:
        result_json(measured)
        return
    _print(measured)
    if out:
        note(f"plot: {out}/frontier.png")


def _print(measured: dict[str, Any]) -> None:
    """Print the table, and the recommended row."""
    from vitrail.study.compare.comparison import columns

    head = ["engine", "precision", "batch", "threads", "images/s", "p50 ms", "p90 ms", "p99 ms", "MB"]
    head += [metric.short for metric in metrics_in(measured["rows"][0])[:1]]
    result(columns([head, *(_cells(row) for row in measured["rows"])]))
    best = measured["recommended"]
    points = "".join(f", {metric.short} {metric.shown(best[metric.name], 1)}" for metric in metrics_in(best)[:1])
    result(
        f"recommended: {best['name']}, {best['batch']} at a time: {best['images_per_second']:.0f} images/s, "
        f"{best['times']:.1f} times {best['beside']}{points}"
    )


def _cells(row: dict[str, Any]) -> list[str]:
    cells = [row["engine"], row["precision"], str(row["batch"]), str(row["threads"]), f"{row['images_per_second']:.1f}"]
    cells += [f"{row[name]:.1f}" for name in ("latency_ms", "latency_p90_ms", "latency_p99_ms")] + [f"{row['memory_mb']:.0f}"]
    return cells + [metric.shown(row[metric.name], 1) for metric in metrics_in(row)[:1]]
