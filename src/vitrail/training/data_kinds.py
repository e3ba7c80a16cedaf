"""What a run does with its kind of data: images, sentences with their translations, people in images, or captions."""

from pathlib import Path
from typing import Any, Protocol

from vitrail.config.settings import RunSettings
from vitrail.runtime.observer import Observer
from vitrail.runtime.processes import Processes
from vitrail.task_registry import task_row
from vitrail.training import images
from vitrail.training.runs.run_folder import RunFolder


class Inputs(Protocol):
    """The functions of a module for one kind of data."""

    def open_start(self, reference: str) -> Any:
        """The trained model behind a MODEL, to start from."""

    def open_source(self, settings: RunSettings, *, run: RunFolder | None = None, start: Any = None) -> Any:
        """The data of a new run, or as a ``run`` that goes on has it."""

    def complete(self, settings: RunSettings, source: Any, start: Any) -> RunSettings:
        """The settings with what the data decides, and with paths that hold wherever one stands."""

    def check(self, source: Any, settings: RunSettings, observer: Observer, group: Processes) -> dict[str, str]:
        """Look at every item before the first step: those that are left out, by name, with the reason."""

    def used(self, source: Any, bad: Any, settings: RunSettings) -> Any:
        """The data without some items, and with the share of the training split that the settings ask for."""

    def advice(self, settings: RunSettings, source: Any) -> str | None:
        """A line of what one could do better."""

    def warnings(self, settings: RunSettings, source: Any) -> list[str]:
        """What is suspicious about the data."""

    def files(self, source: Any) -> dict[str, bytes]:
        """What of the data a run keeps, by the names of files."""

    def preparation_of(self, settings: RunSettings, source: Any) -> Any:
        """What makes the model's input of an item."""

    def start_model(self, settings: RunSettings, start: Any, source: Any) -> Any:
        """The model that the run begins with."""

    def card(self, settings: RunSettings, source: Any) -> dict[str, Any]:
        """What a model card says of the data."""

    def load(self, folder: Path) -> Any:
        """The trained model of a folder."""


def inputs_for(task: str) -> Inputs:
    """The functions for the data of a task."""
    row = task_row(task)
    module: Inputs = images if row.items == "images" else row.module("data")
    return module


def inputs_of(settings: RunSettings) -> Inputs:
    """The functions for the data of a run."""
    return inputs_for(settings.task.name)
