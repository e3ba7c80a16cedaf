"""Batches, and the interface of data sets that a loader takes them from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from vitrail.errors import VitrailError

Batch = dict[str, Tensor]
"""Inputs and targets of several samples, by name; each tensor has one row per sample."""
Key = tuple[int, int]
"""An epoch, and the number of a sample in it; see `vitrail.data.loading.sampler.epoch_order`."""


def on_device(batch: Batch, device: torch.device) -> Batch:
    """Return a batch on a device; pinned memory is copied to a GPU asynchronously."""
    return {name: tensor.to(device, non_blocking=tensor.is_pinned()) for name, tensor in batch.items()}


@dataclass(frozen=True)
class Wanted:
    """The keys of a batch, and the slice of it for this process."""

    keys: list[Key]
    own: slice


class Samples(Protocol):
    """A data set that a loader takes batches from. The randomness of a sample depends only on its key and a seed."""

    reading: Any
    """Shared memory with two numbers for each worker: its process id and the item that it reads. None without workers."""

    def __len__(self) -> int: ...

    def name(self, number: int) -> str:
        """Return the name of an item for messages."""

    def require_sendable(self) -> None:
        """Raise `ConfigError` if the data set cannot be sent to workers."""

    def batches(self, epoch: int, batch_size: int, *, shuffle: bool, balance: bool) -> list[list[Key]]:
        """Return the keys of each batch of an epoch; every epoch has the same number of batches."""

    def count_batches(self, batch_size: int) -> int:
        """Return the number of batches of an epoch."""

    def units(self, keys: Sequence[Key]) -> int:
        """Return the number of units in these samples over which a loss is averaged: images, or tokens."""

    def __getitems__(self, wanted: Wanted) -> Batch | VitrailError:
        """Return a batch, or an error: torch would wrap an error raised in a worker in another one."""
