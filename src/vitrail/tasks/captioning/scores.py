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
"""Words, or token ids."""
NGrams = Counter[tuple[Any, ...]]
LONGEST = 4
"""Number of words in the longest n-grams."""
SPREAD = 6.0
"""Standard deviation of CIDEr-D's Gaussian penalty on the difference in length."""
RECALL = 1.2
"""Weight of recall against precision in ROUGE-L."""
TINY, SMALL = 1e-15, 1e-9
"""Constants that COCO's BLEU adds to counts, to avoid a division by zero."""
MARKS = range(0x300, 0x20000)
"""Range of Unicode that holds combining marks."""
JOINERS = "\u200c\u200d"
"""Invisible characters inside words of Persian and of Indian languages."""
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f\u1780-\u17ff"  # Thai and Lao, Myanmar, Khmer
    "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"  # Han
    "\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f"  # Kana
)
"""Characters of scripts without spaces between words, each of which counts as a word; Hangul has spaces."""


def words(caption: str) -> list[str]:
    """Return the words of a caption for scoring: in lower case, without punctuation; ``man's`` becomes two words.

    In scripts without spaces each character is a word: whole sentences as words would almost never match.
    """
    text = caption.lower().replace("’", "'").replace("n't", " n't")
    return _pattern(marks=not text.isascii()).findall(text)


@cache
def _pattern(*, marks: bool) -> re.Pattern[str]:
    """Return a pattern of words; with ``marks`` it includes combining marks, such as vowels in Hindi, which ``\\w`` excludes."""
    signs = "".join(chr(code) for code in MARKS if unicodedata.category(chr(code)).startswith("M"))
    letter = rf"[^\W{UNSPACED}]"
    word = rf"{letter}+(?:[{JOINERS}{signs}]+{letter}*)*" if marks else r"\w+"
    alone = rf"(?=\w)[{UNSPACED}][{JOINERS}{signs}]*|" if marks else ""
    return re.compile(rf"{alone}n't|{word}(?:[-.]{word})*|(?<=\w)'{word}")


def caption_scores(written: Sequence[Words], references: Sequence[Sequence[Words]]) -> dict[str, float]:
    """Return the scores, times 100, of one caption for each image against the image's references (at least one).

    These are ``bleu1`` to ``bleu4`` (Papineni et al. 2002), ``rouge_l`` (Lin 2004) and ``cider_d`` (Vedantam et al. 2015,
    https://arxiv.org/abs/1411.5726), and the number of ``different_captions``. CIDEr-D weighs words by their rarity in the
    references, so it is 0 for a single image.
    """
    rarity = Rarity.of(references)
    return {
        **{f"bleu{n + 1}": 100 * score for n, score in enumerate(bleu(written, references))},
        "rouge_l": 100 * _mean(rouge_l(caption, own) for caption, own in zip(written, references, strict=True)),
        "cider_d": 100 * _mean(rarity.cider_d(*pair) for pair in zip(written, references, strict=True)),
        "different_captions": len({" ".join(caption) for caption in written}),
    }


def bleu(written: Sequence[Words], references: Sequence[Sequence[Words]]) -> list[float]:
    """Return BLEU with n-grams up to 1, 2, 3 and 4 words, over all captions together, from 0 to 1."""
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
    """Document frequency: for each n-gram, the number of images with this n-gram in their captions."""

    images: int
    count: NGrams

    @classmethod
    def of(cls, references: Sequence[Sequence[Words]]) -> "Rarity":
        """Count for each n-gram of up to four words the images whose captions contain it."""
        count: NGrams = Counter()
        for own in references:
            count.update({ngram for caption in own for n in range(LONGEST) for ngram in _ngrams(caption, n + 1)})
        return cls(len(references), count)

    def cider_d(self, caption: Words, references: Sequence[Words]) -> float:
        """Return CIDEr-D of one image, from 0 to 10: rare words weigh more."""
        own = self.weighed(caption)
        return 10 * _mean(own.likeness(self.weighed(reference)) for reference in references)

    def weighed(self, caption: Words) -> "Weighed":
        """Return the weight of each n-gram in a caption: its count times the logarithm of its rarity (TF-IDF)."""
        whole = math.log(self.images)
        weights = [
            {ngram: often * (whole - math.log(max(1, self.count[ngram]))) for ngram, often in _ngrams(caption, n + 1).items()}
            for n in range(LONGEST)
        ]
        return Weighed(len(caption), weights, [math.hypot(*each.values()) for each in weights])


@dataclass(frozen=True)
class Weighed:
    """The n-grams of a caption with ``length`` words, and their weights."""

    length: int
    weights: list[dict[tuple[Any, ...], float]]
    """Weights of the n-grams of one word, of two words, and so on."""
    norms: list[float]

    def likeness(self, reference: "Weighed") -> float:
        """Return the mean cosine of the n-gram weights of both captions, from 0 to 1.

        Repeated words do not increase it, and a difference in length decreases it.
        """
        cosines = []
        for own, theirs, *norms in zip(self.weights, reference.weights, self.norms, reference.norms, strict=True):
            product = sum(min(weight, theirs[ngram]) * theirs[ngram] for ngram, weight in own.items() if ngram in theirs)
            cosines.append(product / math.prod(norms) if all(norms) else 0.0)
        difference = max(0, self.length - 1) - max(0, reference.length - 1)
        return math.exp(-(difference**2) / (2 * SPREAD**2)) * _mean(cosines)


def most_like_all(captions: Sequence[Words], others: Sequence[Words]) -> int:
    """Return the index of the caption with the largest mean CIDEr-D to all ``others``, where all n-grams weigh the same.

    If the others are sampled from a model, this is minimum Bayes risk decoding (Kumar & Byrne 2004,
    https://aclanthology.org/N04-1022).
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
