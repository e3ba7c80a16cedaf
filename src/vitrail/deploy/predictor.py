"""The base of all predictors, in PyTorch or in an engine: preprocess, network, postprocess."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn

from vitrail.data.loading.prefetch import read_ahead
from vitrail.errors import DataError, ModelFileError
from vitrail.models.base import Model
from vitrail.models.inference import for_inference, in_evaluation_mode
from vitrail.runtime.device import Precision
from vitrail.runtime.observer import Note
from vitrail.runtime.processes import Processes
from vitrail.settings import Settings
from vitrail.task_registry import TaskRow, row_of_kind, task_row
from vitrail.tasks.answer_table import Row
from vitrail.weights.model_folder.folder import TrainedModel

Sink = AbstractContextManager[Callable[[tuple[Path, Any]], None]]
"""A context manager with a function that is called with each file and its prediction."""


class Prepared(NamedTuple):
    """A preprocessed item."""

    rows: Sequence[Any]
    """One or several inputs of the network: pixels, uint8 (C, H, W), or the tokens of a piece of text."""
    context: Any = None
    """Data that `Predictor.postprocess` needs for this item."""


class Predictor(ABC):
    """A model for prediction only. One thread at a time may run the network; `preprocess` is thread-safe."""

    task: ClassVar[str]
    """A name of `vitrail.task_registry`."""
    name: str
    """Engine and precision, such as ``torch fp32``."""
    preparation: Any
    """Converts an item to the network's input."""

    @property
    @abstractmethod
    def network(self) -> Callable[..., Any]:
        """The network: a function from a batch of inputs to a batch of outputs, both on the CPU."""

    @property
    def head(self) -> Row:
        """Column names of `Answer.rows`."""
        raise NotImplementedError

    @abstractmethod
    def preprocess(self, source: Any) -> Prepared:
        """Decode, crop or tokenize an item; raises `DataError` if it cannot be read."""

    @abstractmethod
    def postprocess(self, outputs: Any, prepared: Sequence[Prepared]) -> list[Any]:
        """Return the prediction of each item, an `Answer`; ``outputs`` (a sequence or tensor) are those of all items' rows."""

    def compute(self, rows: Sequence[Any], batch_size: int) -> Any:
        """Return the network's output for rows (C, H, W) of equal shape, computed in batches of ``batch_size``."""
        batches = torch.from_numpy(np.stack(rows)).split(batch_size)
        outputs = [self.network(batch) for batch in batches]
        return torch.cat(outputs) if len(outputs) > 1 else outputs[0]

    def size(self, source: Any) -> int:
        """Return how many rows an item will have in a batch; it is not read yet."""
        return 1

    def predictions(self, prepared: Sequence[Prepared], batch_size: int) -> list[Any]:
        """Return the prediction of each item; the rows of all items are batched together."""
        rows = [row for one in prepared for row in one.rows]
        return self.postprocess(self.compute(rows, batch_size) if rows else (), prepared)

    def configured(self, settings: Settings) -> Self:
        """Return this predictor with the settings of its task, an instance of ``SETTINGS`` in the task's ``predictor`` module."""
        raise NotImplementedError

    def sources(self, files: Sequence[Path], note: Note) -> Sequence[Any]:
        """Return the item of each file; the settings may add data, such as boxes."""
        return files

    def sinks(self, files: Sequence[Path]) -> list[Sink]:
        """Return sinks that write the predictions of these files as the settings request."""
        return []

    def finish(self, note: Note, group: Processes) -> None:  # noqa: B027
        """Report, after the last item, what was found in the items; raises `DataError` if no item could be used."""


def predict_each(predictor: Predictor, sources: Iterable[Any], *, batch_size: int) -> Iterator[list[Any | DataError]]:
    """Yield the predictions of items batch by batch; an item that cannot be read yields its error.

    A batch has at most ``batch_size`` rows, unless a single item has more. With a GPU, the next batch is read during the
    computation.
    """
    for items in read_ahead(predictor.preprocess, _batches(predictor, sources, batch_size)):
        readable = [item for item in items if isinstance(item, Prepared)]
        found = iter(predictor.predictions(readable, batch_size) if readable else ())
        yield [next(found) if isinstance(item, Prepared) else item for item in items]


def _batches(predictor: Predictor, sources: Iterable[Any], most: int) -> Iterator[list[Any]]:
    batch, rows = list[Any](), 0
    for source in sources:
        size = predictor.size(source)
        if batch and rows + size > most:
            yield batch
            batch, rows = [], 0
        batch.append(source)
        rows += size
    if batch:
        yield batch


def row_of(trained: Any) -> TaskRow:
    """Return the task-registry row of a trained model or a predictor."""
    if (task := getattr(trained, "task", None)) is not None:
        return task_row(task)
    config = getattr(getattr(trained, "model", None), "config", None)  # a user's own module has none
    return row_of_kind(getattr(config, "reads", "images"), getattr(config, "answer", "vector"))


def in_python(
    trained: Any, precision: Precision | None = None, device: torch.device | str = "cpu", *, prepacked: bool = True
) -> Any:
    """Return a predictor that runs a trained model in PyTorch, with matrix products in ``precision``, fp32 by default.

    ``prepacked`` prepacks the weights, which for a few images takes longer than it saves.

    Raises:
        ModelFileError: the model has no predictions, only feature vectors.
    """
    return row_of(trained).module("predictor").in_python(trained, precision, device, prepacked=prepacked)


def network_of(
    trained: TrainedModel,
    precision: Precision | None = None,
    device: torch.device | str = "cpu",
    *,
    prepacked: bool = True,
    any_size: bool = False,
) -> Callable[[Tensor], Tensor]:
    """Return an image model as a function from prepared pixels, uint8 (B, C, H, W), to outputs, float32, on the CPU.

    With ``any_size`` the images may have any size that the model can take. For the other arguments see `in_python`.
    """
    model = in_evaluation_mode(trained.model, device)
    network: nn.Module = model.at_any_size() if any_size else model
    prepacked = prepacked and isinstance(model, Model)  # a user's own module may not support it
    if prepacked or precision not in (None, "fp32") or next(model.parameters()).dtype != torch.float32:
        network = for_inference(network, precision or "fp32")

    @torch.inference_mode()
    def run(pixels: Tensor) -> Tensor:
        output: Tensor = network(trained.preparation.normalize(pixels.to(device)))
        return output.float().cpu()

    return run


def require_finite(outputs: Tensor) -> Tensor:
    """Return the outputs; raises `ModelFileError` if a value is not finite."""
    if not outputs.isfinite().all():
        raise ModelFileError(
            "the model's output has values that are not finite", where="model", hint="its weights or its preparation are damaged"
        )
    return outputs
