"""A check of sentences with their translations: how many, how long, and which are there more than once."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from vitrail.data.items import Issue
from vitrail.data.text.pairs import PairData, open_pairs


@dataclass(frozen=True)
class PairCheck:
    """What a check of sentences found.

    Kinds of issues: ``leak`` (a sentence of training that is in another split as well); of notices: ``repeated`` (a sentence
    that is in a split more than once with the same translation).
    """

    data: PairData
    issues: list[Issue]
    """What is wrong; ``faults`` in the document."""
    notices: list[Issue]

    @property
    def words(self) -> dict[str, dict[str, float]]:
        """Of the sentences of each language, the median of their words and the most."""
        counted = [(len(pair.source.split()), len(pair.target.split())) for pair in self.data.split("all")]
        return {
            language: {"median": median(counts), "max": max(counts)}
            for language, counts in zip(self.data.languages, zip(*counted, strict=True), strict=True)
        }

    def to_json(self) -> dict[str, Any]:
        """Everything, as one JSON document."""
        return {
            "source": self.data.source,
            "languages": list(self.data.languages),
            "sentences": sum(map(len, self.data.splits.values())),
            "splits": {split: len(pairs) for split, pairs in self.data.splits.items()},
            "words": self.words,
            "faults": [vars(issue) for issue in self.issues],
            "notices": [vars(notice) for notice in self.notices],
        }


def check_pairs(data: str | Path, languages: tuple[str, str]) -> PairCheck:
    """Read sentences, as `open_pairs` does, and look for those that are there more than once.

    Raises:
        DataError: nothing there, no such language, or the first line that is no pair.
    """
    found = open_pairs(data, languages)
    known = {pair.source: pair.name for pair in found.splits["train"]}
    issues = [
        Issue("leak", pair.name, f"is in training as well: {known[pair.source]}")
        for split in ("val", "test")
        for pair in found.splits[split]
        if pair.source in known
    ]
    notices = []
    for split, pairs in found.splits.items():
        times = Counter((pair.source, pair.target) for pair in pairs)
        first = {(pair.source, pair.target): pair.name for pair in reversed(pairs)}
        notices += [Issue("repeated", first[pair], f"{count} times in {split}") for pair, count in times.items() if count > 1]
    return PairCheck(found, issues, notices)
