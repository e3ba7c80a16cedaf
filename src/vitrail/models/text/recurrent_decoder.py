"""A decoder of LSTMs, with or without attention to its source (Sutskever et al. 2014, Bahdanau et al. 2014)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from vitrail import parts
from vitrail.models.configs.texts import RecurrentConfig
from vitrail.models.text.text_model import TextModel


@dataclass
class Reading:
    """The encoded source and the state of the decoder."""

    states: list[parts.LSTMState]
    """State of every layer of the decoder: (B, H) each, or (A, W, H) in a beam search."""
    memory: Tensor
    """The encoded tokens of the source, (B, S, H)."""
    keys: Tensor
    """Keys of attention, (B, S, A): the memory, or a projection for `parts.AdditiveAlignment`."""
    mask: Tensor | None = None
    """Boolean (B, 1, S), False for padding; None without padding."""

    def select(self, rows: Tensor) -> None:
        self.states = [(h[rows], c[rows]) for h, c in self.states]
        memory, self.mask = self.memory[rows], None if self.mask is None else self.mask[rows]
        self.keys = memory if self.keys is self.memory else self.keys[rows]
        self.memory = memory

    def follow(self, parents: Tensor) -> None:
        def of(states: Tensor) -> Tensor:
            return states.gather(1, parents[..., None].expand(-1, -1, states.shape[2]))

        self.states = [(of(h), of(c)) for h, c in self.states]


class RecurrentDecoder(TextModel):
    """The decoder of a recurrent model; subclasses add an encoder.

    The LSTM runs over the whole target, then all its states attend to the source at once. This is Luong's order, also used here
    for additive attention: Bahdanau's decoder attends before each step of the LSTM, which is far slower to train.
    """

    config: RecurrentConfig

    def add_embedding(self) -> None:
        """Add the embedding table."""
        self.embedding = nn.Embedding(self.config.vocabulary, self.config.dim)
        self.dropout = parts.Dropout(self.config.dropout)

    def add_decoder(self) -> None:
        """Add the LSTMs, and the attention to a memory (B, S, H)."""
        c, width = self.config, self.config.hidden_dim
        self.key = nn.Linear(width, c.alignment_dim or width, bias=False) if c.attention == "additive" else nn.Identity()
        self.decoder = nn.ModuleList(parts.LSTMLayer(dim, width) for dim in c.inputs)
        self.attention = _alignment(c)
        self.combine = nn.Linear(2 * width if self.attention else width, c.dim)

    def initialize(self, *untouched: nn.Module) -> None:
        """Sample matrices and embeddings as the Transformer does, and LSTMs as torch does; ``untouched`` modules are skipped."""
        for module in self.modules_but(*untouched):
            if isinstance(module, parts.LSTMLayer):
                module.reset_parameters()
            elif isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        nn.init.normal_(self.embedding.weight, std=self.config.dim**-0.5)

    def heads(self) -> dict[str, nn.Module]:
        return {}

    def embed(self, tokens: Tensor) -> Tensor:
        """Return ``√D · E[t]``, (…) to (…, D); the factor makes values about 1, while the table suits the logits."""
        x: Tensor = self.embedding(tokens) * math.sqrt(self.config.dim)
        return x

    def reading(self, memory: Tensor, last: Sequence[Tensor], mask: Tensor | None = None) -> Reading:
        """Return the state before the first word, from the tokens (B, S, H) and each layer's initial values (B, 2H)."""
        states = [torch.tanh(start).chunk(2, dim=-1) for start in last]
        return Reading([(h, c) for h, c in states], memory, self.key(memory), mask)

    def decode(self, target: Tensor, encoded: Reading) -> Tensor:
        states = self._states(target, encoded)
        several = target.shape[1:] if target.ndim > 2 else None  # K targets of each source
        combined = self._combined(states.flatten(1, -2), encoded)
        return combined if several is None else combined.unflatten(1, several)

    def _states(self, target: Tensor, reading: Reading) -> Tensor:
        """Return the states of the decoder's last layer, (B, T, H) or (B, K, T, H)."""
        count = math.prod(target.shape[1:-1])  # targets of each source
        x = self.embed(target.flatten(0, -2))  # (B·K, T, D)
        for layer, state in zip(self.decoder, reading.states, strict=True):
            h, c = (part.repeat_interleave(count, dim=0) for part in state)
            x = layer(self.dropout(x), (h, c))
        return x.unflatten(0, target.shape[:-1])

    def _combined(self, states: Tensor, reading: Reading) -> Tensor:
        """Compute ``tanh(W [a; h])``, Luong's equation 5, of states h and attention results a: (B, T, H) to (B, T, D)."""
        if self.attention is not None:
            seen = self.attention(states, reading.keys, reading.memory, reading.mask)
            states = torch.cat([seen, states], dim=-1)
        combined: Tensor = self.dropout(torch.tanh(self.combine(states)))
        return combined

    def output_table(self) -> tuple[Tensor, None]:
        return self.embedding.weight, None

    def begin(self, encoded: Reading) -> Reading:
        return replace(encoded, states=[(h[:, None], c[:, None]) for h, c in encoded.states])

    def step(self, tokens: Tensor, state: Reading) -> Tensor:
        x = self.embed(tokens)  # (A, W, D)
        layer: Any
        for number, layer in enumerate(self.decoder):
            state.states[number] = layer.step(x, state.states[number])
            x = state.states[number][0]
        return self.logits(self._combined(x, state))

    def decode_with_attention(self, target: Tensor, encoded: Reading) -> tuple[Tensor, Tensor | None]:
        states = self._states(target, encoded)
        weights = None if self.attention is None else self.attention.weights(states, encoded.keys, encoded.mask)
        return self._combined(states, encoded), weights


def _alignment(c: RecurrentConfig) -> parts.AdditiveAlignment | parts.DotAlignment | None:
    if c.attention == "none":
        return None
    return parts.AdditiveAlignment(c.hidden_dim, c.alignment_dim) if c.attention == "additive" else parts.DotAlignment()
