"""The interface of models that write a text token by token, from another text or an image."""

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
"""Source tokens, target tokens, and the attention from target to source, (target, source)."""

LENGTH = Free("target_length", COUNTED)
"""Number of tokens of a target."""


class TextModel(Model):
    """Base of models that predict the next token after each token of a target (B, T), given a source.

    A source is a text, (B, S), or an image, (B, C, H, W). Targets may be (B, K, T), K for each source.
    """

    config: TextConfig

    def modules_but(self, *untouched: nn.Module) -> Iterator[nn.Module]:
        """Yield all modules except those inside ``untouched``."""
        left_out = {module for part in untouched for module in part.modules()}
        yield from (module for module in self.modules() if module not in left_out)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Return the logits of the token after each target token, computed from the source and the target up to it.

        Args:
            source: texts, int64 (B, S), each ended by ``config.end`` and padded with ``config.pad``; or images.
            target: int64 (B, T), beginning with ``config.start``; or K per source, (B, K, T).

        Returns:
            (B, T, vocabulary), or (B, K, T, vocabulary).
        """
        logits: Tensor = self.logits(self.decode(target, self.encode(source)))
        return logits

    def encode(self, source: Tensor) -> Any:
        """Encode sources to the object that `decode` and `begin` take."""
        raise NotImplementedError

    def decode(self, target: Tensor, encoded: Any) -> Tensor:
        """Map targets (B, T) or (B, K, T) to the vectors that logits are computed from, (B, T, D) or (B, K, T, D)."""
        raise NotImplementedError

    def begin(self, encoded: Any) -> Any:
        """Return the state of a search before the first token, with one target for each of the A sources in ``encoded``.

        The state has two methods. ``select(rows)`` keeps these sources (A',). ``follow(parents)`` continues, for each source,
        the targets with these indices (A, W'); an index may be repeated.
        """
        raise NotImplementedError

    def step(self, tokens: Tensor, state: Any) -> Tensor:
        """Append one token to each of the W targets of A sources, (A, W), and return logits (A, W, vocabulary) of the next.

        The state is updated in place.
        """
        raise NotImplementedError

    def for_writing(self, matrix: parts.Matrix) -> "TextModel":
        """Return a model that supports `begin` and `step` only, with linear layers built by ``matrix``; by default ``self``."""
        return self

    def output_table(self) -> tuple[Tensor, Tensor | None]:
        """Return the output layer: weight W (vocabulary, D), and bias (vocabulary,) or None."""
        raise NotImplementedError

    def logits(self, x: Tensor) -> Tensor:
        """Compute ``x Wᵀ + b``: (…, D) to (…, vocabulary)."""
        return F.linear(x, *self.output_table())

    def alignment(self, source: Tensor, target: Tensor) -> Tensor | None:
        """Return the attention weights from target tokens (B, T) to source tokens, (B, T, S); None for a model without attention.

        Rows sum to 1. Weights are the mean over heads: in a translator of the last block, in a captioner of all blocks.
        """
        return self.decode_with_attention(target, self.encode(source))[1]

    def decode_with_attention(self, target: Tensor, encoded: Any) -> tuple[Tensor, Tensor | None]:
        """Return the result of `decode` for targets (B, T), and the attention weights as in `alignment`."""
        raise NotImplementedError

    def inputs(self) -> dict[str, Shape]:
        return {
            "source": Shape((BATCH, Free("source_length", COUNTED)), torch.int64),
            "target": Shape((BATCH, LENGTH), torch.int64),
        }

    def outputs(self) -> dict[str, Shape]:
        return {"logits": Shape((BATCH, LENGTH, self.config.vocabulary))}
