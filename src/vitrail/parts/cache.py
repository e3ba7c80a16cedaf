"""What attention remembers of the tokens before, so that a sequence can be written one token at a time."""

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
            self._buffers = keys[rows], values[rows]


def _with_room(tensor: Tensor, length: int) -> Tensor:
    """A copy of (B, k, N, D) with room for ``length`` tokens."""
    wider = tensor.new_empty(*tensor.shape[:2], length, tensor.shape[3])
    wider[:, :, : tensor.shape[2]] = tensor
    return wider
