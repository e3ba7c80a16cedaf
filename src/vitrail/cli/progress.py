"""Live progress on a terminal, plain lines elsewhere; always on stderr."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from vitrail.cli.console import interactive, note
from vitrail.runtime.console import stderr_console
from vitrail.runtime.observer import Observer


class StageProgress(Observer):
    """A progress bar for each pass over images; each one replaces the previous bar."""

    def __init__(self) -> None:
        self.bar = Progress(
            TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(), TextColumn("images"),
            console=stderr_console(), disable=not interactive(), transient=True, redirect_stdout=sys.stdout.isatty(),
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


class CountProgress(Observer):
    """A progress bar for a known number of images."""

    def __init__(self, bar: Progress, what: str):
        self.bar, self.task = bar, bar.add_task(what, total=None)

    def begin(self, what: str, images: int) -> None:
        self.bar.update(self.task, description=what, total=images)

    def advance(self, images: int) -> None:
        self.bar.advance(self.task, images)

    def note(self, text: str) -> None:
        note(text)


@contextmanager
def counting(what: str, things: str = "images") -> Iterator[CountProgress]:
    """Show a progress bar for a pass over images, or other items named by ``things``."""
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(), TextColumn(f"{things}, left"),
        TimeRemainingColumn(compact=True), console=stderr_console(), disable=not interactive(), transient=True,
        redirect_stdout=sys.stdout.isatty(),  # else rich would print results of a redirected stdout above the bar
    )  # fmt: skip
    with bar:
        yield CountProgress(bar, what)
