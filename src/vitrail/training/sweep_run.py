"""One run of a sweep."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from vitrail.config.run_files import is_run
from vitrail.errors import DivergedError
from vitrail.runtime.observer import Observer

Train = Callable[..., object]
"""`vitrail.train`, or `vitrail.resume`."""


class SweepRun(NamedTuple):
    """A run of a sweep: its folder, and the keyword arguments of `vitrail.train`."""

    folder: Path
    arguments: dict[str, Any]

    def train(self, train: Train, resume: Train, observer: Observer) -> DivergedError | None:
        """Train the run, or resume it if it was interrupted; return the error if it diverged."""
        try:
            if is_run(self.folder):
                resume(self.folder, observer=observer)
            else:
                train(out=self.folder, observer=observer, **self.arguments)
        except DivergedError as error:
            return error
        return None
