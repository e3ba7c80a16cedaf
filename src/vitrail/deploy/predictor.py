"""One road from an input to a prediction, in Python or behind an engine: preprocess, network, postprocess."""

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
"""Takes files with their predictions, one by one."""


class Prepared(NamedTuple):
    """An item as the network takes it."""

    rows: Sequence[Any]
    """One or several rows of input: pixels, uint8 (C, H, W), or the tokens of a piece of text."""
    context: Any = None
    """Anything that `Predictor.postprocess` needs to know of the item."""


class Predictor(ABC):
    """A model that only predicts. The network is for one thread at a time; `preprocess` is for any."""

    task: ClassVar[str]
    """A name of `vitrail.task_registry`."""
    name: str
    """Engine and precision: ``torch fp32``."""
    preparation: Any
    """Turns an item into input."""

    @property
    @abstractmethod
    def network(self) -> Callable[..., Any]:
        """The network: a batch of input to a batch of output, on the CPU."""

    @property
    def head(self) -> Row:
        """Names of the columns of `Answer.rows`."""
        raise NotImplementedError

    @abstractmethod
    def preprocess(self, source: Any) -> Prepared:
        """Decode, cut out or tokenize an item; raises `DataError` where that is not possible."""

    @abstractmethod
    def postprocess(self, outputs: Any, prepared: Sequence[Prepared]) -> list[Any]:
        """Return the prediction of each item, an `Answer`, from the outputs of all their rows: a sequence, or a tensor."""

    def compute(self, rows: Sequence[Any], batch_size: int) -> Any:
        """Return the output of each row, (C, H, W) each of one shape, so many rows at a time."""
        batches = torch.from_numpy(np.stack(rows)).split(batch_size)
        outputs = [self.network(batch) for batch in batches]
        return torch.cat(outputs) if len(outputs) > 1 else outputs[0]

    def size(self, source: Any) -> int:
        """Return how many rows an item counts for in a batch, before it is read."""
        return 1

    def predictions(self, prepared: Sequence[Prepared], batch_size: int) -> list[Any]:
        """Return the prediction of each item, with all rows of all items in common batches."""
        rows = [row for one in prepared for row in one.rows]
        return self.postprocess(self.compute(rows, batch_size) if rows else (), prepared)

    def configured(self, settings: Settings) -> Self:
        """Return the same predictor with the settings of its task, an instance of `SETTINGS` in the room's ``predictor``."""
        raise NotImplementedError

    def sources(self, files: Sequence[Path], note: Note) -> Sequence[Any]:
        """Return an item for each of some files, with what the settings say of it."""
        return files

    def sinks(self, files: Sequence[Path]) -> list[Sink]:
        """Return what the settings want to be written of the predictions of some files."""
        return []

    def finish(self, note: Note, group: Processes) -> None:  # noqa: B027
        """Report what became known of the items meanwhile; raises `DataError` where that is that none could be used."""


def predict_each(predictor: Predictor, sources: Iterable[Any], *, batch_size: int) -> Iterator[list[Any | DataError]]:
    """Return the predictions of items, batch by batch, with the error in place of one that cannot be read.

    A batch has items of not more than so many rows together, or one of more. Beside a GPU the next is read meanwhile.
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
    """Return the row of the task whose room predicts with a trained model, or of a predictor."""
    if (task := getattr(trained, "task", None)) is not None:
        return task_row(task)
    config = getattr(getattr(trained, "model", None), "config", None)  # somebody's own module has none
    return row_of_kind(getattr(config, "reads", "images"), getattr(config, "answer", "vector"))


def in_python(
    trained: Any, precision: Precision | None = None, device: torch.device | str = "cpu", *, prepacked: bool = True
) -> Any:
    """Return the predictor of a trained model as it is, with the products in a precision, fp32 by default.

    Prepacking its weights (``prepacked``) takes longer than it saves for a handful of images.

    Raises:
        ModelFileError: it predicts nothing: it gives vectors.
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
    """Return a trained model of images as a function of prepared pixels, uint8 (B, C, H, W), to float32 on the CPU.

    They have the model's own size, or ``any_size`` that it can take; see `in_python`.
    """
    model = in_evaluation_mode(trained.model, device)
    network: nn.Module = model.at_any_size() if any_size else model
    prepacked = prepacked and isinstance(model, Model)  # somebody's own module may know nothing of it
    if prepacked or precision not in (None, "fp32") or next(model.parameters()).dtype != torch.float32:
        network = for_inference(network, precision or "fp32")

    @torch.inference_mode()
    def run(pixels: Tensor) -> Tensor:
        output: Tensor = network(trained.preparation.normalize(pixels.to(device)))
        return output.float().cpu()

    return run


def require_finite(outputs: Tensor) -> Tensor:
    """Return the same outputs; raises `ModelFileError` where one of them is not finite."""
    if not outputs.isfinite().all():
        raise ModelFileError(
            "the model answers with values that are not finite", where="model", hint="its weights or its preparation are damaged"
        )
    return outputs
