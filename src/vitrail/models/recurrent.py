"""What the Transformer replaced: an LSTM reads a text, another writes its translation (Sutskever et al. 2014,
https://arxiv.org/abs/1409.3215), with or without attention (Bahdanau et al. 2014, Luong et al. 2015)."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vitrail import parts
from vitrail.models.configs.texts import RecurrentConfig
from vitrail.models.text_model import TextModel


@dataclass
class Reading:
    """A source as the decoder sees it, and how far the decoder has come."""

    states: list[parts.LSTMState]
    """Of every layer of the decoder, behind all that it has written: (B, H) each, in a search (A, W, H)."""
    memory: Tensor
    """The encoder's states (B, S, H)."""
    keys: Tensor
    """What attention compares the decoder's states with, (B, S, H): the encoder's, or what `parts.AdditiveAlignment` wants."""
    mask: Tensor
    """Which of the source's tokens are some, boolean (B, 1, S)."""

    def select(self, rows: Tensor) -> None:
        self.states = [(h[rows], c[rows]) for h, c in self.states]
        memory, self.mask = self.memory[rows], self.mask[rows]
        self.keys = memory if self.keys is self.memory else self.keys[rows]
        self.memory = memory

    def follow(self, parents: Tensor) -> None:
        def of(states: Tensor) -> Tensor:
            return states.gather(1, parents[..., None].expand(-1, -1, states.shape[2]))

        self.states = [(of(h), of(c)) for h, c in self.states]


class Recurrent(TextModel):
    """Sources (B, S) and targets (B, T) to logits (B, T, vocabulary).

    The decoder's LSTM runs first, over the whole target, and all of its states look at the source together. This is Luong's
    order, for additive attention, too: Bahdanau's decoder takes up what it saw before it goes on to the next token, which
    makes a model that is slower to train by far, token after token.
    """

    config: RecurrentConfig

    def __init__(self, config: RecurrentConfig):
        super().__init__()
        self.config = c = config
        width = c.hidden_dim
        inputs = [c.dim, *[width] * (c.depth - 1)]
        self.embedding = nn.Embedding(c.vocabulary, c.dim)
        self.dropout = parts.Dropout(c.dropout)
        self.encoder = nn.ModuleList(parts.BidirectionalLSTM(dim, width) for dim in inputs)
        self.starts = nn.ModuleList(nn.Linear(width, 2 * width) for _ in inputs)
        self.key = nn.Linear(width, width, bias=False) if c.attention == "additive" else nn.Identity()
        self.decoder = nn.ModuleList(parts.LSTMLayer(dim, width) for dim in inputs)
        self.attention = _alignment(c)
        self.combine = nn.Linear(2 * width if self.attention else width, c.dim)
        self.initialize()

    def initialize(self) -> None:
        """As the Transformer: Glorot's uniform for matrices, a deviation of D^-1/2 for embeddings; LSTMs as torch has them."""
        for module in self.modules():
            if isinstance(module, parts.LSTMLayer):
                module.reset_parameters()
            elif isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        nn.init.normal_(self.embedding.weight, std=self.config.dim**-0.5)

    def layers(self) -> list[nn.Module]:
        return [*self.encoder, *self.decoder]

    def heads(self) -> dict[str, nn.Module]:
        return {}

    def embed(self, tokens: Tensor) -> Tensor:
        """``√D · E[t]``, (…) to (…, D): of the size that LSTMs are used to, though the logits share the table."""
        x: Tensor = self.embedding(tokens) * math.sqrt(self.config.dim)
        return x

    def encode(self, source: Tensor) -> Reading:
        tokens = source != self.config.pad
        lengths = tokens.sum(dim=1).clamp(min=1)  # (B,)
        x, states = self.embed(source), []
        for layer, start in zip(self.encoder, self.starts, strict=True):
            x = layer(self.dropout(x), lengths)  #  (B, S, H)
            last = parts.BidirectionalLSTM.last(x, lengths)
            h, c = torch.tanh(start(last)).chunk(2, dim=-1)
            states.append((h, c))
        return Reading(states, x, self.key(x), tokens[:, None])

    def decode(self, target: Tensor, encoded: Reading) -> Tensor:
        return self._combined(self._states(target, encoded), encoded)

    def _states(self, target: Tensor, reading: Reading) -> Tensor:
        """Of the decoder's last layer, (B, T, H)."""
        x = self.embed(target)
        for layer, state in zip(self.decoder, reading.states, strict=True):
            x = layer(self.dropout(x), state)
        return x

    def _combined(self, states: Tensor, reading: Reading) -> Tensor:
        """``tanh(W [a; h])`` of states h and what they see of the source, a: (B, T, H) to (B, T, D); Luong's equation 5."""
        if self.attention is not None:
            seen = self.attention(states, reading.keys, reading.memory, reading.mask)
            states = torch.cat([seen, states], dim=-1)
        combined: Tensor = self.dropout(torch.tanh(self.combine(states)))
        return combined

    def output_table(self) -> tuple[Tensor, None]:
        return self.embedding.weight, None

    def begin(self, source: Tensor) -> Reading:
        reading = self.encode(source)
        reading.states = [(h[:, None], c[:, None]) for h, c in reading.states]
        return reading

    def step(self, tokens: Tensor, state: Reading) -> Tensor:
        x = self.embed(tokens)  # (A, W, D)
        layer: Any
        for number, layer in enumerate(self.decoder):
            state.states[number] = layer.step(x, state.states[number])
            x = state.states[number][0]
        return self.logits(self._combined(x, state))

    def alignment(self, source: Tensor, target: Tensor) -> Tensor | None:
        if self.attention is None:
            return None
        reading = self.encode(source)
        weights: Tensor = self.attention.weights(self._states(target, reading), reading.keys, reading.mask)
        return weights


def _alignment(c: RecurrentConfig) -> parts.AdditiveAlignment | parts.DotAlignment | None:
    if c.attention == "none":
        return None
    return parts.AdditiveAlignment(c.hidden_dim) if c.attention == "additive" else parts.DotAlignment()
