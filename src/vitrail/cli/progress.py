"""Live progress on a terminal, plain lines elsewhere; always on stderr."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column

from vitrail.cli.console import interactive, note
from vitrail.runtime.observer import Observer, Row, Sums
from vitrail.tasks.metrics import described


class TrainingProgress(Observer):
    """A bar over all steps with loss, accuracy, images per second, the time so far and that left; a line for every epoch.

    Both fit into 80 columns.
    """

    def __init__(self) -> None:
        self.epochs, self.best, self.began = 0, 0, time.monotonic()
        self.bar = Progress(
            TextColumn("epoch {task.fields[place]}", table_column=Column(no_wrap=True)),
            BarColumn(bar_width=6),
            TextColumn("{task.fields[numbers]}", table_column=Column(no_wrap=True)),
            TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(compact=True),
            console=Console(stderr=True), disable=not interactive(),
        )  # fmt: skip
        self.task = self.bar.add_task("", total=None, place="1/?", numbers="")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.bar.stop()

    def start(self, epochs: int, steps: int, done: int) -> None:
        self.epochs, self.best, self.began = epochs, 0, time.monotonic()
        epoch = min(epochs, 1 + done * epochs // max(1, steps))
        self.bar.reset(self.task, total=steps, completed=done, place=f"{epoch}/{epochs}", numbers="")
        self.bar.start()

    def step(self, epoch: int, sums: Sums) -> None:
        means = sums.means
        numbers = f"{described(means)}  {means['images_per_second']:,.0f} img/s"
        self.bar.update(self.task, advance=1, place=f"{epoch + 1}/{self.epochs}", numbers=numbers)

    def begin(self, what: str, images: int) -> None:
        self.what, self.done, self.images = what, 0, images
        self.bar.start()

    def advance(self, images: int) -> None:
        self.done += images
        self.bar.update(self.task, numbers=f"{self.what}: {self.done:,} of {self.images:,}")

    def note(self, text: str) -> None:
        if interactive():
            self.bar.console.print(text, highlight=False, markup=False)
        else:
            note(text)

    def kept(self, epoch: int) -> None:
        self.best = epoch

    def epoch(self, row: Row) -> None:
        place = f"{row['epoch']:>{len(str(self.epochs))}}/{self.epochs}"
        numbers = f"{described(row, 'train_')}  val {described(row, 'val_')}"
        self.note(f"epoch {place}  {numbers}  {_spent(time.monotonic() - self.began)}" + "  kept" * (self.best == row["epoch"]))


def _spent(seconds: float) -> str:
    """``4:05`` minutes, or ``1h23m``."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02}" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02}m"


class StageProgress(Observer):
    """A bar for every pass over images, one after another in the same place."""

    def __init__(self) -> None:
        self.bar = Progress(
            TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(), TextColumn("images"),
            console=Console(stderr=True), disable=not interactive(), transient=True,
        )  # fmt: skip
        self.task = self.bar.add_task("", total=None)

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.bar.stop()

    def begin(self, what: str, images: int) -> None:
        self.bar.reset(self.task, description=what, total=images)

    def advance(self, images: int) -> None:
        self.bar.advance(self.task, images)

    def note(self, text: str) -> None:
        note(text)


class CountProgress:
    """A bar over a known number of images."""

    def __init__(self, bar: Progress, what: str):
        self.bar, self.task = bar, bar.add_task(what, total=None)

    def start(self, total: int) -> None:
        """There are ``total`` images."""
        self.bar.update(self.task, total=total)

    def advance(self, count: int) -> None:
        """``count`` more are done."""
        self.bar.advance(self.task, count)


@contextmanager
def counting(what: str, things: str = "images") -> Iterator[CountProgress]:
    """Show how far a pass over images, or other things, is."""
    bar = Progress(
        TextColumn(what), BarColumn(bar_width=24), MofNCompleteColumn(), TextColumn(f"{things}, left"),
        TimeRemainingColumn(compact=True), console=Console(stderr=True), disable=not interactive(), transient=True,
    )  # fmt: skip
    with bar:
        yield CountProgress(bar, what)
