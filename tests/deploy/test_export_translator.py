"""A translator in int8 is refused where it surely loses chrF; a few sentences that change refuse nothing."""

import random
from types import SimpleNamespace

import pytest

from vitrail.deploy.problems import ExportError
from vitrail.tasks.translation.export import judge_texts, require_score
from vitrail.tasks.translation.task import TranslationMetrics

LETTERS = "abcdefghij"


def translations(count, wrong=0.0, seed=0):
    """Metrics of sentences of ten words, of which so many are not those of the reference."""
    references, errors = random.Random(0), random.Random(seed)
    metrics = TranslationMetrics(SimpleNamespace(pad=0), None)
    for number in range(count):
        wanted = references.choices(LETTERS, k=10)
        written = ["other" if errors.random() < wrong else word for word in wanted]
        metrics.texts.append((number, " ".join(written), " ".join(wanted)))
    return metrics


def judged(before, after):
    require_score(judge_texts(before, after), len(after.texts))


def test_what_few_sentences_lose_by_chance_is_kept():
    before, after = translations(30, 0.2, seed=1), translations(30, 0.21, seed=2)
    loss = judge_texts(before, after)
    assert loss.points > 1 > 0 > loss.least
    judged(before, after)


@pytest.mark.parametrize("count", [30, 300])
def test_a_translator_that_is_surely_worse_is_refused(count):
    with pytest.raises(ExportError, match=rf"int8 loses \d+\.\d points of chrF on {count} sentences, at least") as error:
        judged(translations(count, 0.1), translations(count, 0.4, seed=1))
    assert "--force" in error.value.hint


def test_the_order_of_the_sentences_does_not_matter():
    before, after = translations(30, 0.2), translations(30, 0.3)
    after.texts.reverse()
    assert judge_texts(before, after) == judge_texts(before, translations(30, 0.3))


@pytest.mark.parametrize("count", [1, 30])
def test_one_translation_of_all_sentences_judges_nothing(count):
    same = translations(count)
    same.texts = [(number, ".", wanted) for number, _, wanted in same.texts]
    with pytest.raises(ExportError, match="has the same prediction for all sentences"):
        judged(same, same)
