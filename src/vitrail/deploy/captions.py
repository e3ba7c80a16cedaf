"""Pictures in, sentences about them out, with the place that the model looked at for each word."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitrail.checks import require_at_most, require_positive
from vitrail.data.ahead import answer_ahead
from vitrail.data.decode import Source
from vitrail.data.text.dataset import filled
from vitrail.deploy.drafts import fast_copy
from vitrail.deploy.pictures import Picture, pictures_of
from vitrail.errors import DataError, ModelFileError
from vitrail.models.search import Written
from vitrail.runtime.device import pick_device
from vitrail.tasks.captioning import write
from vitrail.weights.captioner import TrainedCaptioner, open_captioner

BEAMS, MOST_BEAMS = 3, 64
LONGEST = 64
"""Tokens of a caption."""


@dataclass(frozen=True)
class Word:
    """A word of a caption."""

    text: str
    score: float
    """Its probability behind the words before it."""
    look: np.ndarray | None = None
    """How much the model looked at each patch of the image, (rows, columns); with what it looked at beside them the sum is 1."""


@dataclass(frozen=True)
class Caption:
    """A sentence about a picture."""

    text: str
    score: float
    """The logarithm of its probability, its end included."""
    words: tuple[Word, ...]

    def to_json(self, image: str) -> dict[str, Any]:
        """As ``vitrail caption --json`` has it."""
        words = [{"word": word.text, "score": round(word.score, 4)} for word in self.words]
        return {"image": image, "caption": self.text, "score": round(self.score, 4), "words": words}


class Writer:
    """A trained captioner, ready to answer.

    Args:
        model: a captioner, or the MODEL that it is behind.
        beams: captions that are followed side by side; 1 takes the likeliest token each time.
        no_repeat: so many tokens in a row are written once in a caption; 0 for no such rule.
    """

    def __init__(self, model: str | Path | TrainedCaptioner, *, beams: int = BEAMS, no_repeat: int = 0):
        require_positive(beams=beams)
        require_at_most("beams", beams, MOST_BEAMS)
        self.trained = model if isinstance(model, TrainedCaptioner) else open_captioner(model)
        self.device = pick_device()
        self.model = self.trained.model.to(self.device).eval()
        self.preparation, self.tokenizer, self.beams, self.no_repeat = (
            self.trained.preparation, self.trained.tokenizer, beams, no_repeat,
        )  # fmt: skip
        self.fast = fast_copy(self.model)

    @torch.inference_mode()
    def captions(self, pixels: Tensor, *, attention: bool = False) -> list[Caption]:
        """A caption for each image, uint8 (B, C, H, W); with ``attention`` its words know where the model looked.

        What the model looked at is found behind the search, of the captions that are given alone, so that the search itself
        runs with the fastest kernels.
        """
        images = self.preparation.normalize(pixels.to(self.device))
        encoded, c = self.model.encode(images), self.trained.config
        longest = min(LONGEST, c.max_tokens)
        options: dict[str, Any] = {"max_length": longest, "no_repeat": self.no_repeat, "encoded": encoded}
        written = write(self.fast, images, beams=self.beams, **options)
        rows = [[*one.tokens, *[c.end] * one.finished] for one in written]
        labels = filled(rows, c.pad).to(self.device)
        target = torch.cat([torch.full_like(labels[:, :1], c.start), labels[:, :-1]], dim=1)
        known = self.model.logits(self.model.decode(target, encoded)).float().log_softmax(dim=-1)
        scores = known.gather(-1, labels[..., None])[..., 0].tolist()
        looks: Any = self._looks(encoded, target) if attention else [None] * len(rows)
        return [self._caption(*each) for each in zip(written, scores, looks, strict=True)]

    def _looks(self, encoded: Any, target: Tensor) -> list[np.ndarray | None]:
        """Where the model looked for each token of each text, (T, rows, columns); None of a model without attention."""
        weights, c = self.model.alignment_of(encoded, target), self.trained.config.encoder
        if weights is None:
            return [None] * len(target)
        return list(weights[..., c.prefix :].unflatten(-1, c.grid).float().cpu().numpy())

    def _caption(self, written: Written, scores: list[float], looks: np.ndarray | None) -> Caption:
        if not math.isfinite(written.score):
            hint = "its weights are damaged, or too large"
            raise ModelFileError("the model gives no numbers", where="model", hint=hint)
        words = []
        for text, start, end in self._words(written.tokens):
            look = None if looks is None else looks[start:end].mean(axis=0)
            words.append(Word(text, math.exp(sum(scores[start:end])), look))
        return Caption(self.tokenizer.decode(written.tokens), written.score, tuple(words))

    def _words(self, tokens: Sequence[int]) -> Iterator[tuple[str, int, int]]:
        """The words that tokens make, each with the places of its first token and of the one behind its last."""
        pieces = self.tokenizer.pieces(tokens)
        starts = [place for place, piece in enumerate(pieces) if place == 0 or piece.startswith(" ")]
        for start, end in zip(starts, [*starts[1:], len(pieces)], strict=True):
            yield self.tokenizer.decode(tokens[start:end]), start, end


def caption(
    model: str | Path | TrainedCaptioner | Writer,
    images: Picture | Iterable[Picture],
    *,
    beams: int = BEAMS,
    no_repeat: int = 0,
    attention: bool = False,
    batch_size: int = 16,
) -> list[Caption]:
    """A sentence about every picture.

    >>> caption("runs/captions", ["cat.jpg", "dog.jpg"])[0].text  # doctest: +SKIP
    'A cat is sitting outside.'

    Args:
        model: a run folder, a model folder or a loaded captioner.
        images: as in `vitrail.predict`.
        beams, no_repeat: as in `Writer`.
        attention: whether each word of a caption is to know where the model looked, a map over the image's patches.
        batch_size: images per batch.

    Raises:
        ModelFileError: a model that writes no captions.
        DataError: an image that cannot be read.
    """
    writer = model if isinstance(model, Writer) else Writer(model, beams=beams, no_repeat=no_repeat)
    results = []
    for answers in captions_each(writer, pictures_of(images), batch_size=batch_size, attention=attention):
        for answer in answers:
            if isinstance(answer, DataError):
                raise answer
            results.append(answer)
    return results


def captions_each(
    writer: Writer, pictures: Sequence[Source], *, batch_size: int, attention: bool = False
) -> Iterator[list[Caption | DataError]]:
    """`caption`, batch by batch, with the error in place of a picture that cannot be read."""
    return answer_ahead(writer.preparation, pictures, batch_size, partial(writer.captions, attention=attention))
