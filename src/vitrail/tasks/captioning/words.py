"""A caption word by word: how sure the model was of each, and where it looked for it."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitrail.data.text.dataset import behind_start, filled
from vitrail.data.text.tokens import Tokens
from vitrail.models.text.search import Written
from vitrail.models.text.text_model import TextModel
from vitrail.tasks.answer import Answer
from vitrail.tasks.answer_table import Row


@dataclass(frozen=True)
class Word:
    """A word of a caption."""

    text: str
    score: float
    """Its probability behind the words before it."""
    look: np.ndarray | None = None
    """How much the model looked at each patch of the image, (rows, columns); with what it looked at beside them the sum is 1."""


@dataclass(frozen=True)
class Caption(Answer):
    """A sentence about a picture."""

    text: str
    score: float
    """The logarithm of its probability, its end included where the greatest length has not cut it."""
    words: tuple[Word, ...]

    def to_json(self, name: str) -> dict[str, Any]:
        """As ``vitrail caption --json`` has it."""
        words = [{"word": word.text, "score": round(word.score, 4)} for word in self.words]
        return {"image": name, "caption": self.text, "score": round(self.score, 4), "words": words}

    def rows(self) -> list[Row]:
        return [[self.text, f"{self.score:.4f}"]]

    def lines(self) -> list[str]:
        """Return the caption as one line; it may have a line break in it."""
        return [" ".join(self.text.split())]


@torch.inference_mode()
def captions_of(
    model: TextModel, tokenizer: Tokens, encoded: Any, written: Sequence[Written], *, attention: bool = False
) -> list[Caption]:
    """The captions that a search has written, word by word.

    They pass the decoder once more, all tokens at once; so the search itself runs with the fastest kernels.

    Args:
        model: of images, in evaluation mode.
        tokenizer: of its captions.
        encoded: what the model's `encode` made of the images.
        written: the caption of each.
        attention: whether words know where the model looked; they never do in a model without attention.
    """
    c: Any = model.config
    rows = [[*one.tokens, *[c.end] * one.finished] for one in written]
    labels = filled(rows, c.pad, c.max_tokens).to(next(model.parameters()).device)
    target = behind_start(labels, c.start, c.pad)
    x, weights = model.decode_with_attention(target, encoded) if attention else (model.decode(target, encoded), None)
    known = model.logits(x).float().log_softmax(dim=-1)
    scores = known.gather(-1, labels[..., None])[..., 0].tolist()
    looks: Any = [None] * len(rows) if weights is None else _on_grid(weights, c)
    return [
        Caption(tokenizer.decode(one.tokens), one.score, tuple(_words(tokenizer, one.tokens, *each)))
        for one, *each in zip(written, scores, looks, strict=True)
    ]


def _on_grid(weights: Tensor, config: Any) -> np.ndarray:
    """Weights (B, T, S) of an image's tokens, at its patches: (B, T, rows, columns)."""
    encoder = config.encoder
    maps: np.ndarray = weights[..., encoder.prefix :].unflatten(-1, encoder.grid).float().cpu().numpy()
    return maps


def _words(tokenizer: Tokens, tokens: Sequence[int], scores: list[float], looks: np.ndarray | None) -> Iterator[Word]:
    """The words that tokens make; one begins where the text has a space."""
    pieces = tokenizer.pieces(tokens)
    starts = [place for place, piece in enumerate(pieces) if place == 0 or piece.startswith(" ")]
    for start, end in zip(starts, [*starts, len(pieces)][1:], strict=True):
        look = None if looks is None else looks[start:end].mean(axis=0)
        yield Word(tokenizer.decode(tokens[start:end]), math.exp(sum(scores[start:end])), look)
