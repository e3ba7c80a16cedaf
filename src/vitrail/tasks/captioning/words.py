"""A caption word by word, with the probability of each word and the model's attention for it."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from vitrail.data.text.dataset import behind_start, filled
from vitrail.data.text.tokens import Tokens
from vitrail.models.text.search import Written
from vitrail.models.text.text_model import TextModel
from vitrail.tasks.answer import Answer
from vitrail.tasks.answer_table import Row

Look = tuple[str, np.ndarray]
"""A word, and the attention to each patch, (rows, columns)."""


@dataclass(frozen=True)
class Word:
    """A word of a caption."""

    text: str
    score: float
    """Probability of the word, given the words before it."""
    look: np.ndarray | None = None
    """Attention to each patch of the image, (rows, columns); together with the attention to other tokens it sums to 1."""


@dataclass(frozen=True)
class Caption(Answer):
    """A caption of an image."""

    text: str
    score: float
    """Log-probability of the caption, with its end token unless it was cut at the maximum length."""
    words: tuple[Word, ...]

    @property
    def looks(self) -> list[Look]:
        """The words with their attention; empty if it was not requested or the model has none."""
        return [(word.text, word.look) for word in self.words if word.look is not None]

    def to_json(self, name: str) -> dict[str, Any]:
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
    """Return the captions of a search, split into words with their probabilities and attention.

    The decoder computes them again, for all tokens at once, so that the search itself can use the fastest kernels.

    Args:
        model: the captioning model, in evaluation mode.
        tokenizer: its tokens.
        encoded: the output of the model's `encode` for the images.
        written: the result of the search for each image.
        attention: whether to add the attention of each word, if the model has attention.
    """
    c: Any = model.config
    rows = [[*one.tokens, *[c.end] * one.finished] for one in written]
    labels = filled(rows, c.pad, c.max_tokens).to(next(model.parameters()).device)
    target = behind_start(labels, c.start, c.pad)
    x, weights = model.decode_with_attention(target, encoded) if attention else (model.decode(target, encoded), None)
    known = model.logits(x).float().log_softmax(dim=-1)
    scores = known.gather(-1, labels[..., None])[..., 0].tolist()
    looks: Any = [None] * len(rows)
    if weights is not None:  # (B, T, S) of an image's tokens, to (B, T, rows, columns) of its patches
        looks = weights[..., c.encoder.prefix :].unflatten(-1, c.encoder.grid).float().cpu().numpy()
    return [
        Caption(tokenizer.decode(one.tokens), one.score, tuple(_words(tokenizer, one.tokens, *each)))
        for one, *each in zip(written, scores, looks, strict=True)
    ]


def _words(tokenizer: Tokens, tokens: Sequence[int], scores: list[float], looks: np.ndarray | None) -> Iterator[Word]:
    """Yield the words of a caption; a word begins at a token with a leading space."""
    pieces = tokenizer.pieces(tokens)
    starts = [place for place, piece in enumerate(pieces) if place == 0 or piece.startswith(" ")]
    for start, end in zip(starts, [*starts, len(pieces)][1:], strict=True):
        look = None if looks is None else looks[start:end].mean(axis=0)
        yield Word(tokenizer.decode(tokens[start:end]), math.exp(sum(scores[start:end])), look)
