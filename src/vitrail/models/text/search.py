"""The text that a model writes for a source: the likeliest token each time, or several beginnings side by side (beam search)."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from vitrail.checks import require_at_most, require_positive
from vitrail.models.inference import evaluation_mode
from vitrail.models.text.text_model import TextModel

EarlyStopping = bool | Literal["never"]
"""When a source is over that has as many finished texts as beams; see `beam_search`."""
PENALTY, OFFSET = 0.6, 5
"""By which texts of different lengths are compared, as Vaswani et al. 2017 did."""


@dataclass(frozen=True)
class Written:
    """A text that a model has written."""

    tokens: list[int]
    """Without start and end."""
    score: float
    """The logarithm of its probability, its end included: a sum over its tokens."""
    normalized: float
    """The score by which `beam_search` compares texts of different lengths; in `greedy`, which compares none, the score."""
    finished: bool
    """Whether the model has ended it; else the greatest length has."""


def greedy(
    model: TextModel,
    source: Tensor,
    *,
    max_length: int | Tensor,
    banned: Collection[int] | None = None,
    no_repeat: int = 0,
    encoded: Any = None,
) -> list[Written]:
    """Write the likeliest token each time, for all sources at once; a text that has ended leaves the batch.

    Args:
        model: any model of texts, in evaluation mode meanwhile.
        source: of B texts or images, as the model's `forward` takes it.
        max_length: how many tokens are written at most, the end among them: of all texts, or of each (B,).
        banned: tokens that are never written; pad and start by default.
        no_repeat: so many tokens in a row are written once in a text; 0 for no such rule.
        encoded: what the model's `encode` made of the sources, where that is known already.

    Raises:
        ConfigError: a length below one.
    """
    limits, banned, end = lengths_allowed(max_length, source), banned_tokens(model, banned), model.config.end
    going, tokens = torch.arange(len(source)), first_tokens(model, source)  # (A,) and (A, 1), of the A texts that go on
    texts: list[list[int]] = [[] for _ in source]
    scores, finished, length = torch.zeros(len(source)), torch.zeros(len(source), dtype=torch.bool), 0
    with evaluation_mode(model), torch.inference_mode():
        state = model.begin(model.encode(source) if encoded is None else encoded)
        while len(going):
            length += 1
            logits = model.step(tokens, state)
            texts_so_far = torch.tensor([texts[number] for number in going])[:, None] if no_repeat else None
            repeats = None if texts_so_far is None else _repeats(texts_so_far, no_repeat, logits)
            more, best = (t[:, 0] for t in _likeliest(logits, 1, banned, repeats))  # (A, 1) each
            scores[going] += more[:, 0]
            finished[going] = best[:, 0] == end
            for number, token in zip(going.tolist(), best[:, 0].tolist(), strict=True):
                texts[number].append(token)
            on = ~finished[going] & (limits[going] > length)
            go_on(state, on, source.device)
            going, tokens = going[on], best[on].to(source.device)
    return [
        Written(text[:-1] if ended else text, score, score, ended)
        for text, score, ended in zip(texts, scores.tolist(), finished.tolist(), strict=True)
    ]


def beam_search(
    model: TextModel,
    source: Tensor,
    *,
    beams: int,
    max_length: int | Tensor,
    length_penalty: float = PENALTY,
    length_offset: int = OFFSET,
    early_stopping: EarlyStopping = False,
    banned: Collection[int] | None = None,
    best: int = 1,
    no_repeat: int = 0,
    encoded: Any = None,
) -> list[list[Written]]:
    """Write the likeliest texts that are found where the ``beams`` likeliest beginnings of each length are kept.

    Texts are compared by ``score / ((n + |Y|) / (n + 1))^α``, where |Y| counts the end, also of a text that is cut before it.
    With α = 0.6 and n = 5 this is equation (14) of Wu et al. 2016 (https://arxiv.org/abs/1609.08144), as Vaswani et al. 2017
    use it; with α = 1 and n = 0 it is what ``generate`` of transformers does.

    Args:
        model, source, max_length, banned, no_repeat, encoded: as in `greedy`.
        beams: beginnings that are kept, and finished texts among which the best are chosen.
        length_penalty: α.
        length_offset: n.
        early_stopping: a source with as many finished texts as beams is over at once (True), when its best beginning is no
            better than the worst of them at its present length (False), or would not be at the greatest length ("never").
        best: texts of each source that are returned.

    Returns:
        For each source up to ``best`` texts, best first, no two alike.

    Raises:
        ConfigError: a length below one, or fewer beams than texts that are asked for.
    """
    require_positive(beams=beams, best=best)
    require_at_most("best", best, beams)
    limits, banned, end = lengths_allowed(max_length, source), banned_tokens(model, banned), model.config.end
    found = [_Found(beams, limit, length_penalty, length_offset, early_stopping) for limit in limits.tolist()]
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
                found[live.numbers[row]].add(live.texts[row, place], live.scores[row, place].item(), finished=True)
            live.scores[ended] = float("-inf")
            live, chosen = live.best(beams)
            state.follow(parents.gather(1, chosen).to(source.device))
            on = torch.tensor([found[number].go_on(live, row) for row, number in enumerate(live.numbers.tolist())])
            go_on(state, on, source.device)
            live = live.of(on)
            tokens = live.texts[..., -1].to(source.device)
    return [each.texts[:best] for each in found]


@dataclass
class _Beginnings:
    """The k likeliest beginnings of the texts of A sources, likeliest first."""

    numbers: Tensor
    """Of the sources, (A,)."""
    scores: Tensor
    """(A, k); minus infinity where there is no such beginning."""
    texts: Tensor
    """(A, k, length)."""

    @classmethod
    def empty(cls, sources: int) -> "_Beginnings":
        """One of no tokens for each source."""
        return cls(torch.arange(sources), torch.zeros(sources, 1), torch.empty(sources, 1, 0, dtype=torch.int64))

    def continued(self, more: Tensor, tokens: Tensor, count: int) -> tuple["_Beginnings", Tensor]:
        """The likeliest ``count`` beginnings with one more token, and of which beginning each comes, (A, count).

        ``more`` and ``tokens``, (A, k, M), are the likeliest tokens after each beginning.
        """
        sums = (self.scores[..., None] + more).flatten(1)  # (A, k·M)
        scores, places = sums.topk(min(count, sums.shape[1]))
        parents = places // more.shape[2]
        written = tokens.flatten(1).gather(1, places)[..., None]
        texts = torch.cat([_gathered(self.texts, parents), written], dim=2)
        return _Beginnings(self.numbers, scores, texts), parents

    def best(self, count: int) -> tuple["_Beginnings", Tensor]:
        """The likeliest ``count`` of them, and their places, (A, count)."""
        scores, places = self.scores.topk(min(count, self.scores.shape[1]))
        return _Beginnings(self.numbers, scores, _gathered(self.texts, places)), places

    def of(self, rows: Tensor) -> "_Beginnings":
        """Some of the sources, boolean (A,)."""
        return _Beginnings(self.numbers[rows], self.scores[rows], self.texts[rows])


def normalized(score: float, length: int, length_penalty: float = PENALTY, length_offset: int = OFFSET) -> float:
    """Equation (14) of Wu et al. 2016 for a text of so many tokens, with its end; see `beam_search`."""
    return score / ((length_offset + length) / (length_offset + 1)) ** length_penalty


@dataclass
class _Found:
    """The best ``room`` texts of one source, and when there can be no better ones."""

    room: int
    limit: int
    length_penalty: float
    length_offset: int
    early_stopping: EarlyStopping
    texts: list[Written] = field(default_factory=list)

    def normalized(self, score: float, length: int) -> float:
        """Equation (14) of Wu et al. 2016 for a text of so many tokens."""
        return normalized(score, length, self.length_penalty, self.length_offset)

    def add(self, tokens: Tensor, score: float, *, finished: bool) -> None:
        """Take up a text, if it is among the best; a ``finished`` one has its end with it."""
        if score == float("-inf"):
            return
        text = tokens.tolist()[:-1] if finished else tokens.tolist()
        written = Written(text, score, self.normalized(score, len(text) + 1), finished)
        self.texts = sorted([*self.texts, written], key=lambda text: text.normalized, reverse=True)[: self.room]

    def go_on(self, beginnings: _Beginnings, row: int) -> bool:
        """Whether these beginnings, row by row of a batch, are to be continued; at the greatest length they are taken up."""
        scores, length = beginnings.scores[row].tolist(), beginnings.texts.shape[2]
        if self._over(scores[0], length):
            return False
        if length < self.limit:
            return True
        for tokens, score in zip(beginnings.texts[row], scores, strict=True):
            self.add(tokens, score, finished=False)
        return False

    def _over(self, best: float, length: int) -> bool:
        """Whether no beginning of ``length`` tokens, the best of which has this score, is worth going on with."""
        if best == float("-inf") or len(self.texts) < self.room:
            return best == float("-inf")
        longest = self.limit + 1 if self.early_stopping == "never" and self.length_penalty > 0 else length
        return self.early_stopping is True or self.normalized(best, longest) <= self.texts[-1].normalized


def lengths_allowed(max_length: int | Tensor, source: Tensor) -> Tensor:
    """The greatest length of each text, (B,)."""
    limits = torch.as_tensor(max_length).cpu().expand(len(source))
    if len(limits):
        require_positive(max_length=int(limits.min()))
    return limits


def banned_tokens(model: TextModel, banned: Collection[int] | None) -> list[int]:
    """What must not be written; a text whose start is also its end must be able to end."""
    c = model.config
    return sorted({c.pad, c.start} - {c.end} if banned is None else banned)


def first_tokens(model: TextModel, source: Tensor) -> Tensor:
    return torch.full((len(source), 1), model.config.start, device=source.device)  # the source may be of pixels


def go_on(state: Any, on: Tensor, device: torch.device) -> None:
    """Only with some of the sources, boolean (A,)."""
    if not on.all():
        state.select(on.nonzero()[:, 0].to(device))


def _likeliest(logits: Tensor, count: int, banned: list[int], repeats: Tensor | None) -> tuple[Tensor, Tensor]:
    """The likeliest tokens after each text, (…, vocabulary) to their log-probabilities and numbers, (…, count) on the CPU."""
    known = logits.float().log_softmax(dim=-1)  # over all tokens, as in training
    known[..., banned] = float("-inf")
    if repeats is not None:
        known[repeats] = float("-inf")
    best, tokens = known.max(dim=-1, keepdim=True) if count == 1 else known.topk(min(count, known.shape[-1]))
    return best.cpu(), tokens.cpu()


def _repeats(texts: Tensor, count: int, logits: Tensor) -> Tensor | None:
    """Which tokens would write the same ``count`` tokens in a row for the second time, boolean (…, vocabulary), as the logits.

    The texts are int64 (…, length). None where there can be no such tokens.
    """
    if not 0 < count <= texts.shape[-1]:
        return None
    windows = texts.to(logits.device).unfold(-1, count, 1)  # (…, places, count)
    behind_the_same = (windows[..., :-1] == windows[..., -1:, 1:]).all(dim=-1)  # the last count − 1 tokens, written before
    following = torch.where(behind_the_same, windows[..., -1], logits.shape[-1])
    found = torch.zeros(*logits.shape[:-1], logits.shape[-1] + 1, dtype=torch.bool, device=logits.device)
    return found.scatter_(-1, following, True)[..., :-1]


def _gathered(texts: Tensor, places: Tensor) -> Tensor:
    """The texts (A, k, length) at places (A, n): (A, n, length)."""
    return texts.gather(1, places[..., None].expand(-1, -1, texts.shape[2]))
