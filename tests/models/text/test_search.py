"""Writing texts: against a look at all texts, against transformers, and what holds of any model."""

import math
from dataclasses import dataclass
from itertools import product

import pytest
import torch
from torch import Tensor

import marian
from vitrail.errors import ConfigError
from vitrail.models.configs.texts import TextConfig
from vitrail.models.text.search import Written, beam_search, greedy
from vitrail.models.text.text_model import TextModel

PAD, START, END, WORDS = 0, 1, 2, (3, 4, 5, 6, 7)


@dataclass
class Memory:
    models: Tensor
    state: Tensor

    def select(self, rows: Tensor) -> None:
        self.models, self.state = self.models[rows], self.state[rows]

    def follow(self, parents: Tensor) -> None:
        self.state = self.state.gather(1, parents[..., None].expand(-1, -1, self.state.shape[2]))


class Many(TextModel):
    """Many random models in one, small recurrent ones: the first token of a source says which of them writes."""

    def __init__(self, count: int = 100, vocabulary: int = 8, width: int = 6, seed: int = 0):
        super().__init__()
        torch.manual_seed(seed)
        self.config = TextConfig(vocabulary=vocabulary)
        self.first = torch.randn(count, width)
        self.mix, self.table = torch.randn(count, width, width), torch.randn(count, vocabulary, width)
        self.output = 2 * torch.randn(count, width, vocabulary)
        self.batches: list[int] = []

    def encode(self, source: Tensor) -> Tensor:
        return source

    def begin(self, encoded: Tensor) -> Memory:
        return Memory(encoded[:, 0], self.first[encoded[:, :1]])

    def step(self, tokens: Tensor, state: Memory) -> Tensor:
        self.batches.append(tokens.numel())
        state.state = torch.tanh(state.state @ self.mix[state.models] + self.table[state.models[:, None], tokens])
        return state.state @ self.output[state.models]

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        state = self.begin(source)
        return torch.cat([self.step(tokens, state) for tokens in target.split(1, dim=1)], dim=1)


MANY = torch.arange(100)[:, None]


@pytest.fixture
def many() -> Many:
    return Many()


@pytest.fixture(scope="module")
def translator() -> TextModel:
    return marian.as_ours(marian.learned(0))


def scores_of(model: TextModel, source: Tensor, text: Written) -> float:
    """The log-probability of a text for one source (1, S), by all of its tokens at once."""
    written = [*text.tokens, *([model.config.end] if text.finished else [])]
    with torch.no_grad():
        logits = model(source, torch.tensor([[model.config.start, *written[:-1]]]))
    return logits[0].log_softmax(-1)[range(len(written)), written].sum().item()


def gnmt_divisor(length: Tensor | int, alpha: float = 0.6) -> Tensor | float:
    return ((5 + length) / 6) ** alpha


@pytest.mark.parametrize("alpha", [0.6, 0.0])
def test_a_wide_beam_finds_the_best_of_all_texts(many, alpha):
    """All texts of up to three words that end, and all of four."""
    target = torch.tensor([[START, *words] for words in product(WORDS, repeat=4)])  # (625, 5)
    known = many(MANY.repeat_interleave(625, dim=0), target.repeat(100, 1)).log_softmax(-1).view(100, 625, 5, -1)[:, :, :4]
    words = known.gather(3, target[None, :, 1:, None].expand(100, -1, -1, 1))[..., 0].cumsum(2)  # (100, 625, 4)
    ended = torch.cat([torch.zeros(100, 625, 1), words[..., :3]], dim=2) + known[..., END]
    scores = torch.cat([ended, words[..., 3:]], dim=2) / gnmt_divisor(torch.arange(1, 6), alpha)
    found = beam_search(many, MANY, beams=125, max_length=4, length_penalty=alpha)
    for one, (best,) in zip(scores, found, strict=True):
        row, length = divmod(int(one.argmax()), 5)
        assert best.tokens == target[row, 1 : length + 1].tolist() and best.finished == (length < 4)
        assert best.normalized == pytest.approx(one.max().item(), abs=1e-5)


