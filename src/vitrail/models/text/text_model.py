"""The contract of every model that writes a text, token by token, of another text or of an image."""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail import parts
from vitrail.models.base import Model
from vitrail.models.configs.texts import COUNTED, TextConfig
from vitrail.models.signature import BATCH, Free, Shape

Aligned = tuple[list[str], list[str], Any]
"""Tokens of a source, tokens of its target, and the attention of the second to the first, (target, source)."""

LENGTH = Free("target_length", COUNTED)
"""Tokens of a target."""


class TextModel(Model):
    """A model of sources and of targets (B, T), numbers of tokens: it predicts the token that follows each of the target's.

    A source is a text, (B, S), or an image, (B, C, H, W). Where a source has several targets, these may be (B, K, T).
    """

    config: TextConfig

    def modules_but(self, *untouched: nn.Module) -> Iterator[nn.Module]:
        """Yield all modules outside some parts."""
        left_out = {module for part in untouched for module in part.modules()}
        yield from (module for module in self.modules() if module not in left_out)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Return logits of the token after each of the target's, from the source and what stands before alone.

        Args:
            source: texts, int64 (B, S), filled up with ``config.pad``, each with ``config.end`` at its end; or images.
            target: int64 (B, T), which begins with ``config.start``; or K of each source, (B, K, T).

        Returns:
            (B, T, vocabulary), or (B, K, T, vocabulary).
        """
        logits: Tensor = self.logits(self.decode(target, self.encode(source)))
        return logits

    def encode(self, source: Tensor) -> Any:
        """Return the state of sources that `decode` takes."""
        raise NotImplementedError

    def decode(self, target: Tensor, encoded: Any) -> Tensor:
        """Return the vectors that logits are read from, (B, T, D) or (B, K, T, D), of targets (B, T) or (B, K, T)."""
        raise NotImplementedError

    def begin(self, encoded: Any) -> Any:
        """Return the state of a search that has written nothing yet of one target for each of A sources, which `encode` has seen.

        Its ``select(rows)`` goes on with these sources (A',) alone; its ``follow(parents)`` with targets that continue these of
        each source's, (A, W'), of which one may stand several times.
        """
        raise NotImplementedError

    def step(self, tokens: Tensor, state: Any) -> Tensor:
        """Return logits (A, W, vocabulary) of what follows one more token of each of W targets of A sources, (A, W).

        The state takes the tokens up.
        """
        raise NotImplementedError

    def for_writing(self, matrix: parts.Matrix) -> "TextModel":
        """Return the model for `begin` and `step` alone, with products made by ``matrix``; itself if it has none."""
        return self

    def output_table(self) -> tuple[Tensor, Tensor | None]:
        """Return the table that logits are read off: W (vocabulary, D), and a bias (vocabulary,) or None."""
        raise NotImplementedError

    def logits(self, x: Tensor) -> Tensor:
        """``x Wᵀ + b``: (…, D) to (…, vocabulary)."""
        return F.linear(x, *self.output_table())

    def alignment(self, source: Tensor, target: Tensor) -> Tensor | None:
        """Return the weights of attention from each token of targets (B, T) to each of the source, (B, T, S); None without any.

        Rows sum to 1. It is the mean of all heads: of a translator in its last block, of a captioner in all blocks.
        """
        return self.decode_with_attention(target, self.encode(source))[1]

    def decode_with_attention(self, target: Tensor, encoded: Any) -> tuple[Tensor, Tensor | None]:
        """Return the result of `decode` of targets (B, T), and the `alignment`."""
        raise NotImplementedError

    def inputs(self) -> dict[str, Shape]:
        return {
            "source": Shape((BATCH, Free("source_length", COUNTED)), torch.int64),
            "target": Shape((BATCH, LENGTH), torch.int64),
        }

    def outputs(self) -> dict[str, Shape]:
        return {"logits": Shape((BATCH, LENGTH, self.config.vocabulary))}
