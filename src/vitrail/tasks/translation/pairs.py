"""Sentences with their translations: a table of languages, or a file for each language."""

import shlex
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from vitrail.data.items import SPLITS, Data, Issue, splits_by_name
from vitrail.data.readers.tree import unlisted_notes
from vitrail.data.tables.csv_rows import ENDINGS, Columns, Table, column_of, listed, text_lines
from vitrail.data.tables.json_rows import open_table
from vitrail.data.text.tokens import Tokens
from vitrail.errors import DataError
from vitrail.files import is_text, path_of
from vitrail.plain_text import clean, is_odd

HELD_OUT = {"test": 0.05, "val": 0.05}
"""Fractions of test and validation for data without splits."""
MOST_HELD_OUT = 1000
"""Most sentences of test and of validation for data without splits."""
MOST_KINDS = 4
"""Most reasons in the note on lines that are left out."""
HINT = "give pairs.tsv, the common start of two file names, or a folder with train.tsv"


@dataclass(frozen=True)
class Pair:
    """A sentence and its translation."""

    name: str
    """File and line."""
    source: str
    target: str


@dataclass(frozen=True)
class PairData(Data):
    """Sentences with their translations in named splits."""

    source: str
    splits: dict[str, list[Pair]]
    languages: tuple[str, str]
    """Source and target language."""
    assignment: dict[str, str] | None = None
    has_splits: bool = True
    notes: tuple[str, ...] = ()
    tokenizer: Tokens | None = None
    bad_lines: tuple[Issue, ...] = ()
    """Lines without a valid pair, which are left out."""

    things = "sentences"

    def identity(self, item: Pair) -> Any:
        return item.source, item.target

    @property
    def kind(self) -> dict[str, Any]:
        return {"languages": list(self.languages)}

    def without(self, names: Container[str]) -> "PairData":
        """Return the data without the pairs of these names."""
        splits = {split: [pair for pair in pairs if pair.name not in names] for split, pairs in self.splits.items()}
        return replace(self, splits=splits)

    def __repr__(self) -> str:
        splits = ", ".join(f"{split} {len(pairs):,}" for split, pairs in self.splits.items())
        return f"<PairData {self.source}: {' → '.join(self.languages)}; {splits} pairs of sentences>"


def open_pairs(
    data: str | Path,
    languages: tuple[str, str],
    *,
    split_seed: int = 0,
    shares: Mapping[str, float] = HELD_OUT,
    assignment: dict[str, str] | None = None,
    bad_lines: Literal["stop", "skip"] = "stop",
) -> PairData:
    """Open sentences with their translations.

    Args:
        data: one of three. A table in UTF-8, ``pairs.tsv`` or ``.csv``, whose first line names the languages of its columns.
            Or ``TEXT``, for two files ``TEXT.en`` and ``TEXT.de`` with a sentence on each line. Or a folder with ``train`` and
            optionally ``val`` (or ``dev``) and ``test``, each a table or two files. In tab-separated tables quotation marks
            are part of the sentence, unless the first line has some, too.
        languages: names of the columns, or suffixes of the files, of the source and target language.
        split_seed: seed that draws validation sentences from data without them.
        shares: fractions of test and validation in such data, 5 % each by default, at most 1,000 sentences each.
        assignment: an earlier split to repeat.
        bad_lines: stop at an invalid line, or skip invalid lines and note their number.

    Raises:
        DataError: there is no data or no such language, or a line is invalid (with file and line).
    """
    path, wanted = path_of(data), {name: shares.get(name, share) for name, share in HELD_OUT.items()}
    stems = _stems(path, languages) if path.is_dir() else {"train": path}
    read = {split: _Read(stem, languages) for split, stem in stems.items()}
    issues = tuple(issue for one in read.values() for issue in one.issues)
    if issues and bad_lines == "stop":
        raise _bad_lines(issues, path, languages)
    notes = tuple(note for one in read.values() for note in one.notes)
    notes += left_out(issues)
    splits = {split: read[split].pairs if split in read else [] for split in SPLITS}
    pair_data = PairData(str(path.absolute()), splits, languages, has_splits=False, notes=notes, bad_lines=issues)
    if not path.is_dir():
        return _divided(pair_data, wanted, split_seed, assignment)
    used = [file for stem in stems.values() for file in (stem, *(Path(f"{stem}.{language}") for language in languages))]
    notes += unlisted_notes(path, used)
    pair_data = replace(pair_data, source=str(path.resolve()), notes=notes, has_splits=bool(splits["val"] or splits["test"]))
    return pair_data if splits["val"] else _divided(pair_data, {"val": wanted["val"]}, split_seed, assignment)