def test_greedy_takes_the_likeliest_token_each_time(many):
    (text,) = greedy(many, MANY[7:8], max_length=6)
    target = [START]
    while len(target) < 7 and END not in target:
        logits = many(MANY[7:8], torch.tensor([target]))[0, -1]
        logits[[PAD, START]] = -math.inf
        target.append(int(logits.argmax()))
    assert text.tokens == [token for token in target[1:] if token != END] and text.finished == (END in target)


def test_scores_are_the_ones_of_the_text_as_a_whole(many, translator):
    for model, source in ((many, MANY), (translator, marian.sentences(20, seed=1))):
        found = [[text] for text in greedy(model, source, max_length=9)]
        found += beam_search(model, source, beams=3, max_length=9, best=3)
        for row, texts in enumerate(found):
            for text in texts:
                alone = source[row % len(source)][None]
                assert text.score == pytest.approx(scores_of(model, alone, text), rel=1e-5, abs=1e-5)
        for text in (text for texts in found[len(source) :] for text in texts):
            assert text.normalized == pytest.approx(text.score / gnmt_divisor(len(text.tokens) + 1), abs=1e-9)


def test_a_text_is_written_among_others_as_alone(translator):
    source, limits = marian.sentences(24, seed=2), torch.arange(24) % 9 + 1
    order = torch.randperm(24, generator=torch.Generator().manual_seed(0))
    for write in (
        lambda source, limits: [[text] for text in greedy(translator, source, max_length=limits)],
        lambda source, limits: beam_search(translator, source, beams=4, max_length=limits, best=4),
    ):
        whole = write(source, limits)
        shuffled = write(source[order], limits[order])
        for row in range(24):
            alone = write(source[row : row + 1, : int((source[row] != marian.PAD).sum())], int(limits[row]))[0]
            for texts in (shuffled[order.tolist().index(row)], alone):
                assert [text.tokens for text in texts] == [text.tokens for text in whole[row]]
                assert [text.score for text in texts] == pytest.approx([text.score for text in whole[row]], abs=1e-5)


def test_what_has_ended_is_computed_no_longer(many):
    texts = greedy(many, MANY, max_length=12)
    lengths = [len(text.tokens) + text.finished for text in texts]
    assert many.batches == [sum(length >= n for length in lengths) for n in range(1, max(lengths) + 1)]
    many.batches.clear()
    beam_search(many, MANY, beams=4, max_length=torch.arange(100) % 5 + 1)
    assert many.batches[0] == 100 and many.batches[1] <= 80 * 4 and many.batches[4] <= 20 * 4


def test_a_model_that_never_ends_is_stopped_at_the_greatest_length(many):
    limits = torch.arange(100) % 7 + 1
    banned = {PAD, START, END}
    found = [greedy(many, MANY, max_length=limits, banned=banned)]
    found += zip(*beam_search(many, MANY, beams=3, max_length=limits, banned=banned, best=3), strict=True)
    for texts in found:
        assert [len(text.tokens) for text in texts] == limits.tolist() and not any(text.finished for text in texts)


def test_neither_filling_nor_start_nor_what_is_banned_is_ever_written(many):
    many.output[..., [PAD, START]] = 9 * many.output[..., [3, 4]]
    for banned in (None, {PAD, START, 5}):
        texts = greedy(many, MANY, max_length=8, banned=banned)
        texts += [text for texts in beam_search(many, MANY, beams=4, max_length=8, banned=banned, best=4) for text in texts]
        seen = {token for text in texts for token in text.tokens}
        assert seen == set(WORDS) - (banned or set())
    assert PAD in {token for text in greedy(many, MANY, max_length=8, banned=()) for token in text.tokens}


