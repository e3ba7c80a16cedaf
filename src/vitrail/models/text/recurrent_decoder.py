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
    """A source as the decoder sees it, and the decoder's state."""

    states: list[parts.LSTMState]
    """State of every layer of the decoder: (B, H) each, in a search (A, W, H)."""
    memory: Tensor
    """The encoded tokens of the source, (B, S, H)."""
    keys: Tensor
    """Keys of attention, (B, S, A): the memory, or a projection for `parts.AdditiveAlignment`."""
    mask: Tensor | None = None
    """Boolean (B, 1, S), False at the filling; None without filling."""

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
    """The writing half of a model that adds an encoder.

    The LSTM runs over the whole target, then all of its states look at the source together. This is Luong's order, for additive
    attention, too: Bahdanau's decoder looks before it goes on to the next token, which is far slower to train.
    """

    config: RecurrentConfig

    def add_embedding(self) -> None:
        """Add the table of tokens."""
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
        """Draw matrices and embeddings as the Transformer does, LSTMs as torch does; some parts stay as they are."""
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
        """Return ``√D · E[t]``, (…) to (…, D): numbers around 1, though the logits share the table."""
        x: Tensor = self.embedding(tokens) * math.sqrt(self.config.dim)
        return x

    def reading(self, memory: Tensor, last: Sequence[Tensor], mask: Tensor | None = None) -> Reading:
        """Return a source before the first word: its tokens (B, S, H), and the start of each layer's state, (B, 2H)."""
        states = [torch.tanh(start).chunk(2, dim=-1) for start in last]
        return Reading([(h, c) for h, c in states], memory, self.key(memory), mask)

    def decode(self, target: Tensor, encoded: Reading) -> Tensor:
        states = self._states(target, encoded)
        several = target.shape[1:] if target.ndim > 2 else None  # K targets of each source
        combined = self._combined(states.flatten(1, -2), encoded)
        return combined if several is None else combined.unflatten(1, several)

    def _states(self, target: Tensor, reading: Reading) -> Tensor:
        """Return the states of the decoder's last layer, (B, T, H) or (B, K, T, H)."""
        count = math.prod(target.shape[1:-1])  # of each source
        x = self.embed(target.flatten(0, -2))  # (B·K, T, D)
        for layer, state in zip(self.decoder, reading.states, strict=True):
            h, c = (part.repeat_interleave(count, dim=0) for part in state)
            x = layer(self.dropout(x), (h, c))
        return x.unflatten(0, target.shape[:-1])

    def _combined(self, states: Tensor, reading: Reading) -> Tensor:
        """Return ``tanh(W [a; h])`` of states h and the attention's result a: (B, T, H) to (B, T, D); Luong's equation 5."""
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
