"""Metrics for an experiment tracker; off by default."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from vitrail.errors import ConfigError

Track = Callable[[dict[str, Any]], None]
"""Told the metrics of every epoch."""


def open_tracker(kind: Literal["none", "tensorboard"], folder: Path, *, epochs_done: int) -> Track:
    """What hears the metrics: nobody, or TensorBoard through event files in ``folder``.

    Epochs that a resumed run makes again replace the earlier ones.

    Raises:
        ConfigError: the extra is not installed.
    """
    if kind == "none":
        return lambda row: None
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ConfigError("TensorBoard is not installed", where="training.track", hint="pip install 'vitrail[track]'") from None
    writer = SummaryWriter(str(folder), purge_step=epochs_done + 1)

    def track(row: dict[str, Any]) -> None:
        for name, value in row.items():
            if name != "epoch":
                split, _, metric = name.rpartition("_") if name.startswith(("train_", "val_")) else ("", "", name)
                writer.add_scalar(f"{metric}/{split}" if split else name, value, row["epoch"])
        writer.flush()

    return track