def test_several_texts_are_sorted_and_no_two_alike(many):
    for texts in beam_search(many, MANY, beams=6, max_length=5, best=6):
        scores = [text.normalized for text in texts]
        assert len(texts) == 6 and scores == sorted(scores, reverse=True)
        assert len({(*text.tokens, text.finished) for text in texts}) == 6
    found = beam_search(many, MANY, beams=6, max_length=5, best=2)
    assert found == [texts[:2] for texts in beam_search(many, MANY, beams=6, max_length=5, best=6)]


def test_fewer_texts_than_beams_exist():
    model = Many(vocabulary=4)
    for texts in beam_search(model, MANY, beams=50, max_length=2, best=50):
        assert sorted((text.tokens, text.finished) for text in texts) == [([], True), ([3], True), ([3, 3], False)]


@pytest.mark.parametrize(("seed", "layers", "activation", "tied"), [(0, 1, "swish", False), (4, 1, "gelu", True)])
def test_it_writes_what_transformers_writes(seed, layers, activation, tied):
    theirs = marian.learned(seed, layers=layers, activation=activation, tied=tied)
    ours, source = marian.as_ours(theirs), marian.sentences(200, seed=seed)
    # transformers counts the start, and forces an end behind the longest text
    options = {"input_ids": source, "attention_mask": source != marian.PAD, "max_length": 14, "bad_words_ids": [[marian.PAD]]}

    def generated(**more) -> list[list[int]]:
        found = theirs.generate(**options, do_sample=False, **more)
        return [[token for token in row if token not in (marian.PAD, marian.END)] for row in found.tolist()]

    texts = greedy(ours, source, max_length=12)
    assert [text.tokens for text in texts] == generated(num_beams=1)
    assert len({tuple(text.tokens) for text in texts}) > 60 and {text.finished for text in texts} == {True, False}
    for count in (1, 2, 3):
        unrepeated = [text.tokens for text in greedy(ours, source, max_length=12, no_repeat=count)]
        assert unrepeated == generated(num_beams=1, no_repeat_ngram_size=count)
        assert unrepeated != [text.tokens for text in texts]
        how = {"length_penalty": 1.0}
        found = beam_search(ours, source, beams=3, max_length=12, length_offset=0, no_repeat=count, **how)
        assert [best.tokens for (best,) in found] == generated(num_beams=3, no_repeat_ngram_size=count, **how)
    for penalty in (1.0, 0.6):
        how = {"length_penalty": penalty}
        found = beam_search(ours, source, beams=4, max_length=12, length_offset=0, best=3, **how)
        expected = generated(num_beams=4, num_return_sequences=3, **how)
        assert [text.tokens for texts in found for text in texts] == expected


def test_the_model_is_in_evaluation_mode_meanwhile_and_as_before_afterwards(translator):
    translator.train()
    translator.encoder.eval()
    modes = []
    handle = translator.embedding.register_forward_hook(lambda *_: modes.append((translator.training, torch.is_grad_enabled())))
    for write in (greedy, lambda *args, **more: beam_search(*args, beams=2, **more)):
        write(translator, marian.sentences(2, seed=0), max_length=2)
        with pytest.raises(IndexError):
            write(translator, torch.tensor([[999]]), max_length=2)
        assert translator.training and translator.decoder[0].training and not translator.encoder[0].training
    handle.remove()
    translator.eval()
    assert set(modes) == {(False, False)}


def test_lengths_and_beams_that_cannot_be_are_refused(many):
    with pytest.raises(ConfigError, match="max_length is 0"):
        greedy(many, MANY[:2], max_length=torch.tensor([3, 0]))
    with pytest.raises(ConfigError, match="beams is 0"):
        beam_search(many, MANY, beams=0, max_length=3)
    with pytest.raises(ConfigError, match="best is 3"):
        beam_search(many, MANY, beams=2, max_length=3, best=3)
