"""The Transformer (Vaswani et al. 2017, https://arxiv.org/abs/1706.03762): an encoder reads a text, a decoder writes another."""

import copy
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vitrail import parts
from vitrail.models.configs.texts import TransformerConfig
from vitrail.models.text_model import TextModel


@dataclass
class Encoded:
    """A source as the decoder sees it: ``memory`` (B, S, D), and which of its tokens are some, boolean (B, 1, 1, S) or None."""

    memory: Tensor
    mask: Tensor | None


class Transformer(TextModel):
    """Sources (B, S) and targets (B, T) to logits (B, T, vocabulary). Equations are the paper's."""

    config: TransformerConfig

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.config = c = config
        self.embedding = nn.Embedding(c.vocabulary, c.dim)
        self.target_embedding = None if c.tied else nn.Embedding(c.vocabulary, c.dim)
        self.position = parts.SequencePosition(c.dim, halves=c.position == "sincos-halves")
        self.dropout = parts.Dropout(c.dropout)
        self.encoder = nn.ModuleList(_block(c) for _ in range(c.depth))
        self.encoder_norm = self._last_norm()
        self.decoder = nn.ModuleList(_block(c, cross=True) for _ in range(c.decoder_depth))
        self.decoder_norm = self._last_norm()
        self.output = None if c.tied else nn.Linear(c.dim, c.vocabulary, bias=False)
        self.output_bias = nn.Parameter(torch.zeros(c.vocabulary)) if c.output_bias else None
        self.initialize()

    def _last_norm(self) -> nn.Module:
        """Behind post-norm branches all is normalized already."""
        return parts.norm_layer(self.config.dim, eps=self.config.norm_eps) if self.config.norm == "pre" else nn.Identity()

    def initialize(self) -> None:
        """Glorot's uniform for matrices, a deviation of D^-1/2 for embeddings, no biases."""
        for module in self.modules():
            if isinstance(module, nn.Embedding) or module is self.output:
                nn.init.normal_(module.weight, std=self.config.dim**-0.5)
            elif isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)

    def layers(self) -> list[nn.Module]:
        return [*self.encoder, *self.decoder]

    def heads(self) -> dict[str, nn.Module]:
        return {} if self.output is None else {"output": self.output}

    def embed(self, tokens: Tensor, table: nn.Module | None, offset: int = 0) -> Tensor:
        """``dropout(√D · E[t] + PE)``, sections 3.4 and 3.5: (B, N) to (B, N, D)."""
        scale = math.sqrt(self.config.dim) if self.config.scale_embedding else 1.0
        x = self.position((table or self.embedding)(tokens) * scale, offset)
        dropped: Tensor = self.dropout(parts.as_autocast(x))  # norms keep the sum of branches small: half precision will do
        return dropped

    def encode(self, source: Tensor) -> Encoded:
        mask = _tokens(source, self.config.pad)  # (B, 1, 1, S)
        x = self.embed(source, self.embedding)  #  (B, S, D)
        for block in self.encoder:
            x = block(x, mask=mask)  #             (B, S, D)
        return Encoded(self.encoder_norm(x), mask)

    def decode(self, target: Tensor, encoded: Encoded) -> Tensor:
        x = self.embed(target, self.target_embedding)  # (B, T, D)
        across = {"context": encoded.memory, "mask": encoded.mask}
        for block in self.decoder:
            x = block(x, causal=True, across=across)  #  (B, T, D)
        normalized: Tensor = self.decoder_norm(x)
        return normalized

    def output_table(self) -> tuple[Tensor, Tensor | None]:
        return (self.embedding.weight if self.output is None else self.output.weight), self.output_bias

    def begin(self, source: Tensor) -> parts.DecoderCache:
        encoded = self.encode(source)
        return parts.DecoderCache(encoded.memory, encoded.mask, len(self.decoder))

    def step(self, tokens: Tensor, state: parts.DecoderCache) -> Tensor:
        places = tokens.flatten()[:, None]  # all tokens stand at the same place of their targets
        x = self.embed(places, self.target_embedding, state.length).view(*tokens.shape, -1)  # (A, W, D)
        return self._after(x, state.extended(tokens.shape[1]))

    def steps(self, tokens: Tensor, state: parts.DecoderCache) -> Tensor:
        x = self.embed(tokens, self.target_embedding, state.length)  # (A, N, D)
        return self._after(x, state.extended(1, tokens.shape[1]), causal=True)

    def _after(self, x: Tensor, remembered: list[dict[str, Any]], **options: Any) -> Tensor:
        """The logits behind embedded tokens."""
        for block, cached in zip(self.blocks(), remembered, strict=True):
            x = block(x, **cached, **options)
        return self.logits(self.decoder_norm(x))

    def blocks(self) -> Iterable[Any]:
        """Of the decoder, as a search runs them."""
        return self.decoder

    def for_writing(self, matrix: parts.Matrix) -> TextModel:
        fast, blocks = copy.copy(self), [parts.FastBlock(block, matrix) for block in self.decoder]  # all else is shared
        fast.__dict__.update(blocks=lambda: blocks, logits=parts.product_of(matrix, *self.output_table()))
        return fast

    def alignment(self, source: Tensor, target: Tensor) -> Tensor:
        """Of the last block, the mean of its heads."""
        seen: list[Any] = []
        block: Any = self.decoder[-1]
        keep = block.cross.layer.register_forward_pre_hook(lambda _, x, options: seen.append((x, options)), with_kwargs=True)
        try:
            self.decode(target, self.encode(source))
        finally:
            keep.remove()
        ((x, options),) = seen
        weights: Tensor = block.cross.layer.weights(*x, **options)
        return weights.mean(dim=1)


def _block(c: TransformerConfig, *, cross: bool = False) -> parts.Block:
    dropouts: dict[str, Any] = {"attention_dropout": c.attention_dropout, "dropout": c.dropout}
    return parts.Block(
        c.dim,
        parts.Attention(c.dim, c.heads, **dropouts),
        parts.FeedForward(c.dim, c.mlp_dim, activation=c.activation, dropout=c.dropout, hidden_dropout=c.hidden_dropout),
        cross=parts.Attention(c.dim, c.heads, context_dim=c.dim, **dropouts) if cross else None,
        norm=c.norm,
        norm_eps=c.norm_eps,
    )


def _tokens(source: Tensor, pad: int) -> Tensor | None:
    """Which of (B, S) are tokens and no filling, as attention takes it: (B, 1, 1, S); None where all are."""
    mask = source != pad
    return None if source.is_meta or bool(mask.all()) else mask[:, None, None]
