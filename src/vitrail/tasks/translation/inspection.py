"""A check of sentences with their translations, and samples of them."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, ClassVar, Literal, NoReturn

from vitrail.data.checks.found import Found
from vitrail.data.items import Issue
from vitrail.errors import ConfigError
from vitrail.runtime.observer import Note
from vitrail.tasks.inspection import LANGUAGES, Inspection, InspectionRequest
from vitrail.tasks.translation.pairs import PairData, left_out, open_pairs


@dataclass(frozen=True)
class PairCheck(Found):
    """Result of a check of pairs of sentences.

    Kinds of issues: ``leak`` (a training sentence that is in another split, too), and ``no-sentence``, ``no-translation`` and
    ``bad-row`` (invalid lines, which are notices if they are to be skipped). Kinds of notices: ``repeated`` (a pair that occurs
    several times in a split).
    """

    data: PairData
    issues: list[Issue]
    notices: list[Issue]

    most_issues: ClassVar[int | None] = 10

    @property
    def words(self) -> dict[str, dict[str, float]]:
        """Median and greatest number of words of the sentences of each language."""
        pairs = [pair for pairs in self.data.splits.values() for pair in pairs]
        counts = [(len(pair.source.split()), len(pair.target.split())) for pair in pairs] or [(0, 0)]
        sides = zip(self.data.languages, zip(*counts, strict=True), strict=True)
        return {language: {"median": median(own), "max": max(own)} for language, own in sides}

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
        yield from (f"note       {line}" for line in self.data.notes)


def check_pairs(data: str | Path, languages: tuple[str, str], bad_lines: Literal["stop", "skip"] = "stop") -> PairCheck:
    """Read pairs as `open_pairs` does, and list invalid lines and repeated pairs.

    Invalid lines are issues, or notices with ``bad_lines="skip"``.

    Raises:
        DataError: there are no sentences or no such language, or the table is damaged.
    """
    pair_data = open_pairs(data, languages, bad_lines="skip")
    if not pair_data.bad_lines:
        pair_data.split("all")  # refuses data without any sentence
    if bad_lines == "stop":
        counted = left_out(pair_data.bad_lines)
        pair_data = replace(pair_data, notes=tuple(note for note in pair_data.notes if note not in counted))
    known = {pair.source: pair.name for pair in pair_data.splits["train"]}
    issues = [
        Issue("leak", pair.name, f"is in training as well: {known[pair.source]}")
        for split in ("val", "test")
        for pair in pair_data.splits[split]
        if pair.source in known
    ]
    notices: list[Issue] = []
    (issues if bad_lines == "stop" else notices).extend(pair_data.bad_lines)
    for split, pairs in pair_data.splits.items():
        times = Counter((pair.source, pair.target) for pair in pairs)
        first = {(pair.source, pair.target): pair.name for pair in reversed(pairs)}
        notices += [Issue("repeated", first[pair], f"{count} times in {split}") for pair, count in times.items() if count > 1]
    return PairCheck(pair_data, issues, notices)


class PairInspection(Inspection):
    """A check of pairs of sentences, and samples of them as text."""

    options = LANGUAGES | {"bad_lines"}

    def check(self, request: InspectionRequest) -> Found:
        from vitrail.tasks.translation.settings import TranslationSettings

        languages = request.languages
        bad_lines = TranslationSettings.read_field("bad_lines", request.bad_lines or "stop", where="task")
        return check_pairs(request.data, languages, bad_lines)

    def sheet(self, run: Any, split: str, count: int, note: Note) -> NoReturn:
        what = "sentences are shown as text, by their languages"
        raise ConfigError(what, where="--source, --target", hint="give both: --source en --target de")

    def texts(self, request: InspectionRequest, split: str, count: int, seed: int, note: Note) -> Iterator[str]:
        from vitrail.data.loading.sampler import some_items

        languages = request.languages
        width = max(map(len, languages))
        opened = open_pairs(request.data, languages)
        opened.tell(note)
        for pair in some_items(opened.split(split), count, seed):
            yield pair.name
            for language, text in zip(languages, (pair.source, pair.target), strict=True):
                yield f"  {language:<{width}}  {text}"


INSPECTION = PairInspection()
