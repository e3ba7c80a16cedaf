"""Searches for the text that a model writes: the likeliest token each time, or several beginnings side by side (beam search)."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from vitrail.checks import require_at_most, require_positive
from vitrail.models.inference import evaluation_mode
from vitrail.models.text.text_model import TextModel

PENALTY, OFFSET = 0.6, 5
"""α and n by which Vaswani et al. 2017 compared texts of different lengths; see `beam_search`."""


@dataclass(frozen=True)
class Written:
    """A text that a model has written."""

    tokens: list[int]
    """The text without start and end."""
    score: float
    """The logarithm of its probability, its end included: a sum over its tokens."""
    normalized: float
    """The score by which `beam_search` compares texts of different lengths; in `greedy` the score."""
    finished: bool
    """True where the model has ended the text, False where the greatest length has."""


NOTHING = Written([], float("-inf"), float("-inf"), finished=False)
"""The text of a model for which no token is possible."""


def greedy(model: TextModel, source: Tensor, *, max_length: int | Tensor, **options: Any) -> list[Written]:
    """Write the likeliest token each time, for all sources at once; see `beam_search` for the ``options``."""
    return [best for (best,) in beam_search(model, source, beams=1, length_penalty=0, max_length=max_length, **options)]


def beam_search(
    model: TextModel,
    source: Tensor,
    *,
    beams: int,
    max_length: int | Tensor,
    length_penalty: float = PENALTY,
    length_offset: int = OFFSET,
    banned: Collection[int] | None = None,
    best: int = 1,
    no_repeat: int = 0,
    encoded: Any = None,
) -> list[list[Written]]:
    """Write the likeliest texts, following the ``beams`` likeliest beginnings of each length; what has ended leaves the batch.

    Texts are compared by ``score / ((n + |Y|) / (n + 1))^α``, where |Y| counts the end, also of a text that is cut before it.
    With α = 0.6 and n = 5 this is equation (14) of Wu et al. 2016 (https://arxiv.org/abs/1609.08144), as Vaswani et al. 2017
    use it; with α = 1 and n = 0 it is what ``generate`` of transformers does. A source is over when it has as many finished
    texts as beams, and its best beginning is no better than the worst of them at its present length.

    Args:
        model: any model of texts, in evaluation mode meanwhile.
        source: of B texts or images, as the model's `forward` takes it.
        beams: beginnings that are followed, and finished texts among which the best are chosen.
        max_length: the most tokens of a text, its end among them: of all texts, or of each (B,).
        length_penalty, length_offset: α and n.
        banned: tokens that are never written; pad and start by default.
        best: texts of each source that are returned.
        no_repeat: so many tokens in a row are written once in a text; 0 for no such rule.
        encoded: the result of the model's `encode` of the sources, where it is known already.

    Returns:
        For each source up to ``best`` texts, best first, no two alike.

    Raises:
        ConfigError: a length below one, or fewer beams than texts that are returned.
    """
    require_positive(beams=beams, best=best)
    require_at_most("best", best, beams)
    limits, banned, end = lengths_allowed(max_length, source), banned_tokens(model, banned), model.config.end
    finished = [_Finished(beams, limit, length_penalty, length_offset) for limit in limits.tolist()]
    live, tokens = _Beginnings.empty(len(source)), first_tokens(model, source)
    with evaluation_mode(model), torch.inference_mode():
        state = model.begin(model.encode(source) if encoded is None else encoded)
        while len(live.numbers):
            logits = model.step(tokens, state)
            repeats = _repeats(live.texts, no_repeat, logits)
            # twice as many as are kept, because half of them may end
            live, parents = live.continued(*_likeliest(logits, 2 * beams, banned, repeats), 2 * beams)
            ended = live.texts[..., -1] == end  # (A, 2·beams)
            for row, place in ended[:, :beams].nonzero().tolist():
                finished[live.numbers[row]].add(live.texts[row, place], live.scores[row, place].item(), finished=True)
            live.scores[ended] = float("-inf")
            live, chosen = live.best(beams)
            state.follow(parents.gather(1, chosen).to(source.device))
            on = torch.tensor([finished[number].go_on(live, row) for row, number in enumerate(live.numbers.tolist())])
            go_on(state, on, source.device)
            live = live.of(on)
            tokens = live.texts[..., -1].to(source.device)
    return [each.texts[:best] or [NOTHING] for each in finished]


@dataclass
class _Beginnings:
    """The k likeliest beginnings of the texts of A sources, likeliest first."""

    numbers: Tensor
    """Numbers of the sources, (A,)."""
    scores: Tensor
    """(A, k); minus infinity where there is no such beginning."""
    texts: Tensor
    """(A, k, length)."""

    @classmethod
    def empty(cls, sources: int) -> "_Beginnings":
        """Return a beginning of no tokens for each source."""
        return cls(torch.arange(sources), torch.zeros(sources, 1), torch.empty(sources, 1, 0, dtype=torch.int64))

    def continued(self, more: Tensor, tokens: Tensor, count: int) -> tuple["_Beginnings", Tensor]:
        """Return the likeliest ``count`` beginnings with one more token, and the place of each one's parent, (A, count).

        ``more`` and ``tokens``, (A, k, M), are the likeliest tokens after each beginning.
        """
        sums = (self.scores[..., None] + more).flatten(1)  # (A, k·M)
        scores, places = sums.topk(min(count, sums.shape[1]))
        parents = places // more.shape[2]
        written = tokens.flatten(1).gather(1, places)[..., None]
        texts = torch.cat([_gathered(self.texts, parents), written], dim=2)
        return _Beginnings(self.numbers, scores, texts), parents

    def best(self, count: int) -> tuple["_Beginnings", Tensor]:
        """Return the likeliest ``count`` of them, and their places, (A, count)."""
        scores, places = self.scores.topk(min(count, self.scores.shape[1]))
        return _Beginnings(self.numbers, scores, _gathered(self.texts, places)), places

    def of(self, rows: Tensor) -> "_Beginnings":
        """Return the beginnings of some sources, boolean (A,)."""
        return _Beginnings(self.numbers[rows], self.scores[rows], self.texts[rows])


def normalized(score: float, length: int, length_penalty: float = PENALTY, length_offset: int = OFFSET) -> float:
    """Return equation (14) of Wu et al. 2016 for a text of so many tokens, with its end; see `beam_search`."""
    return score / ((length_offset + length) / (length_offset + 1)) ** length_penalty


@dataclass
class _Finished:
    """The best ``room`` finished texts of one source."""

    room: int
    limit: int
    length_penalty: float
    length_offset: int
    texts: list[Written] = field(default_factory=list)

    def add(self, tokens: Tensor, score: float, *, finished: bool) -> None:
        """Take up a text, if it is among the best; a ``finished`` one has its end with it."""
        if score == float("-inf"):
            return
        text = tokens.tolist()[:-1] if finished else tokens.tolist()
        written = Written(text, score, self.normalized(score, len(text) + 1), finished)
        self.texts = sorted([*self.texts, written], key=lambda text: text.normalized, reverse=True)[: self.room]

    def go_on(self, beginnings: _Beginnings, row: int) -> bool:
        """Return whether the beginnings in a row of a batch are to be continued; at the greatest length they are taken up."""
        scores, length = beginnings.scores[row].tolist(), beginnings.texts.shape[2]
        full = len(self.texts) == self.room and self.normalized(scores[0], length) <= self.texts[-1].normalized
        if full or scores[0] == float("-inf"):
            return False
        if length < self.limit:
            return True
        for tokens, score in zip(beginnings.texts[row], scores, strict=True):
            self.add(tokens, score, finished=False)
        return False

    def normalized(self, score: float, length: int) -> float:
        return normalized(score, length, self.length_penalty, self.length_offset)


def lengths_allowed(max_length: int | Tensor, source: Tensor) -> Tensor:
    """Return the greatest length of each text, (B,)."""
    limits = torch.as_tensor(max_length).cpu().expand(len(source))
    if len(limits):
        require_positive(max_length=int(limits.min()))
    return limits


def banned_tokens(model: TextModel, banned: Collection[int] | None) -> list[int]:
    """Return the tokens that must not be written; a text whose start is also its end must be able to end."""
    c = model.config
    return sorted({c.pad, c.start} - {c.end} if banned is None else banned)


def first_tokens(model: TextModel, source: Tensor) -> Tensor:
    return torch.full((len(source), 1), model.config.start, device=source.device)  # the source may be of pixels


def go_on(state: Any, on: Tensor, device: torch.device) -> None:
    """Select some of a state's sources, boolean (A,)."""
    if not on.all():
        state.select(on.nonzero()[:, 0].to(device))


def _likeliest(logits: Tensor, count: int, banned: list[int], repeats: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the log-probabilities and numbers of the likeliest tokens, (…, vocabulary) to (…, count) each, on the CPU."""
    known = logits.float().log_softmax(dim=-1)  # over all tokens, as in training
    known[..., banned] = float("-inf")
    if repeats is not None:
        known[repeats] = float("-inf")
    best, tokens = known.topk(min(count, known.shape[-1]))
    return best.cpu(), tokens.cpu()


def _repeats(texts: Tensor, count: int, logits: Tensor) -> Tensor | None:
    """Return a mask, (…, vocabulary) as the logits, of tokens that would write ``count`` tokens in a row a second time.

    The texts are int64 (…, length). None where there can be no such tokens.
    """
    if not 0 < count <= texts.shape[-1]:
        return None
    windows = texts.to(logits.device).unfold(-1, count, 1)  # (…, places, count)
    behind_the_same = (windows[..., :-1] == windows[..., -1:, 1:]).all(dim=-1)  # the last count − 1 tokens, written before
    following = torch.where(behind_the_same, windows[..., -1], logits.shape[-1])
    mask = torch.zeros(*logits.shape[:-1], logits.shape[-1] + 1, dtype=torch.bool, device=logits.device)
    return mask.scatter_(-1, following, True)[..., :-1]


def _gathered(texts: Tensor, places: Tensor) -> Tensor:
    """Return the texts (A, k, length) at places (A, n): (A, n, length)."""
    return texts.gather(1, places[..., None].expand(-1, -1, texts.shape[2]))