def left_out(issues: Sequence[Issue]) -> tuple[str, ...]:
    """Return a note with the number of invalid lines by reason; empty if there are none."""
    kinds = Counter(issue.what for issue in issues)
    why = [f"{count:,}: {what}" for what, count in kinds.most_common(MOST_KINDS)]
    return (f"left out: {len(issues):,} lines that are no pair ({'; '.join(why)})",) if issues else ()


def _bad_lines(issues: Sequence[Issue], path: Path, languages: tuple[str, str]) -> DataError:
    first, *others = issues
    check = f"vitrail data check {shlex.quote(str(path))} --source {languages[0]} --target {languages[1]}"
    hint = f"correct it: {check} lists all there is; vitrail train --bad-lines skip leaves such lines out"
    return DataError(first.what + (f" (and {len(others):,} more faults)" if others else ""), where=first.path, hint=hint)


def require_there(data: str | Path, languages: tuple[str, str]) -> None:
    """Raise `DataError` if there are no sentences in these languages; all other errors are found by `open_pairs`."""
    path = path_of(data)
    for stem in _stems(path, languages).values() if path.is_dir() else [path]:
        if _is_table(stem, languages):
            _table(stem, languages)
        else:
            _files(stem, languages)


def _stems(folder: Path, languages: tuple[str, str]) -> dict[str, Path]:
    """Return the table, or the common path of two files, for each split in a folder."""
    tables = sorted(file for file in folder.iterdir() if file.suffix.lower() in ENDINGS)
    texts = sorted(file.with_suffix("") for file in folder.iterdir() if file.suffix == f".{languages[0]}")
    stems: dict[str, Path] = {}
    names = {file: file.stem if file in tables else file.name for file in (*tables, *texts)}
    splits = splits_by_name(names.values())
    for file, name in names.items():
        split = splits.get(name)
        if split and split in stems:
            hint = "remove one of them"
            raise DataError(f"{stems[split].name} and {file.name} are both the {split} split", where=folder, hint=hint)
        if split:
            stems[split] = file
    if not stems:
        hint = f"put train.tsv into it, or train.{languages[0]} and train.{languages[1]}"
        raise DataError("the folder has no files named as splits", where=folder, hint=hint)
    return stems


class _Read:
    """The pairs of a table or of two files."""

    def __init__(self, path: Path, languages: tuple[str, str]):
        self.pairs: list[Pair] = []
        self.issues: list[Issue] = []
        self.notes: tuple[str, ...] = ()
        if not _is_table(path, languages):
            self._read_files(_files(path, languages))
            return
        table = _table(path, languages)
        for line, cells, problem in table.rows():
            if problem:
                self._refuse(path, line, "bad-row", problem)
            else:
                self._add(path, line, *(cells[language] for language in languages))
        self.notes = table.notes()

    def _add(self, file: Path, line: int, source: str, target: str) -> None:
        """Add a pair of clean sentences, or an issue if one of them is empty."""
        if source and target:
            self.pairs.append(Pair(f"{file.name}:{line}", source, target))
        else:
            lacking = "translation" if source else "sentence"
            self._refuse(file, line, f"no-{lacking}", f"there is no {lacking}")

    def _refuse(self, file: Path, line: int, kind: str, what: str) -> None:
        self.issues.append(Issue(kind, f"{file}:{line}", what))

    def _read_files(self, files: Sequence[Path]) -> None:
        sides = []
        for file in files:
            with text_lines(file, "\n") as lines:
                sides.append([line.rstrip("\r\n") for line in lines])
            while sides[-1] and not clean(sides[-1][-1]):
                sides[-1].pop()  # empty last lines do not change the order
        if len(sides[0]) != len(sides[1]):
            what = f"{files[0].name} has {len(sides[0]):,} lines and {files[1].name} {len(sides[1]):,}"
            hint = "line by line, one must be the translation of the other"
            raise DataError(what, where=files[0].with_suffix(""), hint=hint)
        empty = cleaned = 0
        for number, texts in enumerate(zip(*sides, strict=True), 1):
            source, target = map(clean, texts)
            cleaned += sum(map(is_odd, texts))
            if wrong := next((file for file, text in zip(files, texts, strict=True) if not is_text(text)), None):
                self._refuse(wrong, number, "bad-row", "the line is not in UTF-8")
            elif source or target:
                self._add(files[0] if not source else files[1], number, source, target)
            else:
                empty += 1
        counts = {"empty lines of both passed over": empty, "lines cleaned of invisible characters or odd blanks": cleaned}
        if parts := [f"{what}: {count:,}" for what, count in counts.items() if count]:
            self.notes = (f"{files[0].name}, {files[1].name}: {', '.join(parts)}",)


