"""Benchmark of a model in all engines and precisions: speed, latency, memory, accuracy, and a recommendation."""

import multiprocessing
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast

import torch

from vitrail.checks import require_at_most
from vitrail.deploy.bench.engines import open_graph
from vitrail.deploy.bench.measure import timed
from vitrail.deploy.export.artefact import ENGINE, RUNS, Description, ExportPrecision, graph_of
from vitrail.deploy.export.export import export_graph
from vitrail.deploy.export.graph_files import description_in
from vitrail.deploy.predictor import Predictor, in_python, row_of
from vitrail.errors import ConfigError, DataError, VitrailError
from vitrail.models.inference import quickest_precision
from vitrail.runtime.device import Precision
from vitrail.runtime.memory import kept_memory, peak_memory
from vitrail.runtime.observer import Observer
from vitrail.runtime.output import name_of
from vitrail.task_registry import task_row
from vitrail.weights.model_folder.folder import TrainedModel
from vitrail.weights.model_folder.trained import save_model
from vitrail.weights.reference import open_model

Row = dict[str, Any]
WITHOUT = "no accuracy is measured"
MOST_THREADS = 1024
"""Most threads to request: more than CPUs have, and few enough that the system can start them."""


@dataclass(frozen=True)
class Way:
    """One way to run a model."""

    engine: str
    precision: str
    reference: Path
    """The model folder, or the graph."""

    @property
    def name(self) -> str:
        """Engine and precision, such as ``openvino bf16``."""
        return f"{self.engine} {self.precision}"

    def open(self, threads: int) -> Predictor:
        """Open the model in this engine and precision."""
        torch.set_num_threads(threads)
        if self.engine == "torch":
            predictor: Predictor = in_python(open_model(self.reference), cast(Precision, self.precision))
            return predictor
        return open_graph(self.reference, self.engine, precision=cast(ExportPrecision, self.precision), threads=threads)


def bench(
    model: str | Path,
    data: str | Path | None = None,
    *,
    engines: Sequence[str] = (),
    precisions: Sequence[str] = (),
    batch_sizes: Sequence[int] = (1, 16),
    threads: Sequence[int] = (),
    max_drop: float = 0.5,
    seconds: float = 1.0,
    observer: Observer | None = None,
) -> dict[str, Any]:
    """Measure a model in several engines and precisions; return the measurements in ``rows``, and the row ``recommended``.

    A PyTorch model is exported for every engine, in int8, too, if there are images; an exported model runs as it is. For a pose
    model, an image is one box.

    Args:
        model: a run folder, a model folder, a weights file, or an exported model.
        data: images for accuracy and int8, as ``calibrate`` of `vitrail.api.export`: training images calibrate int8,
            validation images decide the recommendation, test images measure the accuracy in every row. By default the run's.
        engines, precisions: the engines and precisions to measure; by default all.
        batch_sizes: images per batch.
        threads: numbers of CPU threads; by default torch's.
        max_drop: points of accuracy that the recommended row may surely lose on the validation images; see `Judge`.
        seconds: minimum duration of the measurement of each row.
        observer: gets the progress.

    Raises:
        VitrailError: with the exit code of the command.
    """
    for count in threads:
        require_at_most("--threads", count, MOST_THREADS)
    observer, counts, before = observer or Observer(), tuple(threads) or (torch.get_num_threads(),), torch.get_num_threads()
    try:
        with tempfile.TemporaryDirectory() as folder, kept_memory():
            graph = graph_of(model)
            if graph is not None:
                ways, judging = _ways_of_graph(graph, model, data, engines, observer)
            else:
                ways, judging = _ways_of_model(model, data, Path(folder), engines, precisions, observer)
            rows = list(_rows(_wanted(ways, engines, precisions), judging, batch_sizes, counts, seconds, observer))
    finally:
        torch.set_num_threads(before)
    return {"model": str(model), "rows": rows, "recommended": _recommended(rows, lambda row: judging.holds(row, max_drop))}


def _wanted(ways: Sequence[Way], engines: Sequence[str], precisions: Sequence[str]) -> list[Way]:
    """Return the ways that the user requested; raises `ConfigError` if there are none."""
    wanted = [way for way in ways if not _left_out(way.engine, {way.precision}, engines, precisions)]
    if not wanted:
        without = "int8" in precisions and all(way.precision != "int8" for way in ways)
        hint = "give --data: int8 needs images for calibration" if without else "leave one of them out"
        raise ConfigError("nothing is left to measure", where="--engines, --precisions", hint=hint)
    return wanted


def _ways_of_graph(
    graph: Path, model: str | Path, data: str | Path | None, engines: Sequence[str], observer: Observer
) -> tuple[list[Way], Any]:
    """Return the engines for an exported model, and the judge of their accuracy; None without data."""
    about = description_in(graph)
    row_of(about).module("predictor")  # a graph that predicts nothing is refused here
    ways = [Way(engine, about.precision, graph) for engine in RUNS[graph.suffix.lower()]]
    if data is None:
        observer.note(f"{WITHOUT}: give images with --data")
        return ways, None
    first = next((way for way in ways if way.engine in (engines or (way.engine,))), ways[0])
    predictor = first.open(torch.get_num_threads())
    return ways, task_row(predictor.task).module("export").judging(predictor, model, data, observer)


