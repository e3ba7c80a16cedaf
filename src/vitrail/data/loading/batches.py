"""Batches, and the samples that a loader makes them of."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from vitrail.errors import VitrailError

Batch = dict[str, Tensor]
"""Inputs and targets of some samples, by name; one row for each sample."""
Key = tuple[int, int]
"""An epoch and the number of a sample in it; see `vitrail.data.loading.sampler.epoch_order`."""


def on_device(batch: Batch, device: torch.device) -> Batch:
    """Return a batch on a device; a GPU fetches pinned memory by itself, while the program goes on."""
    return {name: tensor.to(device, non_blocking=tensor.is_pinned()) for name, tensor in batch.items()}


@dataclass(frozen=True)
class Wanted:
    """A batch, and the part of it for this process."""

    keys: list[Key]
    own: slice


class Samples(Protocol):
    """A data set that a loader takes batches from. All randomness of a sample depends on its key and a seed."""

    reading: Any
    """Two numbers for every worker: its process id and the item it is reading. None without workers."""

    def __len__(self) -> int: ...

    def name(self, number: int) -> str:
        """Return the name of an item for messages."""

    def require_sendable(self) -> None:
        """Raise `ConfigError` if the data set cannot be sent to workers."""

    def batches(self, epoch: int, batch_size: int, *, shuffle: bool, balance: bool) -> list[list[Key]]:
        """Return the samples of each batch of an epoch; there are as many batches in every epoch."""

    def count_batches(self, batch_size: int) -> int:
        """Return the number of batches of an epoch."""

    def units(self, keys: Sequence[Key]) -> int:
        """Return the number of things in some samples that losses are means over."""

    def __getitems__(self, wanted: Wanted) -> Batch | VitrailError:
        """Return a batch; an error is returned, not raised: a worker would wrap it in its own traceback."""
