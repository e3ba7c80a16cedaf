"""Key-value caches of attention, for writing a sequence one token at a time."""

from typing import Any

import torch
from torch import Tensor


class KeyValueCache:
    """Keys (B, k, N, D_h) and values (B, k, N, D_V) of the N tokens that one attention layer has processed.

    They are stored in a buffer with spare room. A full buffer is replaced by one twice as long.
    """

    def __init__(self) -> None:
        self.length = 0
        """Tokens N."""
        self._buffers: tuple[Tensor, Tensor] | None = None

    @property
    def tensors(self) -> tuple[Tensor, Tensor]:
        """The keys and the values; the cache must not be empty."""
        assert self._buffers is not None
        keys, values = self._buffers
        return keys[:, :, : self.length], values[:, :, : self.length]

    def extended(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Append keys and values of more tokens, and return those of all tokens."""
        start, self.length = self.length, self.length + keys.shape[2]
        if self._buffers is None:
            self._buffers = keys, values
            return self._buffers
        if self.length > self._buffers[0].shape[2]:
            self._buffers = _with_room(self._buffers[0], 2 * self.length), _with_room(self._buffers[1], 2 * self.length)
        for buffer, new in zip(self._buffers, (keys, values), strict=True):
            buffer[:, :, start : self.length] = new
        return self.tensors

    def select(self, rows: Tensor) -> None:
        """Keep the sequences of these batch rows (B',), in this order; a row may be repeated."""
        if self._buffers is not None:
            keys, values = self._buffers  # with the spare room, to avoid a reallocation
            self._buffers = keys.index_select(0, rows), values.index_select(0, rows)


class DecoderCache:
    """Key-value caches of all blocks of a decoder, for A sources and W targets (beams) of each source.

    All targets of a source share one cache: it holds the tokens of all of them, and a mask says which tokens belong to which
    target. When a target continues another one, only the mask changes; no keys or values are copied.

    Args:
        memory: the encoded sources, (A, S, D).
        mask: boolean (A, 1, 1, S), False for padding; None if there is no padding.
        depth: number of blocks.
    """

    def __init__(self, memory: Tensor, mask: Tensor | None, depth: int):
        self.length = 0
        """Tokens of each target."""
        self.memory: Tensor | None = memory
        self.mask = mask
        self.blocks = [(KeyValueCache(), KeyValueCache()) for _ in range(depth)]
        self.sees: Tensor | None = None
        """Tokens that belong to each target, boolean (A, W, N); None while each source has a single target."""

    def extended(self, width: int) -> list[dict[str, Any]]:
        """Return each block's arguments for one more token of each of the ``width`` targets of every source, (A, W, D)."""
        mask = None
        if self.sees is not None:
            itself = torch.eye(width, dtype=torch.bool, device=self.sees.device).expand(len(self.sees), -1, -1)
            self.sees = torch.cat([self.sees, itself], dim=2)
            mask = self.sees[:, None]  # (A, 1, W, N)
        if self.blocks[-1][1].length:  # the cross-attention of every block has cached its keys and values
            self.memory = None
        across = {"context": self.memory, "mask": self.mask}
        self.length += 1
        return [{"cache": own, "mask": mask, "across": across | {"cache": other}} for own, other in self.blocks]

    def select(self, rows: Tensor) -> None:
        """Keep these sources (A',), in this order; a source may be repeated."""
        self.memory, self.mask, self.sees = (None if t is None else t[rows] for t in (self.memory, self.mask, self.sees))
        for own, across in self.blocks:
            own.select(rows)
            across.select(rows)

    def follow(self, parents: Tensor) -> None:
        """Continue with targets whose parents are these targets of each source, (A, W'); a parent may be repeated."""
        if self.sees is None and parents.shape[1] > 1:
            self.sees = torch.ones(len(parents), 1, self.length, dtype=torch.bool, device=parents.device)
        if self.sees is not None:
            self.sees = self.sees.gather(1, parents[..., None].expand(-1, -1, self.sees.shape[2]))


def _with_room(tensor: Tensor, length: int) -> Tensor:
    """Return a copy of (B, k, N, D) with room for ``length`` tokens."""
    wider = tensor.new_empty(*tensor.shape[:2], length, tensor.shape[3])
    wider[:, :, : tensor.shape[2]] = tensor
    return wider
