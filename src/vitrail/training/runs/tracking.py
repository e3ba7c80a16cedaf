"""Metrics for experiment trackers; off by default. A tracker's library is imported only when it is used."""

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
    """A tracker receives the metrics of every epoch; this base class ignores them."""

    def __init__(self, *run: Any):
        """Start the library for a run: its folder, the number of finished epochs, and its settings."""

    @staticmethod
    def library() -> Any:
        """Import the library, and return the class or module that is used."""

    def __call__(self, row: Mapping[str, Any]) -> None:
        """Record the metrics of an epoch."""

    def close(self) -> None:
        """Close the tracker after the last epoch of this process."""


class TensorBoard(Tracker):
    """Event files in the run folder; epochs that a resumed run repeats replace the earlier ones."""

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
    """W&B, offline unless ``WANDB_MODE`` is set; if a resumed run repeats epochs, the first values stay."""

    def __init__(self, folder: Path, epochs_done: int, settings: Mapping[str, Any]):
        mode, number = os.environ.get("WANDB_MODE", "offline"), _saved_id(folder / "wandb", lambda: secrets.token_hex(4))
        self.run = self.library().init(
            project=PROJECT, name=folder.name, id=number, dir=str(folder), mode=mode, resume="allow", config=dict(settings)
        )

    @staticmethod
    def library() -> Any:
        if os.environ.get("WANDB_MODE", "offline") == "offline":
            os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # read on import; it would send error reports
        import wandb

        return wandb

    def __call__(self, row: Mapping[str, Any]) -> None:
        self.run.log(_named(row), step=row["epoch"])

    def close(self) -> None:
        self.run.finish()


class MLflow(Tracker):
    """A database in the run folder, or the server in ``MLFLOW_TRACKING_URI``; repeated epochs are recorded twice."""

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
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # read on import; it would send telemetry
        from mlflow import MlflowClient

        return MlflowClient

    def __call__(self, row: Mapping[str, Any]) -> None:
        for name, value in _named(row).items():
            self.client.log_metric(self.run, name, float(value), step=row["epoch"])

    def close(self) -> None:
        self.client.set_terminated(self.run)


KINDS: dict[TrackerKind, type[Tracker]] = {"none": Tracker, "tensorboard": TensorBoard, "wandb": WandB, "mlflow": MLflow}


def open_tracker(kind: TrackerKind, folder: Path, *, epochs_done: int, settings: Mapping[str, Any] | None = None) -> Tracker:
    """Return a tracker that writes into the run folder and by default sends nothing over the network.

    Raises:
        ConfigError: the library is not installed, or does not start.
    """
    with _explained(kind):
        return KINDS[kind](folder, epochs_done, settings or {})


def require_tracker(kind: TrackerKind) -> None:
    """Raise `ConfigError` if a tracker's library is not installed."""
    with _explained(kind):
        KINDS[kind].library()


@contextmanager
def _explained(kind: TrackerKind) -> Iterator[None]:
    """Convert any exception of a library to a `ConfigError`."""
    try:
        yield
    except ImportError:
        extra = "track" if kind == "tensorboard" else kind
        raise ConfigError(f"{kind} is not installed", where="training.track", hint=f"pip install 'vitrail[{extra}]'") from None
    except Exception as error:  # for example an unreachable server or a missing login
        hint = "check the tracker's settings, or remove --track"
        raise ConfigError(f"{kind} does not start: {error}", where="training.track", hint=hint) from error


def _named(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metrics of an epoch with names that group training and validation: ``loss/train`` and ``loss/val``."""
    names = {name: name.partition("_")[::2] if name.startswith(("train_", "val_")) else ("", name) for name in row}
    return {f"{metric}/{split}" if split else metric: row[name] for name, (split, metric) in names.items() if name != "epoch"}


def _saved_id(folder: Path, begin: Callable[[], str]) -> str:
    """Return the run's id in a tracker, which a resumed run continues with."""
    file = folder / "run-id"
    if not file.is_file():
        number = begin()
        folder.mkdir(exist_ok=True)
        write_text(file, number)
    return read_text(file)
