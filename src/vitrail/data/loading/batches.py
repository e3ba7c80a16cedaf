"""What a loader makes batches of, and what a batch is."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from vitrail.errors import VitrailError

Batch = dict[str, Tensor]
"""What a model sees of some samples and what it is to learn of them, by name; one row for each sample."""
Key = tuple[int, int]
"""An epoch and the number of a sample in it; see `vitrail.data.loading.sampler.epoch_order`."""


def on_device(batch: Batch, device: torch.device) -> Batch:
    """A batch where it is computed with; a GPU fetches what lies in pinned memory by itself, while the program goes on."""
    return {name: tensor.to(device, non_blocking=tensor.is_pinned()) for name, tensor in batch.items()}


@dataclass(frozen=True)
class Wanted:
    """A batch, and the part of it that this process is to have."""

    keys: list[Key]
    own: slice


class Samples(Protocol):
    """A data set that a loader takes batches from. What is random in a sample depends on its key and a seed alone."""

    reading: Any
    """Two numbers for every worker: its process id and the item it is reading. None without workers."""

    def __len__(self) -> int:
        """Items."""

    def name(self, number: int) -> str:
        """Of an item, for messages."""

    def require_sendable(self) -> None:
        """Refuse to be sent to workers, where that cannot be; raises `ConfigError`."""

    def batches(self, epoch: int, batch_size: int, *, shuffle: bool, balance: bool) -> list[list[Key]]:
        """The samples of each batch of an epoch; there are as many batches in every epoch."""

    def count_batches(self, batch_size: int) -> int:
        """Batches of an epoch."""

    def units(self, keys: Sequence[Key]) -> int:
        """How many things some samples hold, of those that losses are means over."""

    def __getitems__(self, wanted: Wanted) -> Batch | VitrailError:
        """The samples of a batch side by side; an error is returned, not raised: a worker would wrap it in its own traceback."""
