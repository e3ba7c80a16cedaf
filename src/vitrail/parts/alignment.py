"""How the states of a decoder look at the states of an encoder, as before the Transformer: by a small network, or by products."""

import math

import torch
from torch import Tensor, nn

from vitrail.parts.dot_product import attend, attention_weights, masked_softmax


class DotAlignment(nn.Module):
    """Global attention with the score ``s · h`` (Luong et al. 2015, https://arxiv.org/abs/1508.04025, equations 7 and 8).

    States ``s`` (B, T, D) of the decoder, the queries, look at ``h`` (B, S, D) of the encoder, which are keys and memory.
    It has no parameters, and does not divide by √D as the Transformer does.
    """

    def weights(self, query: Tensor, key: Tensor, mask: Tensor | None = None) -> Tensor:
        """(B, T, S), rows sum to 1; ``mask`` is boolean, broadcastable to it, True where a state may look."""
        return attention_weights(_undivided(query), key, mask=mask)

    def forward(self, query: Tensor, key: Tensor, memory: Tensor, mask: Tensor | None = None) -> Tensor:
        """The encoder's states (B, S, D), weighed for each of the decoder's: (B, T, D)."""
        return attend(_undivided(query), key, memory, mask=mask)


class AdditiveAlignment(nn.Module):
    """Attention with the score ``v · tanh(W s + U h)`` (Bahdanau et al. 2014, https://arxiv.org/abs/1409.0473, appendix A.1.2).

    Takes and gives what `DotAlignment` does, but that keys are ``U h``, made once for all states of the decoder.
    """

    def __init__(self, dim: int):
        super().__init__()
        self.query = nn.Linear(dim, dim, bias=False)  # W
        self.score = nn.Linear(dim, 1, bias=False)  #   v

    def weights(self, query: Tensor, key: Tensor, mask: Tensor | None = None) -> Tensor:
        hidden = torch.tanh(self.query(query)[..., :, None, :] + key[..., None, :, :])  # (B, T, S, D)
        return masked_softmax(self.score(hidden)[..., 0], mask=mask)

    def forward(self, query: Tensor, key: Tensor, memory: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.weights(query, key, mask) @ memory


def _undivided(query: Tensor) -> Tensor:
    """Queries with the factor that `attend` divides by."""
    return query * math.sqrt(query.shape[-1])
