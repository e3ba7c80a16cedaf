"""One run of a sweep."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from vitrail.config.run_files import is_run
from vitrail.errors import DivergedError
from vitrail.runtime.observer import Observer
from vitrail.training.runs.run_folder import RunFolder

Train = Callable[..., object]
"""`vitrail.train`, or `vitrail.resume`."""


class SweepRun(NamedTuple):
    """A run of a sweep: its folder, and the keyword arguments of `vitrail.train`."""

    folder: Path
    arguments: dict[str, Any]

    @property
    def is_finished(self) -> bool:
        """Return whether the folder has a run that is finished."""
        return is_run(self.folder) and RunFolder.open(self.folder).standing["state"] == "finished"

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
