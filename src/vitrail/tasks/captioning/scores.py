"""Scores of captions against references: BLEU, ROUGE-L and CIDEr-D, as in COCO's evaluation."""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

Words = Sequence[Any]
"""Words, or the numbers of tokens."""
NGrams = Counter[tuple[Any, ...]]
LONGEST = 4
"""Words of the longest n-grams that are compared."""
SPREAD = 6.0
"""Standard deviation of the difference in length that CIDEr-D forgives."""
RECALL = 1.2
"""Weight of recall against precision in ROUGE-L."""
TINY, SMALL = 1e-15, 1e-9
"""Additions to the counts of COCO's BLEU, so that nothing is divided by zero."""
MARKS = range(0x300, 0x20000)
"""Range of Unicode with signs that follow a letter."""
JOINERS = "\u200c\u200d"
"""Invisible characters within words of Persian and of Indian languages."""
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f\u1780-\u17ff"  # Thai and Lao, Myanmar, Khmer
    "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"  # Han
    "\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f"  # Kana
)
"""Characters of scripts without spaces between words, each of which counts as a word; Hangul has spaces."""


def words(caption: str) -> list[str]:
    """Return the words of a caption as it is scored: in small letters, without punctuation; ``man's`` is two.

    In scripts without spaces each character is a word, since two people hardly ever write the same sentence.
    """
    text = caption.lower().replace("’", "'").replace("n't", " n't")
    return _pattern(marks=not text.isascii()).findall(text)


@cache
def _pattern(*, marks: bool) -> re.Pattern[str]:
    """Return a pattern of words; with ``marks`` it takes signs behind a letter, such as vowels in Hindi, which ``\\w`` lacks."""
    signs = "".join(chr(code) for code in MARKS if unicodedata.category(chr(code)).startswith("M"))
    letter = rf"[^\W{UNSPACED}]"
    word = rf"{letter}+(?:[{JOINERS}{signs}]+{letter}*)*" if marks else r"\w+"
    alone = rf"(?=\w)[{UNSPACED}][{JOINERS}{signs}]*|" if marks else ""
    return re.compile(rf"{alone}n't|{word}(?:[-.]{word})*|(?<=\w)'{word}")


def caption_scores(written: Sequence[Words], references: Sequence[Sequence[Words]]) -> dict[str, float]:
    """Return the scores of a caption for each image against its references, at least one, times 100.

    These are ``bleu1`` to ``bleu4`` (Papineni et al. 2002), ``rouge_l`` (Lin 2004) and ``cider_d`` (Vedantam et al. 2015,
    https://arxiv.org/abs/1411.5726), which counts in the references how rare words are and is 0 for a single image; and the
    number of ``different_captions``.
    """
    rarity = Rarity.of(references)
    return {
        **{f"bleu{n + 1}": 100 * score for n, score in enumerate(bleu(written, references))},
        "rouge_l": 100 * _mean(rouge_l(caption, own) for caption, own in zip(written, references, strict=True)),
        "cider_d": 100 * _mean(rarity.cider_d(*pair) for pair in zip(written, references, strict=True)),
        "different_captions": len({" ".join(caption) for caption in written}),
    }


def bleu(written: Sequence[Words], references: Sequence[Sequence[Words]]) -> list[float]:
    """Return BLEU with n-grams up to 1, 2, 3 and 4 words, of all captions together, from 0 to 1."""
    written_ngrams, right = [0] * LONGEST, [0] * LONGEST
    length = wanted = 0
    for caption, own in zip(written, references, strict=True):
        length += len(caption)
        wanted += min((abs(len(reference) - len(caption)), len(reference)) for reference in own)[1]  # the nearest length
        for n in range(LONGEST):
            ngrams, most = _ngrams(caption, n + 1), Counter[tuple[Any, ...]]()
            for reference in own:
                most |= _ngrams(reference, n + 1)
            written_ngrams[n] += ngrams.total()
            right[n] += (ngrams & most).total()
    ratio = (length + TINY) / (wanted + SMALL)
    brevity = math.exp(1 - 1 / ratio) if ratio < 1 else 1.0
    scores, product = [], 1.0
    for n in range(LONGEST):
        product *= (right[n] + TINY) / (written_ngrams[n] + SMALL)
        scores.append(brevity * product ** (1 / (n + 1)))
    return scores


