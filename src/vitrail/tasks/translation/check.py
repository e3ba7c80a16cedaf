"""A check of sentences with their translations: how many, how long, and which are there more than once."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, ClassVar, Literal

from vitrail.data.checks.found import Found
from vitrail.data.items import Issue
from vitrail.tasks.translation.pairs import PairData, left_out, open_pairs


@dataclass(frozen=True)
class PairCheck(Found):
    """What a check of sentences found.

    Kinds of issues: ``leak`` (a sentence of training that is in another split as well), ``no-sentence``, ``no-translation`` and
    ``bad-row`` (lines that are no pair; notices where they are to be skipped); of notices: ``repeated`` (a sentence that is in a
    split more than once with the same translation).
    """

    data: PairData
    issues: list[Issue]
    notices: list[Issue]

    most_issues: ClassVar[int | None] = 10

    @property
    def words(self) -> dict[str, dict[str, float]]:
        """Of the sentences of each language, the median of their words and the most; nothing where there is none."""
        pairs = [pair for pairs in self.data.splits.values() for pair in pairs]
        counted = [(len(pair.source.split()), len(pair.target.split())) for pair in pairs] or [(0, 0)]
        return {
            language: {"median": median(counts), "max": max(counts)}
            for language, counts in zip(self.data.languages, zip(*counted, strict=True), strict=True)
        }

    def to_json(self) -> dict[str, Any]:
        return {
            "source": self.data.source,
            "languages": list(self.data.languages),
            "sentences": sum(map(len, self.data.splits.values())),
            "splits": {split: len(pairs) for split, pairs in self.data.splits.items()},
            "words": self.words,
            "notes": list(self.data.notes),
            **self.listed,
        }

    def lines(self) -> Iterator[str]:
        yield f"source     {self.data.source}"
        splits = ", ".join(f"{split} {len(pairs):,}" for split, pairs in self.data.splits.items())
        yield f"sentences  {' → '.join(self.data.languages)}, with their translations: {splits}"
        words = (f"{language} {of['median']:g}, at most {of['max']}" for language, of in self.words.items())
        yield f"words      {'; '.join(words)} (median and longest)"
        for line in self.data.notes:
            yield f"note       {line}"


def check_pairs(data: str | Path, languages: tuple[str, str], bad_lines: Literal["stop", "skip"] = "stop") -> PairCheck:
    """Read sentences, as `open_pairs` does, list lines that are no pair, and look for those that are there more than once.

    Args:
        data, languages: as for `open_pairs`.
        bad_lines: whether lines that are no pair are faults or, since they are to be left out, notices.

    Raises:
        DataError: nothing there, no such language, or a table that is damaged.
    """
    found = open_pairs(data, languages, bad_lines="skip")
    if not found.bad_lines:
        found.split("all")  # refuses data without any sentence
    if bad_lines == "stop":
        found = replace(found, notes=tuple(note for note in found.notes if note not in left_out(found.bad_lines)))
    known = {pair.source: pair.name for pair in found.splits["train"]}
    issues = [
        Issue("leak", pair.name, f"is in training as well: {known[pair.source]}")
        for split in ("val", "test")
        for pair in found.splits[split]
        if pair.source in known
    ]
    notices: list[Issue] = []
    (issues if bad_lines == "stop" else notices).extend(found.bad_lines)
    for split, pairs in found.splits.items():
        times = Counter((pair.source, pair.target) for pair in pairs)
        first = {(pair.source, pair.target): pair.name for pair in reversed(pairs)}
        notices += [Issue("repeated", first[pair], f"{count} times in {split}") for pair, count in times.items() if count > 1]
    return PairCheck(found, issues, notices)
