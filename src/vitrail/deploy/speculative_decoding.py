"""Writing faster: products that suit the processor, and several tokens looked at at once that a copy has drafted."""

import contextlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from vitrail import parts
from vitrail.deploy.export.packed_linear import in_blocks, in_int8
from vitrail.models.text.text_model import TextModel

MOST_DRAFTED = 12
"""Tokens that are drafted at once."""
DEAREST = 2 / 3
"""What a draft may cost, in steps of the model: one in five may be in vain, and something must be gained."""
CREDIT = 4.0
"""Steps of the model that drafts may lose before any is right."""
SHARE = 0.03
"""Share of a step that drafts may lose besides with every step."""


@dataclass
class Drafts:
    """A search of one text: what is remembered, how many tokens of that are written, and what is known of the next ones."""

    cache: parts.DecoderCache
    written: int = 0
    known: list[tuple[int, Tensor]] = field(default_factory=list)
    """Tokens that may be written next, one behind the other, and the logits (1, 1, vocabulary) behind each."""

    def select(self, rows: Tensor) -> None:
        """Go on with the one source, or with none."""
        self.cache.select(rows)


class Drafted(TextModel):
    """A model for `greedy` of one text, for which a faster copy drafts (Leviathan et al. 2023, https://arxiv.org/abs/2211.17192).

    The copy writes a few tokens, the model looks at all of them at once: every logit is the model's own, and the better the
    drafts are, the fewer times its matrices have to be read. What both remember of the source must be the same.

    Over all texts ``credit`` keeps account in steps of the model: a draft costs its price, one that is right spares a step.
    Where it is used up the model writes alone, and every step gives a little of it back, for another try. ``count``, how many
    are drafted at once, grows with every draft that is right, and is halved by one that is wrong.

    Args:
        model: what says which token follows.
        draft: the copy.
        price: what a draft and the look at it cost, in steps of the model.
    """

    def __init__(self, model: TextModel, draft: TextModel, price: float):
        super().__init__()
        self.model, self.draft, self.config, self.price = model, draft, model.config, price
        self.credit, self.count = CREDIT, MOST_DRAFTED // 2

    def encode(self, source: Tensor) -> Any:
        return self.model.encode(source)

    def begin(self, encoded: Any) -> Drafts:
        """Of one source."""
        return Drafts(self.model.begin(encoded))

    def step(self, tokens: Tensor, state: Drafts) -> Tensor:
        """As `TextModel.step`, (1, 1) to (1, 1, vocabulary)."""
        state.written += 1
        if state.known and state.known[0][0] == tokens.item():
            self.credit, self.count = min(MOST_DRAFTED, self.credit + 1), min(MOST_DRAFTED, self.count + 1)
        else:
            if state.known:
                self.count = max(1, self.count // 2)
            state.known = self._looked_ahead(tokens, state)
        return state.known.pop(0)[1]

    def _looked_ahead(self, tokens: Tensor, state: Drafts) -> list[tuple[int, Tensor]]:
        """The logits behind a token, and behind those that the copy would write after it."""
        left = self.config.max_tokens - state.written  # places behind this token
        count, drafted = min(self.count, math.ceil(self.credit / self.price), left), [tokens]
        self.credit += SHARE
        state.cache.rewind(state.written - 1)
        if count <= 0:
            return [(int(tokens), self.model.step(tokens, state.cache))]
        with contextlib.suppress(RuntimeError):  # 8 bits do not hold every number; the model itself says what is wrong with it
            while len(drafted) <= count and drafted[-1].item() != self.config.end:
                self.credit -= self.price
                drafted.append(self.draft.step(drafted[-1], state.cache).argmax(dim=-1))
        state.cache.rewind(state.written - 1)
        row = torch.cat(drafted, dim=1)  # (1, 1 + count)
        return list(zip(row[0].tolist(), self.model.steps(row, state.cache).split(1, dim=1), strict=True))


def fast_copy(model: TextModel) -> TextModel:
    """What a model on this CPU writes with: itself where nothing is faster."""
    weight = next(model.parameters())
    return model.for_writing(in_blocks) if weight.device.type == "cpu" and weight.dtype == torch.float32 else model


def drafted_copy(model: TextModel, fast: TextModel) -> TextModel:
    """What a model writes one text with, without beams: its `fast_copy`, with drafts where these are worth their time."""
    if fast is model:
        return fast
    try:
        draft = model.for_writing(in_int8)
        price = _price(fast, draft)
    except (AttributeError, RuntimeError):  # no such products, or numbers that they cannot take
        return fast
    return Drafted(fast, draft, price) if price < DEAREST else fast


@torch.inference_mode()
def _price(model: TextModel, draft: TextModel) -> float:
    """What a draft and the look at it cost, in steps of the model, where eight are looked at with the token before them."""
    tokens = torch.full((1, 1), model.config.start)
    state = model.begin(model.encode(tokens))
    model.step(tokens, state)
    ways = (partial(model.step, tokens), partial(draft.step, tokens), partial(model.steps, tokens.expand(1, 9)))
    turns = [[_seconds(way, state) for way in ways] for _ in range(6)]  # in turns: what disturbs one disturbs the others
    alone, copied, looked = map(min, zip(*turns, strict=True))
    return max(0.1, (8 * copied + looked - alone) / (8 * alone))


def _seconds(way: Callable[[parts.DecoderCache], Tensor], state: parts.DecoderCache) -> float:
    """How long it takes to write something behind the first token."""
    state.rewind(1)
    begun = time.perf_counter()
    way(state)
    return time.perf_counter() - begun
