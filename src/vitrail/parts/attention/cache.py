"""Caches of attention, so that a sequence can be written one token at a time."""

from typing import Any

import torch
from torch import Tensor


class KeyValueCache:
    """Keys and values of the tokens that one attention has seen: (B, k, N, D_h) and (B, k, N, D_V).

    They stand in a buffer with room for more, which is made anew, twice as long, when it is full.
    """

    def __init__(self) -> None:
        self.length = 0
        """Tokens N."""
        self._buffers: tuple[Tensor, Tensor] | None = None

    @property
    def tensors(self) -> tuple[Tensor, Tensor]:
        """The keys and the values; there must be some."""
        assert self._buffers is not None
        keys, values = self._buffers
        return keys[:, :, : self.length], values[:, :, : self.length]

    def extended(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Take up the keys and values of more tokens, and give those of all."""
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
        """Keep the sequences of these rows (B',), in this order; a row may stand several times."""
        if self._buffers is not None:
            keys, values = self._buffers  # with their room, or it would have to be made anew
            self._buffers = keys.index_select(0, rows), values.index_select(0, rows)


class DecoderCache:
    """Caches of a decoder's blocks for A sources, and W targets that are written for each.

    The targets of a source share one cache, in which the tokens of all stand side by side; each sees its own. A target that goes
    on from another therefore moves no keys and values: what it sees is all that changes.

    Args:
        memory: the encoded sources, (A, S, D).
        mask: which of their tokens are some, boolean (A, 1, 1, S), or None for all.
        depth: number of blocks.
    """

    def __init__(self, memory: Tensor, mask: Tensor | None, depth: int):
        self.length = 0
        """Tokens of each target."""
        self.memory: Tensor | None = memory
        self.mask = mask
        self.blocks = [(KeyValueCache(), KeyValueCache()) for _ in range(depth)]
        self.sees: Tensor | None = None
        """Which tokens stand in each target, boolean (A, W, N); None while there is one target of each source."""

    def extended(self, width: int) -> list[dict[str, Any]]:
        """Return the arguments of each block for one more token of ``width`` targets of each source, (A, W, D)."""
        mask = None
        if self.sees is not None:
            itself = torch.eye(width, dtype=torch.bool, device=self.sees.device).expand(len(self.sees), -1, -1)
            self.sees = torch.cat([self.sees, itself], dim=2)
            mask = self.sees[:, None]  # (A, 1, W, N)
        if self.blocks[-1][1].length:  # every block has kept what it needs of it
            self.memory = None
        across = {"context": self.memory, "mask": self.mask}
        self.length += 1
        return [{"cache": own, "mask": mask, "across": across | {"cache": other}} for own, other in self.blocks]

    def select(self, rows: Tensor) -> None:
        """Keep these sources (A',), in this order; one may stand several times."""
        self.memory, self.mask, self.sees = (None if t is None else t[rows] for t in (self.memory, self.mask, self.sees))
        for own, across in self.blocks:
            own.select(rows)
            across.select(rows)

    def follow(self, parents: Tensor) -> None:
        """Go on with targets that continue these of each source's, (A, W'); one may stand several times."""
        if self.sees is None and parents.shape[1] > 1:
            self.sees = torch.ones(len(parents), 1, self.length, dtype=torch.bool, device=parents.device)
        if self.sees is not None:
            self.sees = self.sees.gather(1, parents[..., None].expand(-1, -1, self.sees.shape[2]))


def _with_room(tensor: Tensor, length: int) -> Tensor:
    """Return a copy of (B, k, N, D) with room for ``length`` tokens."""
    wider = tensor.new_empty(*tensor.shape[:2], length, tensor.shape[3])
    wider[:, :, : tensor.shape[2]] = tensor
    return wider
