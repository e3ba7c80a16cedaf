"""What every model promises that reads one text and writes another, token by token."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail import parts
from vitrail.models.base import Model
from vitrail.models.configs.texts import TextConfig


class TextModel(Model):
    """A model of sources (B, S) and targets (B, T), numbers of tokens: it tells the token that follows each of the target's."""

    config: TextConfig

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Logits of the token after each of the target's, from the source and what stands before alone.

        Args:
            source: int64 (B, S), filled up with ``config.pad``, each with ``config.end`` at its end.
            target: int64 (B, T), which begins with ``config.start``.

        Returns:
            (B, T, vocabulary).
        """
        logits: Tensor = self.logits(self.decode(target, self.encode(source)))
        return logits

    def encode(self, source: Tensor) -> Any:
        """What the decoder needs of sources (B, S): a state that `decode` takes."""
        raise NotImplementedError

    def decode(self, target: Tensor, encoded: Any) -> Tensor:
        """What logits are read from, (B, T, D), for all tokens of targets (B, T) at once."""
        raise NotImplementedError

    def begin(self, source: Tensor) -> Any:
        """The state of a search that has written nothing yet of one target for each of A sources.

        Its ``select(rows)`` goes on with these sources (A',) alone; its ``follow(parents)`` with targets that continue these of
        each source's, (A, W'), of which one may stand several times.
        """
        raise NotImplementedError

    def step(self, tokens: Tensor, state: Any) -> Tensor:
        """Logits (A, W, vocabulary) of what follows one more token of each of W targets of A sources, (A, W).

        The state takes the tokens up.
        """
        raise NotImplementedError

    def steps(self, tokens: Tensor, state: Any) -> Tensor:
        """As `step` of several tokens, one behind the other, of one target of each source: (A, N) to (A, N, vocabulary)."""
        return torch.cat([self.step(token, state) for token in tokens.split(1, dim=1)], dim=1)

    def for_writing(self, matrix: parts.Matrix) -> "TextModel":
        """The same model for `begin`, `step` and `steps` alone, whose products are made by ``matrix``; itself if it has none."""
        return self

    def output_table(self) -> tuple[Tensor, Tensor | None]:
        """What logits are read off: W (vocabulary, D), and a bias (vocabulary,) or None."""
        raise NotImplementedError

    def logits(self, x: Tensor) -> Tensor:
        """``x Wᵀ + b``: (…, D) to (…, vocabulary)."""
        return F.linear(x, *self.output_table())

    def alignment(self, source: Tensor, target: Tensor) -> Tensor | None:
        """How much each token of the target looked at each of the source, (B, T, S), rows sum to 1; None without attention."""
        raise NotImplementedError

    def dummy_inputs(self, batch: int = 1, length: int = 16) -> dict[str, Tensor]:
        """Texts of ``length`` tokens."""
        return {name: torch.zeros(batch, length, dtype=torch.int64, device="meta") for name in ("source", "target")}
