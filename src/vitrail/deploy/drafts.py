"""Writing faster: products that suit the processor, and several tokens looked at at once that a copy has drafted."""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from vitrail import parts
from vitrail.deploy.matrices import in_blocks, in_int8
from vitrail.models.text_model import TextModel

MOST_DRAFTED = 12
"""Tokens that are drafted at once."""


@dataclass
class Drafts:
    """A search of one text: what is remembered, how many tokens of that are written, and what is known of the next ones."""

    cache: parts.DecoderCache
    written: int = 0
    known: list[tuple[int, Tensor]] = field(default_factory=list)
    """Tokens that may be written next, one behind the other, and the logits (1, 1, vocabulary) behind each."""
    count: int = MOST_DRAFTED // 2

    def select(self, rows: Tensor) -> None:
        """Go on with the one source, or with none."""
        self.cache.select(rows)


class Drafted(TextModel):
    """A model for `greedy` of one text, for which a faster copy drafts (Leviathan et al. 2023, https://arxiv.org/abs/2211.17192).

    The copy writes a few tokens, the model looks at all of them at once: every logit is the model's own, and the better the
    drafts are, the fewer times its matrices have to be read. What both remember of the source must be the same.
    """

    def __init__(self, model: TextModel, draft: TextModel):
        super().__init__()
        self.model, self.draft, self.config = model, draft, model.config

    def begin(self, source: Tensor) -> Drafts:
        """Of one source (1, S)."""
        return Drafts(self.model.begin(source))

    def step(self, tokens: Tensor, state: Drafts) -> Tensor:
        """As `TextModel.step`, (1, 1) to (1, 1, vocabulary)."""
        state.written += 1
        if not (state.known and state.known[0][0] == tokens.item()):
            state.known = self._looked_ahead(tokens, state)
        return state.known.pop(0)[1]

    def _looked_ahead(self, tokens: Tensor, state: Drafts) -> list[tuple[int, Tensor]]:
        """The logits behind a token, and behind those that the copy would write after it."""
        state.count = min(MOST_DRAFTED, 2 * state.count) if not state.known else max(2, state.count // 2)
        state.cache.rewind(state.written - 1)
        drafted = [tokens]
        with contextlib.suppress(RuntimeError):  # 8 bits do not hold every number; the model itself says what is wrong with it
            while len(drafted) <= state.count and drafted[-1].item() != self.config.end:
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
        drafted = Drafted(fast, model.for_writing(in_int8))
        return drafted if _is_faster(drafted) else fast
    except (AttributeError, RuntimeError):  # no such products, or numbers that they cannot take
        return fast


@torch.inference_mode()
def _is_faster(drafted: Drafted) -> bool:
    """Whether eight drafts and a look at them take less time than eight steps, where one in five is in vain."""
    model, tokens = drafted.model, torch.full((1, 1), drafted.config.start)
    state = model.begin(tokens)
    model.step(tokens, state)

    def seconds(what: Callable[[], Any]) -> float:
        took = []
        for _ in range(4):
            begun = time.perf_counter()
            what()
            took.append(time.perf_counter() - begun)
            state.rewind(1)
        return min(took)

    alone, copied = (seconds(partial(which.step, tokens, state)) for which in (model, drafted.draft))
    looked = seconds(lambda: model.steps(tokens.expand(1, 8), state))
    return 8 * copied + looked < 0.8 * 8 * alone
