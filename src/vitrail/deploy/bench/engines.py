"""Engines that run a graph: ONNX Runtime and OpenVINO."""

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vitrail.deploy.bench.libraries import onnxruntime, openvino
from vitrail.deploy.bench.measure import timed
from vitrail.deploy.export.artefact import RUNS, Description, ExportPrecision
from vitrail.deploy.export.graph_files import description_in
from vitrail.deploy.predictor import Predictor
from vitrail.deploy.problems import first_line
from vitrail.errors import ConfigError, ModelFileError, unknown
from vitrail.models.inference import quickest_precision

PIECES = 4
"""Most pieces of a batch that are computed in parallel."""
Session = Callable[..., np.ndarray]
"""A function from the graph's inputs in their order, images (B, C, H, W) first, to its output; for one thread at a time."""


def openvino_session(graph: Any, precision: str, threads: int) -> Session:
    """Open a graph, or its file, in OpenVINO, with matrix products in ``precision`` if the CPU supports it.

    In an int8 graph, the other products use the CPU's fastest float type. Small batches use all threads. Large batches are split
    into pieces that run in parallel, as threads that wait for each other at every operation lose 10 to 25 % of their time.
    """
    hints = {"fp32": "f32", "bf16": "bf16", "fp16": "f32"}
    hint = hints.get(precision) or hints[quickest_precision(torch.device("cpu"))]
    core, pieces = openvino().Core(), min(threads, PIECES)

    def compiled(streams: int) -> Any:
        options = {
            "INFERENCE_PRECISION_HINT": hint,
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": streams,
            "ENABLE_CPU_PINNING": False,
        }
        with ThreadPoolExecutor(1) as elsewhere:
            # Compiling moves the signal stack of its thread into memory that is freed with the model. If two models are freed in
            # the order of their creation, the second restores the first one's freed stack, and Ctrl-C would crash. So another
            # thread compiles.
            return elsewhere.submit(core.compile_model, graph, "CPU", options).result()

    whole = compiled(1)

    @cache
    def requests() -> list[Any]:
        several = compiled(pieces)
        return [several.create_infer_request() for _ in range(pieces)]

    def run(*inputs: np.ndarray) -> np.ndarray:
        if pieces == 1 or len(inputs[0]) < 2 * pieces:
            return np.array(whole(inputs)[0])  # a copy: the next call reuses the memory
        parts = zip(*(np.array_split(given, pieces) for given in inputs), strict=True)
        for request, part in zip(requests(), parts, strict=True):
            request.start_async(list(part))
        for request in requests():
            request.wait()
        return np.concatenate([request.get_output_tensor().data for request in requests()])

    return run


def onnxruntime_session(file: Path, precision: str, threads: int) -> Session:
    """Open the file of a graph in ONNX Runtime, which always computes in the graph's own precision."""
    library = onnxruntime()
    options = library.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    session = library.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    names = [given.name for given in session.get_inputs()]
    return lambda *inputs: session.run(None, dict(zip(names, inputs, strict=True)))[0]


ENGINES: dict[str, Callable[[Any, str, int], Session]] = {
    "onnxruntime": onnxruntime_session,
    "openvino": openvino_session,
}
TRIED = 8
"""Batch size for the comparison of engines."""


def open_graph(graph: Path, engine: str, *, precision: ExportPrecision | None = None, threads: int | None = None) -> Any:
    """Return a predictor that runs an exported graph in an engine, or for a task without predictors a model that does.

    Args:
        graph: the file.
        engine: one of `ENGINES`.
        precision: precision of OpenVINO's matrix products for a float graph; by default the graph's own.
        threads: number of threads; by default torch's.

    Raises:
        ModelFileError: the graph cannot be read or run.
        ConfigError: the engine does not exist, does not read such graphs, or is not installed.
    """
    if engine not in ENGINES:
        raise unknown("engine", engine, list(ENGINES), where="--engine")
    if engine not in RUNS[graph.suffix.lower()]:
        hint = f"use {' or '.join(RUNS[graph.suffix.lower()])}, or export the model to onnx"
        raise ConfigError(f"{engine} does not read {graph.suffix} files", where="--engine", hint=hint)
    return _opened(graph, engine, description_in(graph), precision, threads)


def _opened(
    graph: Path, engine: str, about: Description, precision: ExportPrecision | None = None, threads: int | None = None
) -> Any:
    """Return the result of `open_graph` for a graph whose description has been read already."""
    made = precision or about.precision

    def refused(error: Exception) -> ModelFileError:
        what = f"{engine} cannot run {graph.name}: {first_line(error)}"
        return ModelFileError(what, where=graph, hint="export the model again, or use another --engine")

    try:
        session = ENGINES[engine](graph, made, threads or torch.get_num_threads())
    except ConfigError:
        raise
    except Exception as error:
        raise refused(error) from error

    def asked(*inputs: np.ndarray) -> np.ndarray:
        try:
            return session(*inputs)
        except MemoryError:
            raise
        except Exception as error:  # some errors of a graph appear only when it runs
            raise refused(error) from error

    return as_predictor(asked, about, f"{engine} {made}")


def as_predictor(session: Session, about: Description, name: str) -> Any:
    """Return a predictor, or a model, that runs a session, with the description of its graph."""
    return about.predictor(about.network(session), name)


def quickest(graph: Path, *, measure: bool = True) -> Any:
    """Return the result of `open_graph` in the fastest installed engine, which is reported on stderr.

    Args:
        graph: the file.
        measure: whether to measure predictors in each engine; otherwise the default engine is used.

    Raises:
        ModelFileError: no engine can run the graph.
        ConfigError: no engine for it is installed.
    """
    found, why, about = [], None, description_in(graph)
    for engine in RUNS[graph.suffix.lower()]:
        try:
            found.append(_opened(graph, engine, about))
        except ConfigError as error:  # not installed; a graph that one engine refuses is not tried in another
            why = why or error
        if found and not (measure and isinstance(found[0], Predictor)):
            break
    if not found:
        raise why or ModelFileError("no engine reads the graph", where=graph)
    if len(found) == 1:
        return found[0]
    pixels = torch.randint(0, 256, (TRIED, about.preparation.channels, *about.preparation.image_size), dtype=torch.uint8)
    rates = {name: t.images_per_second for name, t in timed({f.name: f.network for f in found}, pixels, seconds=0.3).items()}
    best = max(found, key=lambda one: rates[one.name])
    sys.stderr.write(f"engine: {best.name} ({', '.join(f'{name} {rate:.0f} images/s' for name, rate in rates.items())})\n")
    return best