def _files(path: Path, languages: tuple[str, str]) -> list[Path]:
    """Return the files ``PATH.SOURCE`` and ``PATH.TARGET``; raises `DataError` if one is missing."""
    files = [Path(f"{path}.{language}") for language in languages]
    for file in files:
        if not file.is_file():
            hint = f"give a table such as pairs.tsv, or the common start of {files[0].name} and {files[1].name}"
            raise DataError(f"there is no file {file.name}", where=path, hint=hint)
    return files


def _is_table(path: Path, languages: tuple[str, str]) -> bool:
    return path.suffix.lower() in ENDINGS or (path.is_file() and not Path(f"{path}.{languages[0]}").is_file())


def _table(file: Path, languages: tuple[str, str]) -> Table:
    if not file.exists():
        raise DataError(f"no sentences at {str(file)!r}", where="--data", hint=HINT)

    def columns_of(names: Sequence[str]) -> Columns:
        columns = {language: column_of(names, language) for language in languages}
        if lacking := next((language for language, name in columns.items() if name is None), None):
            hint = "name the columns by --source and --target"
            raise DataError(f"no columns are called {lacking!r}; there are {listed(names)}", hint=hint)
        return {language: name for language, name in columns.items() if name is not None}

    return open_table(file, columns_of, literal=True)


def _divided(data: PairData, shares: Mapping[str, float], seed: int, assignment: dict[str, str] | None) -> PairData:
    """Move some training sentences to other splits; pairs with equal sources stay together."""
    pairs, notes = data.splits["train"], data.notes
    if assignment is not None:
        notes = (*notes, *_moved(pairs, assignment))
    else:
        assignment = dict.fromkeys((pair.name for pair in pairs), "train")
        groups: dict[str, list[str]] = {}
        for pair in pairs:
            groups.setdefault(pair.source, []).append(pair.name)
        alike = list(groups.values())
        drawn = [alike[place] for place in np.random.default_rng(seed).permutation(len(alike))]
        for split, share in shares.items():
            count = min(int(share * len(pairs)), MOST_HELD_OUT)
            for group in drawn:
                if len(group) <= count and assignment[group[0]] == "train":
                    assignment.update(dict.fromkeys(group, split))
                    count -= len(group)
    splits = {split: list(data.splits[split]) for split in SPLITS} | {"train": []}
    for pair in pairs:
        if pair.name in assignment:
            splits[assignment[pair.name]].append(pair)
    return replace(data, splits=splits, assignment=assignment, notes=notes)


def _moved(pairs: Sequence[Pair], assignment: Mapping[str, str]) -> list[str]:
    """Return a warning if lines were added or removed since the split was drawn."""
    names = {pair.name for pair in pairs}
    if names == assignment.keys():
        return []
    more, gone = len(names - assignment.keys()), len(assignment.keys() - names)
    what = f"warning: since the sentences were split, {more:,} lines were added and {gone:,} removed"
    return [f"{what}; splits use line numbers, so they are correct only if this was at the end of the file"]