def _ways_of_model(
    model: str | Path,
    data: str | Path | None,
    folder: Path,
    engines: Sequence[str],
    precisions: Sequence[str],
    observer: Observer,
) -> tuple[list[Way], Any]:
    """Export a PyTorch model to a folder in all ways; return the ways, and the judge of their accuracy if there are images."""
    trained = open_model(model)
    judging = _judging(model, trained, data, observer)
    save_model(folder / "model", trained, card="")
    quick = quickest_precision(torch.device("cpu"))
    ways = [Way("torch", precision, folder / "model") for precision in dict.fromkeys(("fp32", quick))]
    for to in ("onnx", "openvino"):
        for precision in ("fp32", "int8"):
            wanted: set[str] = {precision, quick} if (to, precision) == ("openvino", "fp32") else {precision}
            if _left_out(ENGINE[to], wanted, engines, precisions) or (precision == "int8" and judging is None):
                continue
            observer.begin(f"exporting {ENGINE[to]} {precision}", 0)
            place = folder / f"{to}-{precision}"
            place.mkdir()
            about: Description = Description.of_model(trained, name_of(str(model)), precision)
            try:
                export_graph(trained, about, to, place, judging.calibration if judging else None)
            except VitrailError as error:
                observer.note(f"{ENGINE[to]} {precision} is left out: {error.what}")
                continue
            ways += [Way(ENGINE[to], one, cast(Path, graph_of(place))) for one in sorted(wanted, reverse=True)]
    return ways, judging


def _judging(model: str | Path, trained: TrainedModel, data: str | Path | None, observer: Observer) -> Any:
    """Return the judge of accuracy on the images in ``data``, by default the run's; None, with a note, if there are none."""
    try:
        judging = row_of(trained).module("export").judging(in_python(trained), model, data, observer)
    except (ConfigError, DataError) as error:
        if data is not None:
            raise
        observer.note(f"{WITHOUT}, and no int8: {error.what}; give images with --data")
        return None
    if data is None and judging is not None:
        observer.note("the images are the run's; give others with --data")
    return judging


def _left_out(engine: str, made: set[str], engines: Sequence[str], precisions: Sequence[str]) -> bool:
    """Return whether the user did not request this engine."""
    return bool(engines and engine not in engines) or bool(precisions and not made & set(precisions))


def _rows(
    ways: Sequence[Way],
    judging: Any,
    batch_sizes: Sequence[int],
    threads: Sequence[int],
    seconds: float,
    observer: Observer,
) -> Iterator[Row]:
    """Yield a row for every way, number of threads and batch size."""
    known: dict[str, Row] = {way.name: {} for way in ways}
    for number, count in enumerate(threads):
        opened = {way.name: way.open(count) for way in ways}
        shape = _shape(next(iter(opened.values())), max(batch_sizes))
        if number == 0:
            observer.begin("memory", len(ways))
            for way in ways:
                known[way.name]["memory_mb"] = _memory(way, count, shape)
                observer.advance(1)
            if judging is not None:
                for name, accuracy in judging.compared(opened):
                    known[name] |= accuracy
        for batch in batch_sizes:
            observer.begin(f"measuring speed, {batch} at a time, {count} threads", 0)
            pixels = torch.randint(0, 256, (batch, *shape[1:]), dtype=torch.uint8)
            for name, timing in timed({name: one.network for name, one in opened.items()}, pixels, seconds=seconds).items():
                engine, precision = name.split()
                yield {
                    "name": name, "engine": engine, "precision": precision, "batch": batch, "threads": count,
                    "images_per_second": timing.images_per_second, "latency_ms": timing.percentile(50),
                    "latency_p90_ms": timing.percentile(90), "latency_p99_ms": timing.percentile(99), **known[name],
                }  # fmt: skip


def _shape(one: Predictor, batch: int) -> tuple[int, int, int, int]:
    height, width = one.preparation.image_size
    return batch, one.preparation.channels, height, width


def _memory(way: Way, threads: int, shape: tuple[int, ...]) -> float:
    """Measure the peak memory of a model in a separate process, in MB, minus the memory of Vitrail and torch."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_measure_memory, args=(way, threads, shape, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        return float(ours.recv())
    except EOFError:
        raise VitrailError(f"{way.name} cannot compute {shape[0]} images at a time", where="--batch-sizes") from None
    finally:
        process.join()


def _measure_memory(way: Way, threads: int, shape: tuple[int, ...], results: Connection) -> None:
    before = peak_memory()
    way.open(threads).network(torch.zeros(shape, dtype=torch.uint8))
    results.send((peak_memory() - before) / 1e6)


def best_rows(rows: Sequence[Row]) -> list[Row]:
    """Return the fastest row of each way."""
    best: dict[str, Row] = {}
    for row in rows:
        if row["name"] not in best or row["images_per_second"] > best[row["name"]]["images_per_second"]:
            best[row["name"]] = row
    return list(best.values())


def _recommended(rows: Sequence[Row], holds: Callable[[Row], bool]) -> Row:
    """Return the fastest row that keeps the accuracy of the first row (the PyTorch model, unless it is left out).

    The validation images decide; the accuracy in the row is measured on other images.
    """
    first, *others = best = best_rows(rows)
    if "judged" in first:
        best = [first, *filter(holds, others)]
    chosen = max(best, key=lambda row: row["images_per_second"])
    return {**chosen, "times": chosen["images_per_second"] / first["images_per_second"], "beside": first["name"]}
