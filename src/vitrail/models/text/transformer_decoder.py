"""The decoder of the Transformer (Vaswani et al. 2017, https://arxiv.org/abs/1706.03762), for any encoder."""

import copy
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from vitrail import parts
from vitrail.models.configs.texts import DecoderConfig
from vitrail.models.text.text_model import TextModel


@dataclass
class Encoded:
    """The encoded source, which the decoder attends to."""

    memory: Tensor
    """(B, S, D)."""
    mask: Tensor | None = None
    """Boolean (B, 1, 1, S), False for padding; None without padding."""


class TransformerDecoder(TextModel):
    """The Transformer's decoder; subclasses add an encoder. Equations are the paper's."""

    config: DecoderConfig
    shown: ClassVar[slice] = slice(-1, None)
    """The blocks whose cross-attention `alignment` returns."""

    def add_embedding(self, *, separate: bool = False) -> None:
        """Add positions and one embedding table, or ``separate`` ones for sources and targets."""
        c = self.config
        self.embedding = nn.Embedding(c.vocabulary, c.dim)
        self.target_embedding = nn.Embedding(c.vocabulary, c.dim) if separate else None
        self.position = (
            parts.LearnedSequencePosition(c.dim, c.max_tokens)
            if c.position == "learned"
            else parts.SequencePosition(c.dim, halves=c.position == "sincos-halves")
        )
        self.dropout = parts.Dropout(c.dropout)

    def add_decoder(self, memory_dim: int, cross_heads: int | None = None) -> None:
        """Add the blocks, which attend to a memory (B, S, memory_dim), and the output layer."""
        c = self.config
        self.decoder = nn.ModuleList(block_of(c, memory_dim=memory_dim, cross_heads=cross_heads) for _ in range(c.decoder_depth))
        self.decoder_norm = last_norm(c)
        self.output = None if c.tied else nn.Linear(c.dim, c.vocabulary, bias=False)
        self.output_bias = nn.Parameter(torch.zeros(c.vocabulary)) if c.output_bias else None

    def initialize(self, *untouched: nn.Module) -> None:
        """Sample matrices by Glorot's uniform and embeddings with a deviation of D^-1/2; ``untouched`` modules are skipped."""
        for module in self.modules_but(*untouched):
            if isinstance(module, nn.Embedding) or module is self.output:
                nn.init.normal_(module.weight, std=self.config.dim**-0.5)
            elif isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)

    def heads(self) -> dict[str, nn.Module]:
        return {} if self.output is None else {"output": self.output}

    def embed(self, tokens: Tensor, table: nn.Module | None, offset: int = 0) -> Tensor:
        """Compute ``dropout(√D · E[t] + PE)``, sections 3.4 and 3.5: (B, N) to (B, N, D)."""
        scale = math.sqrt(self.config.dim) if self.config.scale_embedding else 1.0
        x = self.position((table or self.embedding)(tokens) * scale, offset)
        dropped: Tensor = self.dropout(parts.as_autocast(x))  # half precision suffices, since norms keep the residual sum small
        return dropped

    def decode(self, target: Tensor, encoded: Encoded) -> Tensor:
        *several, length = target.shape[1:]  # [K] if each source has K targets, else []
        x = self.embed(target.flatten(0, -2), self.target_embedding)  # (B·K, T, D)
        options: dict[str, Any] = {"causal": True}
        if several:
            x = x.reshape(len(target), -1, x.shape[-1])  # (B, K·T, D), so that keys and values of the source are computed once
            options = {"mask": _each_by_itself(several[0], length, x.device)}
        across = {"context": encoded.memory, "mask": encoded.mask}
        for block in self.decoder:
            x = block(x, across=across, **options)
        normalized: Tensor = self.decoder_norm(x)
        return normalized.unflatten(1, (*several, length)) if several else normalized

    def output_table(self) -> tuple[Tensor, Tensor | None]:
        return (self.embedding.weight if self.output is None else self.output.weight), self.output_bias

    def begin(self, encoded: Encoded) -> parts.DecoderCache:
        return parts.DecoderCache(encoded.memory, encoded.mask, len(self.decoder))

    def step(self, tokens: Tensor, state: parts.DecoderCache) -> Tensor:
        places = tokens.flatten()[:, None]  # all tokens have the same position in their targets
        x = self.embed(places, self.target_embedding, state.length).view(*tokens.shape, -1)  # (A, W, D)
        for block, cached in zip(self.blocks(), state.extended(tokens.shape[1]), strict=True):
            x = block(x, **cached)
        return self.logits(self.decoder_norm(x))

    def blocks(self) -> Iterable[Any]:
        """Return the decoder's blocks for a search."""
        return self.decoder

    def for_writing(self, matrix: parts.Matrix) -> TextModel:
        fast, blocks = copy.copy(self), [parts.FastBlock(block, matrix) for block in self.decoder]  # shares everything else
        fast.__dict__.update(blocks=lambda: blocks, logits=parts.product_of(matrix, *self.output_table()))
        return fast

    def decode_with_attention(self, target: Tensor, encoded: Encoded) -> tuple[Tensor, Tensor]:
        seen: list[Any] = []
        blocks: Iterable[Any] = self.decoder[self.shown]
        layers = [block.cross.layer for block in blocks]
        hooks = [layer.register_forward_pre_hook(lambda *call: seen.append(call), with_kwargs=True) for layer in layers]
        try:
            decoded = self.decode(target, encoded)
        finally:
            for hook in hooks:
                hook.remove()
        looks = [layer.weights(*x, **options).mean(dim=1) for layer, x, options in seen]  # (B, T, S) of each block
        return decoded, torch.stack(looks).mean(dim=0)


def block_of(c: DecoderConfig, *, memory_dim: int | None = None, cross_heads: int | None = None) -> parts.Block:
    """Return an encoder block, or with ``memory_dim`` a decoder block with ``cross_heads`` (default ``heads``) on the memory."""
    dropouts: dict[str, Any] = {"attention_dropout": c.attention_dropout, "dropout": c.dropout}
    return parts.Block(
        c.dim,
        parts.Attention(c.dim, c.heads, **dropouts),
        parts.FeedForward(c.dim, c.mlp_dim, activation=c.activation, dropout=c.dropout, hidden_dropout=c.hidden_dropout),
        cross=None if memory_dim is None else parts.Attention(c.dim, cross_heads or c.heads, context_dim=memory_dim, **dropouts),
        norm=c.norm,
        norm_eps=c.norm_eps,
    )


def last_norm(c: DecoderConfig) -> nn.Module:
    """Return the norm after the last block; with post-norm blocks the identity, since their output is normalised."""
    return parts.norm_layer(c.dim, eps=c.norm_eps) if c.norm == "pre" else nn.Identity()


def _each_by_itself(count: int, length: int, device: torch.device) -> Tensor:
    """Return a causal mask, boolean (N, N), for ``count`` texts side by side; each token sees earlier tokens of its own text."""
    own = torch.ones(length, length, dtype=torch.bool, device=device).tril()
    return torch.block_diag(*[own] * count).bool()
