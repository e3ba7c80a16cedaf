"""Metrics for an experiment tracker; off by default. Each library is imported when it is needed."""

import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vitrail.config.settings import TrackerKind
from vitrail.errors import ConfigError
from vitrail.files import read_text, write_text
from vitrail.training.runs.resuming import flat

PROJECT = "vitrail"
"""Name of the project in W&B, and of the experiment in MLflow."""


class Tracker:
    """Gets the metrics of every epoch; this one does nothing with them."""

    def __init__(self, *run: Any):
        """Start the library for a run: its folder, the epochs done before, and its settings."""

    @staticmethod
    def library() -> Any:
        """Import the library and return what is used of it."""

    def __call__(self, row: Mapping[str, Any]) -> None:
        """Take the metrics of an epoch."""

    def close(self) -> None:
        """End: no epoch follows in this process."""


class TensorBoard(Tracker):
    """Event files below the run folder; epochs that a resumed run makes again replace the earlier ones."""

    def __init__(self, folder: Path, epochs_done: int, settings: Mapping[str, Any]):
        self.writer = self.library()(str(folder / "tensorboard"), purge_step=epochs_done + 1)

    @staticmethod
    def library() -> Any:
        from torch.utils.tensorboard import SummaryWriter

        return SummaryWriter

    def __call__(self, row: Mapping[str, Any]) -> None:
        for name, value in _named(row).items():
            self.writer.add_scalar(name, value, row["epoch"])
        self.writer.flush()

    def close(self) -> None:
        self.writer.close()


class WandB(Tracker):
    """W&B, offline unless ``WANDB_MODE`` says otherwise; of epochs that a resumed run makes again it keeps the first."""

    def __init__(self, folder: Path, epochs_done: int, settings: Mapping[str, Any]):
        mode, number = os.environ.get("WANDB_MODE", "offline"), _saved_id(folder / "wandb", lambda: secrets.token_hex(4))
        self.run = self.library().init(
            project=PROJECT, name=folder.name, id=number, dir=str(folder), mode=mode, resume="allow", config=dict(settings)
        )

    @staticmethod
    def library() -> Any:
        if os.environ.get("WANDB_MODE", "offline") == "offline":
            os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # read on import: it would report its own errors
        import wandb

        return wandb

    def __call__(self, row: Mapping[str, Any]) -> None:
        self.run.log(_named(row), step=row["epoch"])

    def close(self) -> None:
        self.run.finish()


class MLflow(Tracker):
    """A database below the run folder, or the server in ``MLFLOW_TRACKING_URI``; epochs made again stand beside the others."""

    def __init__(self, folder: Path, epochs_done: int, settings: Mapping[str, Any]):
        place = folder.resolve() / "mlflow"
        place.mkdir(exist_ok=True)
        self.client = self.library()(tracking_uri=os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{place / 'mlflow.db'}")

        def begin() -> str:
            known = self.client.get_experiment_by_name(PROJECT)
            experiment = known.experiment_id if known else self.client.create_experiment(PROJECT)
            number = self.client.create_run(experiment, run_name=folder.name).info.run_id
            for name, value in flat(settings).items():
                if value is not None:
                    self.client.log_param(number, name, value)
            return str(number)

        self.run = _saved_id(place, begin)

    @staticmethod
    def library() -> Any:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # read on import: it would tell its makers of every run
        from mlflow import MlflowClient

        return MlflowClient

    def __call__(self, row: Mapping[str, Any]) -> None:
        for name, value in _named(row).items():
            self.client.log_metric(self.run, name, float(value), step=row["epoch"])

    def close(self) -> None:
        self.client.set_terminated(self.run)


KINDS: dict[TrackerKind, type[Tracker]] = {"none": Tracker, "tensorboard": TensorBoard, "wandb": WandB, "mlflow": MLflow}


def open_tracker(kind: TrackerKind, folder: Path, *, epochs_done: int, settings: Mapping[str, Any] | None = None) -> Tracker:
    """Return a tracker that writes below the run folder and sends nothing anywhere by itself.

    Raises:
        ConfigError: the library is not installed, or does not start.
    """
    with _explained(kind):
        return KINDS[kind](folder, epochs_done, settings or {})


def require_tracker(kind: TrackerKind) -> None:
    """Raise `ConfigError` where a tracker's library is not installed."""
    with _explained(kind):
        KINDS[kind].library()


@contextmanager
def _explained(kind: TrackerKind) -> Iterator[None]:
    """Turn a library's error, each of which has its own kinds, into a `ConfigError`."""
    try:
        yield
    except ImportError:
        extra = "track" if kind == "tensorboard" else kind
        raise ConfigError(f"{kind} is not installed", where="training.track", hint=f"pip install 'vitrail[{extra}]'") from None
    except Exception as error:  # a server that is not there, a login that is missing
        hint = "look at its settings, or leave --track out"
        raise ConfigError(f"{kind} does not start: {error}", where="training.track", hint=hint) from error


def _named(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metrics of an epoch with training and validation side by side: ``loss/train`` and ``loss/val``."""
    names = {name: name.partition("_")[::2] if name.startswith(("train_", "val_")) else ("", name) for name in row}
    return {f"{metric}/{split}" if split else metric: row[name] for name, (split, metric) in names.items() if name != "epoch"}


def _saved_id(folder: Path, begin: Callable[[], str]) -> str:
    """Return the id that a run has with a tracker, and a resumed run goes on with."""
    file = folder / "run-id"
    if not file.is_file():
        number = begin()
        folder.mkdir(exist_ok=True)
        write_text(file, number)
    return read_text(file)
