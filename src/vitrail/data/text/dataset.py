"""Sentence pairs as batches of tokens; pairs of similar length share a batch."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from vitrail.data.loading.batches import Batch, Key, Wanted
from vitrail.data.loading.sampler import shuffled

ROWS, COLUMNS = 8, 2
"""Numbers that the rows and columns of large batches are multiples of: on a CPU, kernels for half precision are compiled for
every new shape, which takes a good part of a step."""
AFTER = 1_000_000_000  # added to the epoch, for a random order of batches that is independent of the order of sentences


class PairDataset(Dataset[Batch]):
    """Sentence pairs, as tokens.

    A batch has ``source``, int64 (B, S); ``target`` (B, T), which begins with the start token; ``labels`` (B, T), the token after
    each one of ``target``; and ``number`` (B,), the index of each pair. Rows are padded with ``pad``. A batch has no more tokens
    than requested, padding included, and sentences of similar length share a batch (Vaswani et al. 2017, section 5.1).

    Args:
        names: the name of each pair, for messages.
        sources, targets: the tokens of each sentence, with the end token.
        seed: the seed of the order.
        pad, start: the token that pads rows, and the token that targets begin with.
        most: the number of positions of the model; see `filled`.
    """

    def __init__(
        self,
        names: Sequence[str],
        sources: Sequence[list[int]],
        targets: Sequence[list[int]],
        seed: int = 0,
        *,
        pad: int,
        start: int,
        most: int,
    ):
        self.names, self.seed, self.pad, self.start, self.most = names, seed, pad, start, most
        self.sources, self.targets = ([np.array(tokens, np.int64) for tokens in texts] for texts in (sources, targets))
        self.lengths = np.array([[len(target), len(source)] for source, target in zip(sources, targets, strict=True)])
        self.reading: Any = None
        self._batches: tuple[int, list[slice]] = 0, []

    def __len__(self) -> int:
        return len(self.names)

    def name(self, number: int) -> str:
        return self.names[number]

    def require_sendable(self) -> None:
        """Accept: pairs can always be sent to workers."""

    def units(self, keys: Sequence[Key]) -> int:
        """Return the number of target tokens of these pairs, including end tokens."""
        return int(self.lengths[[number for _, number in keys], 0].sum())

    def count_batches(self, batch_size: int) -> int:
        return len(self._slices(batch_size))

    def batches(self, epoch: int, batch_size: int, *, shuffle: bool, balance: bool = False) -> list[list[Key]]:
        """Return the pairs of each batch of an epoch; a batch has at most ``batch_size`` tokens of either language.

        With ``shuffle``, pairs of equal lengths are permuted, and the batches come in random order.
        """
        slices = self._slices(batch_size)
        order = self._sorted(shuffled(len(self), self.seed, epoch) if shuffle else range(len(self)))
        turns = shuffled(len(slices), self.seed, AFTER + epoch) if shuffle else range(len(slices))
        return [[(epoch, int(number)) for number in order[slices[turn]]] for turn in turns]

    def _sorted(self, order: Sequence[int]) -> np.ndarray:
        """Return the indices of all pairs sorted by length; pairs of equal lengths stay in ``order``."""
        numbers = np.array(order)
        targets, sources = self.lengths[numbers].T
        # alternately ascending and descending, so that neighbours are similar
        return numbers[np.lexsort((np.where(targets % 2, sources, -sources), targets))]

    def _slices(self, batch_size: int) -> list[slice]:
        """Return the slice of the sorted pairs for each batch; the slices are the same in every epoch."""
        if self._batches[0] != batch_size:
            lengths = self.lengths[self._sorted(range(len(self)))].max(axis=1)
            start, slices = 0, []
            while start < len(lengths):
                next_ones = lengths[start : start + batch_size]
                tokens = _even(np.maximum.accumulate(next_ones)) * np.arange(1, len(next_ones) + 1)
                count = max(1, int(np.searchsorted(tokens, batch_size, side="right")))
                count = count - count % ROWS if count > ROWS and start + count < len(lengths) else count
                slices.append(slice(start, start + count))
                start += count
            self._batches = batch_size, slices
        return self._batches[1]

    def __getitems__(self, wanted: Wanted) -> Batch:
        """Return the part ``wanted.own`` of a batch, as padded tensors."""
        numbers = [number for _, number in wanted.keys[wanted.own]]
        sides = ([side[number] for number in numbers] for side in (self.sources, self.targets))
        source, labels = (filled(rows, self.pad, self.most) for rows in sides)
        target = behind_start(labels, self.start, self.pad)
        return {"source": source, "target": target, "labels": labels, "number": torch.tensor(numbers)}


def _even(length: Any) -> Any:
    """Round a length up to a multiple of `COLUMNS`."""
    return -(-length // COLUMNS) * COLUMNS


def behind_start(labels: torch.Tensor, start: int, pad: int) -> torch.Tensor:
    """Return the token before each of ``labels``, int64 (B, T): the start token, then the labels shifted by one, padded."""
    target = torch.cat([torch.full_like(labels[:, :1], start), labels[:, :-1]], dim=1)
    target[labels == pad] = pad
    return target


def filled(rows: Sequence[Any], pad: int, most: int) -> torch.Tensor:
    """Return rows of tokens, padded to a common even length: int64 (B, N).

    Padding stops at ``most``, the number of learned positions of the model.
    """
    longest = max(map(len, rows))
    table = np.full((len(rows), max(longest, min(_even(longest), most))), pad, np.int64)
    for number, row in enumerate(rows):
        table[number, : len(row)] = row
    return torch.from_numpy(table)
