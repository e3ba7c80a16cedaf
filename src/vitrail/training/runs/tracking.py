"""Metrics for an experiment tracker; off by default. Each library is imported when it is asked for."""

import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vitrail.config.settings import TrackerKind
from vitrail.errors import ConfigError
from vitrail.files import read_text, write_text

PROJECT = "vitrail"
"""What W&B calls a project, and MLflow an experiment."""


class Tracker:
    """Told the metrics of every epoch; this one keeps silent."""

    def __call__(self, row: Mapping[str, Any]) -> None:
        """An epoch ended with these metrics."""

    def close(self) -> None:
        """No epoch follows in this process."""


def open_tracker(kind: TrackerKind, folder: Path, *, epochs_done: int, settings: Mapping[str, Any] | None = None) -> Tracker:
    """What hears the metrics: nobody, or a library that keeps them below the run folder, and sends them nowhere by itself.

    Args:
        kind: TensorBoard writes event files. W&B is offline unless ``WANDB_MODE`` says otherwise, MLflow writes a database
            unless ``MLFLOW_TRACKING_URI`` names a server.
        folder: of the run.
        epochs_done: a resumed run makes the later ones again. In TensorBoard they replace the earlier ones, in MLflow they stand
            beside them, and W&B keeps the first.
        settings: of the run, for those that keep them.

    Raises:
        ConfigError: the library is not installed, or does not start.
    """
    if kind == "none":
        return Tracker()
    kinds: dict[str, Callable[[], Tracker]] = {
        "tensorboard": lambda: _TensorBoard(folder, epochs_done),
        "wandb": lambda: _WandB(folder, settings or {}),
        "mlflow": lambda: _MLflow(folder, settings or {}),
    }
    with _explained(kind):
        return kinds[kind]()


def require_tracker(kind: TrackerKind) -> None:
    """Refuse a library that is not there, before there is anything for it to hear; raises `ConfigError`."""
    libraries: dict[str, Callable[[], Any]] = {"tensorboard": _tensorboard, "wandb": _wandb, "mlflow": _mlflow}
    if kind != "none":
        with _explained(kind):
            libraries[kind]()


@contextmanager
def _explained(kind: TrackerKind) -> Iterator[None]:
    """What goes wrong with a library inside, each of which has errors of its own, is a `ConfigError`."""
    try:
        yield
    except ImportError:
        extra = "track" if kind == "tensorboard" else kind
        raise ConfigError(f"{kind} is not installed", where="training.track", hint=f"pip install 'vitrail[{extra}]'") from None
    except Exception as error:  # a server that is not there, a login that is missing
        hint = "look at its settings, or leave --track out"
        raise ConfigError(f"{kind} does not start: {error}", where="training.track", hint=hint) from error


def _tensorboard() -> Any:
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter


def _wandb() -> Any:
    if os.environ.get("WANDB_MODE", "offline") == "offline":
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # read on import: it would report its own errors
    import wandb

    return wandb


def _mlflow() -> Any:
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # read on import: it would tell its makers of every run
    from mlflow import MlflowClient

    return MlflowClient


class _TensorBoard(Tracker):
    def __init__(self, folder: Path, epochs_done: int):
        self.writer = _tensorboard()(str(folder / "tensorboard"), purge_step=epochs_done + 1)

    def __call__(self, row: Mapping[str, Any]) -> None:
        for name, value in _named(row).items():
            self.writer.add_scalar(name, value, row["epoch"])
        self.writer.flush()

    def close(self) -> None:
        self.writer.close()


class _WandB(Tracker):
    def __init__(self, folder: Path, settings: Mapping[str, Any]):
        wandb, mode = _wandb(), os.environ.get("WANDB_MODE", "offline")
        number = _remembered(folder / "wandb" / "run-id", lambda: secrets.token_hex(4))
        self.run = wandb.init(
            project=PROJECT, name=folder.name, id=number, dir=str(folder), mode=mode, resume="allow", config=dict(settings)
        )

    def __call__(self, row: Mapping[str, Any]) -> None:
        self.run.log(_named(row), step=row["epoch"])

    def close(self) -> None:
        self.run.finish()


class _MLflow(Tracker):
    def __init__(self, folder: Path, settings: Mapping[str, Any]):
        place = folder.resolve() / "mlflow"
        place.mkdir(exist_ok=True)
        self.client = _mlflow()(tracking_uri=os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{place / 'mlflow.db'}")

        def begin() -> str:
            known = self.client.get_experiment_by_name(PROJECT)
            experiment = known.experiment_id if known else self.client.create_experiment(PROJECT)
            number = self.client.create_run(experiment, run_name=folder.name).info.run_id
            for name, value in _flat(settings).items():
                self.client.log_param(number, name, value)
            return str(number)

        self.run = _remembered(place / "run-id", begin)

    def __call__(self, row: Mapping[str, Any]) -> None:
        for name, value in _named(row).items():
            self.client.log_metric(self.run, name, float(value), step=row["epoch"])

    def close(self) -> None:
        self.client.set_terminated(self.run)


def _named(row: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics of an epoch, training and validation side by side: ``loss/train`` and ``loss/val``."""
    found = {}
    for name, value in row.items():
        if name != "epoch":
            split, _, metric = name.partition("_") if name.startswith(("train_", "val_")) else ("", "", name)
            found[f"{metric}/{split}" if split else name] = value
    return found


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings by their dotted names; those that are not set are left out."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{name}.")
        elif value is not None:
            found[f"{prefix}{name}"] = value
    return found


def _remembered(file: Path, begin: Callable[[], str]) -> str:
    """The id that a run has with a tracker, which a resumed run goes on with."""
    if not file.is_file():
        number = begin()
        file.parent.mkdir(exist_ok=True)
        write_text(file, number)
    return read_text(file)