def rouge_l(caption: Words, references: Sequence[Words]) -> float:
    """Return ROUGE-L, by the longest common subsequence of a caption and a reference, from 0 to 1."""
    common = [_common(caption, reference) for reference in references]
    precision = max(common) / max(1, len(caption))
    recall = max(count / max(1, len(reference)) for count, reference in zip(common, references, strict=True))
    if not (precision and recall):
        return 0.0
    return (1 + RECALL**2) * precision * recall / (recall + RECALL**2 * precision)


@dataclass(frozen=True)
class Rarity:
    """Number of images with each n-gram in their captions."""

    images: int
    count: NGrams

    @classmethod
    def of(cls, references: Sequence[Sequence[Words]]) -> "Rarity":
        """Count the n-grams of up to four words in all captions of each image."""
        count: NGrams = Counter()
        for own in references:
            count.update({ngram for caption in own for n in range(LONGEST) for ngram in _ngrams(caption, n + 1)})
        return cls(len(references), count)

    def cider_d(self, caption: Words, references: Sequence[Words]) -> float:
        """Return CIDEr-D of one image, from 0 to 10: rare words weigh more."""
        own = self.weighed(caption)
        return 10 * _mean(own.likeness(self.weighed(reference)) for reference in references)

    def weighed(self, caption: Words) -> "Weighed":
        """Return the count of each n-gram in a caption, times the logarithm of its rarity."""
        whole = math.log(self.images)
        weights = [
            {ngram: often * (whole - math.log(max(1, self.count[ngram]))) for ngram, often in _ngrams(caption, n + 1).items()}
            for n in range(LONGEST)
        ]
        return Weighed(len(caption), weights, [math.hypot(*each.values()) for each in weights])


@dataclass(frozen=True)
class Weighed:
    """The n-grams of a caption of so many words, with their weights."""

    length: int
    weights: list[dict[tuple[Any, ...], float]]
    """Weights of n-grams of one word, of two, and so on."""
    norms: list[float]

    def likeness(self, reference: "Weighed") -> float:
        """Return the mean cosine of n-grams of both, from 0 to 1; repeated words gain nothing, another length loses."""
        cosines = []
        for own, theirs, *norms in zip(self.weights, reference.weights, self.norms, reference.norms, strict=True):
            product = sum(min(weight, theirs[ngram]) * theirs[ngram] for ngram, weight in own.items() if ngram in theirs)
            cosines.append(product / math.prod(norms) if all(norms) else 0.0)
        difference = max(0, self.length - 1) - max(0, reference.length - 1)
        return math.exp(-(difference**2) / (2 * SPREAD**2)) * _mean(cosines)


def most_like_all(captions: Sequence[Words], others: Sequence[Words]) -> int:
    """Return the number of the caption that is most like all others: by the mean CIDEr-D where all n-grams weigh the same.

    Where the others are drawn from a model, it is the caption that the model expects to score best (decoding by minimum Bayes
    risk; Kumar & Byrne 2004, https://aclanthology.org/N04-1022).
    """
    alike = Rarity(images=2, count=NGrams())
    known = [alike.weighed(other) for other in others]
    means = [_mean(map(alike.weighed(caption).likeness, known)) for caption in captions]
    return means.index(max(means))


def _ngrams(caption: Words, n: int) -> NGrams:
    return Counter(tuple(caption[at : at + n]) for at in range(len(caption) - n + 1))


def _common(a: Words, b: Words) -> int:
    """Return the length of the longest common subsequence."""
    row = [0] * (len(b) + 1)
    for word in a:
        before = 0
        for place, other in enumerate(b):
            before, row[place + 1] = row[place + 1], before + 1 if word == other else max(row[place + 1], row[place])
    return row[-1]


def _mean(numbers: Iterable[float]) -> float:
    return sum(listed := list(numbers)) / max(1, len(listed))
