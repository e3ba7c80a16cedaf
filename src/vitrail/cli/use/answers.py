"""Writing of predictions as they are computed: to stdout, and to the files that a command writes."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from vitrail.cli.console import abandon_closed_streams, note, print_unreadable, printed, report_unreadable
from vitrail.errors import DataError, VitrailError
from vitrail.runtime.terminal import is_first, one_line

if TYPE_CHECKING:
    from vitrail.deploy.predictor import Predictor
    from vitrail.runtime.processes import Processes

T = TypeVar("T")
Add = Callable[..., None]


class Answers:
    """A distributor of predictions to sinks: stdout and files. If one sink fails, the others continue.

    The error of a file is raised at the end. A closed pipe (``| head``) ends the command only if there are no files. If the
    command itself is interrupted, each file keeps the predictions so far, under the name `partial_of`.
    """

    def __init__(self) -> None:
        self._sinks: list[tuple[AbstractContextManager[Any], Add]] = []
        self._failures: list[Exception] = []

    def to(self, sink: AbstractContextManager[Callable[[T], None]], values: Callable[..., Iterable[T]]) -> None:
        """Add a sink, a context with a function that writes one value; ``values`` converts a prediction to values.

        Of several processes only the first writes.
        """
        if not is_first():
            return
        write = sink.__enter__()

        def add(*prediction: Any) -> None:
            for value in values(*prediction):
                write(value)

        self._sinks.append((sink, add))

    def add(self, *prediction: Any) -> None:
        """Send a prediction, usually with its source, to every sink."""
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
        """Send each source with its prediction, batch by batch; return the errors of unreadable sources.

        If an exception ends this early, these errors are printed first.
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
    """Close a sink, with the ``error`` that ended it or None; return the final error or None."""
    try:
        sink.__exit__(None if error is None else type(error), error, None)
    except Exception as own:
        error = own
    if isinstance(error, BrokenPipeError):
        abandon_closed_streams()
    return error


def write_predictions(
    predictor: "Predictor",
    files: Sequence[Path],
    sources: Sequence[Any],
    *,
    what: str,
    batch_size: int,
    table: Path | None,
    json: bool,
    group: "Processes",
) -> None:
    """Predict files, and write each prediction as soon as it is computed; exit with code 3 if files cannot be read.

    Args:
        predictor: the predictor, configured with the options of its task.
        files: the files, whose names are written with the predictions.
        sources: the inputs of the predictor for these files; see `Predictor.sources`.
        what: the label of the progress bar.
        batch_size: the predictor's batch size.
        table: a CSV file to write; None for none.
        json: whether stdout gets a JSON document instead of lines.
        group: the processes that share the work.
    """
    from vitrail.cli.progress import counting
    from vitrail.deploy import predictor as road
    from vitrail.tasks.answer_table import growing_table

    def entries(file: Path, answer: Any) -> Any:
        return answer.entries(str(file)) if json else [f"{one_line(file)}: {line}" for line in answer.lines()]

    with counting(what) as progress, Answers() as answers:
        answers.to(printed(json=json), entries)
        if table is not None:
            rows = growing_table(table, ["image", *predictor.head])
            answers.to(rows, lambda file, answer: [[str(file), *row] for row in answer.rows()])
        for sink in predictor.sinks(files):
            answers.to(sink, lambda *answered: [answered])
        progress.begin(what, len(files))
        batches = road.predict_each(predictor, group.dealt(sources), batch_size=batch_size)
        unreadable = answers.add_each(files, group.in_order(batches), progress.advance)
        predictor.finish(note, group)
    report_unreadable(unreadable)


def require_free_outputs(table: Path | None, *, growing: bool = True, **folders: Path | None) -> None:
    """Raise `ConfigError` for a table or folder that exists or cannot be created, and for a table inside one of the folders.

    Args:
        table: the file of ``--csv``.
        growing: whether the outputs have the name `partial_of` until they are complete.
        folders: the output folders, by the names of their flags.
    """
    from vitrail.runtime.output import require_free, require_free_file, require_outside

    if table is not None:
        require_free_file(table, where="--csv", growing=growing)
    for name, folder in folders.items():
        if folder is not None:
            require_free(folder, where=f"--{name.replace('_', '-')}", growing=growing)
    for folder in folders.values():
        if table is not None and folder is not None:
            require_outside(table, folder, where="--csv")
