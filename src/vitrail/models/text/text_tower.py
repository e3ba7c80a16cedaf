"""CLIP's text encoder, a causal Transformer (Radford et al. 2021, https://arxiv.org/abs/2103.00020, section 2.4)."""

from typing import Annotated

import torch
from pydantic import ConfigDict, Field
from torch import Tensor, nn

from vitrail import parts
from vitrail.errors import ConfigError
from vitrail.models.configs.base import Depth, Positive, Width
from vitrail.parts.feed_forward import Activation
from vitrail.settings import Settings


class TextTowerConfig(Settings):
    """Sizes of a text encoder."""

    model_config = ConfigDict(strict=True)  # read from files of other libraries only, never from the command line

    vocabulary: Positive
    """Number of different tokens."""
    length: Positive
    """Tokens of the longest text."""
    dim: Width
    depth: Depth
    heads: Width
    mlp_dim: Width
    output_dim: Width
    """Width of the embedding space that texts share with images."""
    activation: Activation = "quick-gelu"
    norm_eps: Annotated[float, Field(gt=0, lt=1)] = 1e-5


class TextTower(nn.Module):
    """A text encoder, whose vectors are in the space of the vectors of images."""

    def __init__(self, c: TextTowerConfig):
        super().__init__()
        self.config = c
        self.tokens = nn.Embedding(c.vocabulary, c.dim)
        self.position = nn.Parameter(torch.zeros(c.length, c.dim))
        self.blocks = nn.ModuleList(
            parts.Block(
                c.dim,
                parts.Attention(c.dim, c.heads),
                parts.FeedForward(c.dim, c.mlp_dim, activation=c.activation),
                norm_eps=c.norm_eps,
            )
            for _ in range(c.depth)
        )
        self.norm = parts.norm_layer(c.dim, eps=c.norm_eps)
        self.projection = nn.Linear(c.dim, c.output_dim, bias=False)

    def forward(self, tokens: Tensor, ends: Tensor) -> Tensor:
        """Map tokens (B, T) and the index of each text's last token (B,) to vectors (B, output_dim).

        Raises:
            ConfigError: the text has more tokens than the model has positions.
        """
        count = tokens.shape[1]
        if count > self.config.length:
            what = f"the text has {count} tokens, the model reads at most {self.config.length}"
            raise ConfigError(what, where="text", hint="give shorter texts")
        z = self.tokens(tokens) + self.position[:count]  # (B, T, D)
        past = torch.ones(count, count, dtype=torch.bool, device=tokens.device).tril()
        for block in self.blocks:
            z = block(z, mask=past)
        vectors: Tensor = self.projection(self.norm(z[torch.arange(len(z)), ends]))
        return vectors
