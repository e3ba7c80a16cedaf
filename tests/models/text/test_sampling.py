"""Texts drawn at random: as often as the model says, and the same whatever else is asked."""

from itertools import product

import pytest
import torch

import marian
from models.text.test_search import END, MANY, PAD, START, Many
from vitrail.errors import ConfigError
from vitrail.models.text.sampling import sample
from vitrail.models.text.search import greedy


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_texts_are_drawn_as_often_as_they_are_likely(temperature):
    """Of all texts of up to two tokens; a text of probability p is drawn with a deviation of √(p(1 − p)/n), here below 0.006."""
    many, drawn = Many(), 8000
    for source in (MANY[3:4], MANY[40:41]):
        (texts,) = sample(many, source, samples=drawn, max_length=2, temperature=temperature)
        for first, second in product(range(8), repeat=2):
            known = many(source, torch.tensor([[START, first]]))[0] / temperature
            known[:, [PAD, START]] = float("-inf")
            one, two = known.softmax(-1)
            expected, text = (
                (one[END], []) if first == END else (one[first] * two[second], [first, second][: 1 + (second != END)])
            )
            assert texts.count(text) / drawn == pytest.approx(expected.item(), abs=0.03)


def test_a_text_is_drawn_among_others_as_alone():
    model, source, limits = marian.as_ours(marian.learned(0)), marian.sentences(12, seed=2), torch.arange(12) % 5 + 1
    found = sample(model, source, samples=4, max_length=limits)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(0))
    assert [found[number] for number in order] == sample(model, source[order], samples=4, max_length=limits[order])
    assert found[5:6] == sample(model, source[5:6], samples=4, max_length=limits[5:6])
    for own, limit in zip(found, limits.tolist(), strict=True):
        assert len(own) == 4 and all(len(text) <= limit for text in own)
    assert len({tuple(text) for own in found for text in own}) > 12, "some differ"


def test_a_low_temperature_is_greedy():
    many = Many()
    found = sample(many, MANY, samples=2, max_length=6, temperature=1e-4)
    assert found == [[text.tokens] * 2 for text in greedy(many, MANY, max_length=6)]


def test_neither_filling_nor_start_nor_what_is_banned_is_ever_drawn():
    texts = sample(Many(), MANY, samples=9, max_length=6)
    assert not {PAD, START, END} & {token for own in texts for text in own for token in text}
    banned = sample(Many(), MANY, samples=9, max_length=6, banned=[PAD, START, END, 5])
    assert {len(text) for own in banned for text in own} == {6} and 5 not in {t for own in banned for text in own for t in text}


@pytest.mark.parametrize("options", [{"samples": 0}, {"max_length": 0}, {"temperature": 0.0}, {"temperature": -1.0}])
def test_what_cannot_be_is_refused(options):
    with pytest.raises(ConfigError, match=f"{next(iter(options))} is"):
        sample(Many(), MANY[:2], **{"samples": 2, "max_length": 3, **options})
