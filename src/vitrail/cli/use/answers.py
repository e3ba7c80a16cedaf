"""Predictions as they come: on stdout, and in the files that a command was asked for."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self, TypeVar

from vitrail.cli.console import abandon_closed_streams, print_unreadable
from vitrail.errors import DataError, VitrailError
from vitrail.runtime.terminal import is_first

T = TypeVar("T")
Add = Callable[..., None]


class Answers:
    """Sends each prediction to stdout and to files; where one of them fails, the others go on.

    The error of a file is raised at the end. A pipe that is closed (``| head``) is an error only where there are no files: then
    nobody needs the rest. If the command itself ends before its time, each file stays as far as it is, under a name that says so.
    """

    def __init__(self) -> None:
        self._sinks: list[tuple[AbstractContextManager[Any], Add]] = []
        self._failures: list[Exception] = []

    def to(self, sink: AbstractContextManager[Callable[[T], None]], values: Callable[..., Iterable[T]]) -> None:
        """Add a sink, which takes values one by one, and the function that makes values of a prediction.

        Of several processes the first alone writes.
        """
        if not is_first():
            return
        write = sink.__enter__()

        def add(*prediction: Any) -> None:
            for value in values(*prediction):
                write(value)

        self._sinks.append((sink, add))

    def add(self, *prediction: Any) -> None:
        """Send a prediction, perhaps with what it belongs to, to every sink."""
        for sink, add in list(self._sinks):
            try:
                add(*prediction)
            except (OSError, VitrailError) as error:
                self._sinks.remove((sink, add))
                self._failures.append(_close(sink, error))
        if self._failures and not self._sinks:
            raise self._failures[0]

    def add_each(
        self, sources: Iterable[Any], batches: Iterable[Sequence[Any]], on_batch: Callable[[int], None]
    ) -> list[DataError]:
        """Send each source with its prediction, batch by batch; returns the errors that stand in place of predictions.

        Where something ends it early, these are printed.
        """
        left, unreadable = iter(sources), list[DataError]()
        try:
            for predictions in batches:
                for prediction in predictions:
                    source = next(left)
                    if isinstance(prediction, DataError):
                        unreadable.append(prediction)
                    else:
                        self.add(source, prediction)
                on_batch(len(predictions))
        except BaseException as error:
            if not isinstance(error, BrokenPipeError):
                print_unreadable(unreadable)
            raise
        return unreadable

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        ends = [_close(sink, error) for sink, _ in self._sinks]
        if error is None:
            failures = [*self._failures, *filter(None, ends)]
            for failure in failures:
                if not (isinstance(failure, BrokenPipeError) and None in ends):
                    raise failure


def _close(sink: AbstractContextManager[Any], error: Any) -> Any:
    """End a sink that has all predictions, or that an error ends; returns the error."""
    try:
        sink.__exit__(None if error is None else type(error), error, None)
    except Exception as own:
        error = own
    if isinstance(error, BrokenPipeError):
        abandon_closed_streams()
    return error
