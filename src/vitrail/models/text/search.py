"""Greedy search and beam search for the text that a model writes."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from vitrail.checks import require_at_most, require_positive
from vitrail.models.inference import evaluation_mode
from vitrail.models.text.text_model import TextModel

PENALTY, OFFSET = 0.6, 5
"""α and n of Vaswani et al. 2017 for comparing texts of different lengths; see `beam_search`."""


@dataclass(frozen=True)
class Written:
    """A text that a model has written."""

    tokens: list[int]
    """The text without start and end."""
    score: float
    """Log-probability of the text with its end: the sum over its tokens."""
    normalized: float
    """The score divided by `beam_search`'s length penalty; in `greedy` equal to the score."""
    finished: bool
    """True if the model ended the text, False if it reached the maximum length."""


NOTHING = Written([], float("-inf"), float("-inf"), finished=False)
"""The text of a model whose tokens are all banned."""


def greedy(model: TextModel, source: Tensor, *, max_length: int | Tensor, **options: Any) -> list[Written]:
    """Write the most likely token at each step, for all sources at once; ``options`` as in `beam_search`."""
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
    """Write the most likely texts by beam search; finished sources leave the batch.

    Texts are compared by ``score / ((n + |Y|) / (n + 1))^α``, where the length |Y| counts the end token, even for a text that
    was cut before it. With α = 0.6 and n = 5 this is equation (14) of Wu et al. 2016 (https://arxiv.org/abs/1609.08144), as
    used by Vaswani et al. 2017; with α = 1 and n = 0 it is that of transformers' ``generate``. A source is finished once it has
    as many finished texts as beams, and its best beam, at its current length, scores no better than the worst of them.

    Args:
        model: any text model; it is in evaluation mode during the search.
        source: B texts or images, as in the model's `forward`.
        beams: number of beams, and of finished texts among which the best are selected.
        max_length: the most tokens of a text, its end included: an integer, or one for each source, (B,).
        length_penalty, length_offset: α and n.
        banned: tokens that are never written; pad and start by default.
        best: number of texts to return for each source.
        no_repeat: length of token n-grams that must not repeat in a text; 0 for no limit.
        encoded: the result of the model's `encode` for the sources, if already computed.

    Returns:
        Up to ``best`` different texts for each source, best first.

    Raises:
        ConfigError: a length below one, or ``best`` above ``beams``.
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
            # twice as many as beams, because up to half of them may end
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
    """The k best beams of A sources, best first."""

    numbers: Tensor
    """Indices of the sources in the batch, (A,)."""
    scores: Tensor
    """(A, k); minus infinity where there is no such beam."""
    texts: Tensor
    """(A, k, length)."""

    @classmethod
    def empty(cls, sources: int) -> "_Beginnings":
        """Return one empty beam for each source."""
        return cls(torch.arange(sources), torch.zeros(sources, 1), torch.empty(sources, 1, 0, dtype=torch.int64))

    def continued(self, more: Tensor, tokens: Tensor, count: int) -> tuple["_Beginnings", Tensor]:
        """Extend beams by one token, and return the best ``count`` of them and their parents' indices, (A, count).

        ``more`` are log-probabilities and ``tokens`` numbers of the M most likely tokens after each beam, (A, k, M).
        """
        sums = (self.scores[..., None] + more).flatten(1)  # (A, k·M)
        scores, places = sums.topk(min(count, sums.shape[1]))
        parents = places // more.shape[2]
        written = tokens.flatten(1).gather(1, places)[..., None]
        texts = torch.cat([_gathered(self.texts, parents), written], dim=2)
        return _Beginnings(self.numbers, scores, texts), parents

    def best(self, count: int) -> tuple["_Beginnings", Tensor]:
        """Return the best ``count`` beams and their indices, (A, count)."""
        scores, places = self.scores.topk(min(count, self.scores.shape[1]))
        return _Beginnings(self.numbers, scores, _gathered(self.texts, places)), places

    def of(self, rows: Tensor) -> "_Beginnings":
        """Return the beams of the sources where boolean ``rows`` (A,) is True."""
        return _Beginnings(self.numbers[rows], self.scores[rows], self.texts[rows])


def normalized(score: float, length: int, length_penalty: float = PENALTY, length_offset: int = OFFSET) -> float:
    """Return the score with length penalty, equation (14) of Wu et al. 2016; ``length`` includes the end. See `beam_search`."""
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
        """Add a text if it is among the best; with ``finished``, its last token is the end."""
        if score == float("-inf"):
            return
        text = tokens.tolist()[:-1] if finished else tokens.tolist()
        written = Written(text, score, self.normalized(score, len(text) + 1), finished)
        self.texts = sorted([*self.texts, written], key=lambda text: text.normalized, reverse=True)[: self.room]

    def go_on(self, beginnings: _Beginnings, row: int) -> bool:
        """Return whether a source's beams should be extended; beams at the maximum length are added as texts."""
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
    """Return the maximum length of each text, (B,)."""
    limits = torch.as_tensor(max_length).cpu().expand(len(source))
    if len(limits):
        require_positive(max_length=int(limits.min()))
    return limits


def banned_tokens(model: TextModel, banned: Collection[int] | None) -> list[int]:
    """Return the tokens that must not be written, by default pad and start; the end token is always allowed by default."""
    c = model.config
    return sorted({c.pad, c.start} - {c.end} if banned is None else banned)


def first_tokens(model: TextModel, source: Tensor) -> Tensor:
    return torch.full((len(source), 1), model.config.start, device=source.device)  # int64, also if the source is an image


def go_on(state: Any, on: Tensor, device: torch.device) -> None:
    """Keep the state's sources where boolean ``on`` (A,) is True."""
    if not on.all():
        state.select(on.nonzero()[:, 0].to(device))


def _likeliest(logits: Tensor, count: int, banned: list[int], repeats: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return log-probabilities and numbers of the most likely tokens: (…, vocabulary) to (…, count) each, on the CPU."""
    known = logits.float().log_softmax(dim=-1)  # normalised before tokens are banned, as in training
    known[..., banned] = float("-inf")
    if repeats is not None:
        known[repeats] = float("-inf")
    best, tokens = known.topk(min(count, known.shape[-1]))
    return best.cpu(), tokens.cpu()


def _repeats(texts: Tensor, count: int, logits: Tensor) -> Tensor | None:
    """Return a mask shaped like the logits, (…, vocabulary), True for tokens that would repeat an n-gram of ``count`` tokens.

    Texts are int64 (…, length). The result is None if the texts are shorter than an n-gram.
    """
    if not 0 < count <= texts.shape[-1]:
        return None
    windows = texts.to(logits.device).unfold(-1, count, 1)  # (…, places, count)
    behind_the_same = (windows[..., :-1] == windows[..., -1:, 1:]).all(dim=-1)  # n-grams that begin as the next one
    following = torch.where(behind_the_same, windows[..., -1], logits.shape[-1])
    mask = torch.zeros(*logits.shape[:-1], logits.shape[-1] + 1, dtype=torch.bool, device=logits.device)
    return mask.scatter_(-1, following, True)[..., :-1]


def _gathered(texts: Tensor, places: Tensor) -> Tensor:
    """Select texts (A, k, length) by indices (A, n): (A, n, length)."""
    return texts.gather(1, places[..., None].expand(-1, -1, texts.shape[2]))
