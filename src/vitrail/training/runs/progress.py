"""Progress of a run on a terminal, in plain lines, or in a notebook."""

import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column

from vitrail.runtime.console import stderr_console
from vitrail.runtime.notebook import in_notebook, table
from vitrail.runtime.observer import Observer, Row, Sums
from vitrail.runtime.terminal import escaped, interactive, note
from vitrail.tasks.metrics import described
from vitrail.training.loop.clock import shown_seconds

SHORT = {"images": "img", "tokens": "tok"}


@contextmanager
def watching(observer: Observer | None, progress: bool | None) -> Iterator[Observer]:
    """Yield the ``observer``, or by default one that shows the progress.

    With ``progress`` None it is shown on a terminal and in a notebook; with True always, with False never.
    """
    if observer is not None:
        yield observer
    elif progress is False or (progress is None and not in_notebook() and not interactive()):
        yield Observer()
    else:
        with NotebookProgress() if in_notebook() else TrainingProgress() as shown:
            yield shown


class _Shown(Observer, AbstractContextManager["_Shown"]):
    epochs = best = done = images = 0
    what = ""

    def __init__(self) -> None:
        self.began = time.monotonic()

    def start(self, epochs: int, steps: int, done: int) -> None:
        self.epochs, self.best, self.began = epochs, 0, time.monotonic()

    def begin(self, what: str, images: int) -> None:
        self.what, self.done, self.images = what, 0, images

    def advance(self, images: int) -> None:
        self.done += images
        self.update(f"{self.what}: {self.done:,} of {self.images:,}")

    def kept(self, epoch: int) -> None:
        self.best = epoch

    def update(self, text: str) -> None:
        """Show the progress of a pass other than training."""


class TrainingProgress(_Shown):
    """A progress bar over all steps with loss, accuracy, speed, elapsed and remaining time, and a line for every epoch.

    Both fit into 80 columns.
    """

    def __init__(self, begun: float | None = None) -> None:
        super().__init__()
        self.command_began = begun
        self.bar = Progress(
            TextColumn("epoch {task.fields[place]}", table_column=Column(no_wrap=True)),
            BarColumn(bar_width=6),
            TextColumn("{task.fields[numbers]}", table_column=Column(no_wrap=True)),
            TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(compact=True),
            console=stderr_console(), disable=not interactive(), redirect_stdout=sys.stdout.isatty(),
        )  # fmt: skip
        self.task = self.bar.add_task("", total=None, place="1/?", numbers="")

    def __exit__(self, *error: object) -> None:
        self.bar.stop()

    def start(self, epochs: int, steps: int, done: int) -> None:
        super().start(epochs, steps, done)
        epoch = min(epochs, 1 + done * epochs // max(1, steps))
        self.bar.reset(self.task, total=steps, completed=done, place=f"{epoch}/{epochs}", numbers="")
        self.bar.start()

    def step(self, epoch: int, sums: Sums) -> None:
        numbers = f"{described(sums.means)}  {sums.rate:,.0f} {SHORT[sums.unit]}/s"
        self.bar.update(self.task, advance=1, place=f"{epoch + 1}/{self.epochs}", numbers=numbers)

    def begin(self, what: str, images: int) -> None:
        super().begin(what, images)
        self.bar.start()

    def update(self, text: str) -> None:
        self.bar.update(self.task, numbers=text)

    def note(self, text: str) -> None:
        if interactive():
            self.bar.console.print(escaped(text), highlight=False, markup=False)
        else:
            note(text)

    def epoch(self, row: Row) -> None:
        place = f"{row['epoch']:>{len(str(self.epochs))}}/{self.epochs}"
        spent = shown_seconds(time.monotonic() - self.began) + "  kept" * (self.best == row["epoch"])
        self.note(f"epoch {place}  {described(row, 'train_')}  val {described(row, 'val_')}  {spent}")


class NotebookProgress(_Shown):
    """A table in a notebook's cell with a row for every epoch, and below it the progress of the current one."""

    SECONDS = 0.5
    """Seconds between two updates of the line below the table."""

    def __init__(self) -> None:
        from IPython.display import HTML, display

        super().__init__()
        self._html: Any = HTML
        self.rows, self.notes, self.now, self.drawn = list[tuple[str, ...]](), list[str](), "", 0.0
        self._cell: Any = display(HTML(""), display_id=True)

    def __exit__(self, *error: object) -> None:
        self._show("")

    def step(self, epoch: int, sums: Sums) -> None:
        self.update(f"epoch {epoch + 1}/{self.epochs}: {described(sums.means)}, {sums.rate:,.0f} {sums.unit}/s")

    def update(self, text: str) -> None:
        """Show a text, at most once every `SECONDS`."""
        if time.monotonic() - self.drawn >= self.SECONDS:
            self._show(text)

    def epoch(self, row: Row) -> None:
        number, kept = f"{row['epoch']}/{self.epochs}", "kept" if self.best == row["epoch"] else ""
        spent = shown_seconds(time.monotonic() - self.began)
        self.rows.append((number, described(row, "train_"), described(row, "val_"), spent, kept))
        self._show("")

    def note(self, text: str) -> None:
        self.notes.append(text)
        self._show(self.now)

    def _show(self, now: str) -> None:
        self.now, self.drawn = now, time.monotonic()
        head = ("epoch", "training", "validation", "time", "")
        self._cell.update(self._html(table("\n".join(self.notes), self.rows, head=head if self.rows else (), below=now)))
