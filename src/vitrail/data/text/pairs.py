"""Sentences with their translations: a table of languages, or a file for each language."""

import csv
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from vitrail.data.items import SPLITS, Data, split_of
from vitrail.data.text.tokens import Tokens
from vitrail.errors import DataError
from vitrail.files import path_of, regular_file

HELD_OUT = {"test": 0.05, "val": 0.05}
"""What data without splits of its own gives to test and validation, ..."""
MOST_HELD_OUT = 1000
"""... and no more sentences than this to either."""
SEPARATORS = {".tsv": "\t", ".tab": "\t", ".csv": ","}
"""How tables are told by their suffix, and what stands between their columns."""
MOST_BYTES = 2**20
"""Of a line. A longer one is no sentence, and would take memory for nothing."""
MOST = 2**34
"""Bytes of a file, whose sentences are all kept."""


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
    """Of the sentences that are read, and of those that are to be written."""
    assignment: dict[str, str] | None = None
    has_splits: bool = True
    notes: tuple[str, ...] = ()
    tokenizer: Tokens | None = None
    """Of both languages, where one is chosen."""

    things = "sentences"

    def identity(self, item: Pair) -> Any:
        return item.source, item.target

    @property
    def kind(self) -> dict[str, Any]:
        return {"languages": list(self.languages)}

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
) -> PairData:
    """Open sentences with their translations.

    Args:
        data: a table in UTF-8, ``pairs.tsv`` or ``.csv``, whose first line names the languages of its columns; or ``TEXT``
            where ``TEXT.en`` and ``TEXT.de`` hold a sentence in each line; or a folder with ``train``, perhaps ``val`` and
            ``test``, each a table or two such files; ``dev`` is another name of ``val``. In tables with tabs quotation marks
            are part of the sentence.
        languages: the columns, or the suffixes of the files: of what is read and of what is written.
        split_seed: data without validation sentences gives some of its own, drawn by it.
        shares: of test and validation in such data, a twentieth each where they are not given; never more than 1,000 sentences.
        assignment: repeats an earlier split.

    Raises:
        DataError: nothing there, no such language, or lines that are no pair, by file and line.
    """
    path, wanted = path_of(data), {name: shares.get(name, share) for name, share in HELD_OUT.items()}
    if path.is_dir():
        splits = {split: list(_read(stem, languages)) for split, stem in _stems(path, languages).items()}
        found = PairData(str(path.resolve()), {split: splits.get(split, []) for split in SPLITS}, languages)
        if found.splits["val"]:
            return found
        return _divided(replace(found, has_splits=bool(found.splits["test"])), {"val": wanted["val"]}, split_seed, assignment)
    pairs = list(_read(path, languages))
    found = PairData(str(path.absolute()), {"train": pairs, "val": [], "test": []}, languages, has_splits=False)
    return _divided(found, wanted, split_seed, assignment)


def require_there(data: str | Path, languages: tuple[str, str]) -> None:
    """Refuse sentences that are not where they are said to be, or not of these languages; all else is for `open_pairs` to say."""
    path = path_of(data)
    for stem in _stems(path, languages).values() if path.is_dir() else [path]:
        if stem.suffix.lower() in SEPARATORS:
            next(_read_table(stem, languages), None)
        else:
            _files(stem, languages)


def _stems(folder: Path, languages: tuple[str, str]) -> dict[str, Path]:
    """The tables or pairs of files of a folder that are named as splits, as `_read` takes them; raises `DataError`."""
    tables = sorted(file for file in folder.iterdir() if file.suffix.lower() in SEPARATORS)
    texts = sorted(file.with_suffix("") for file in folder.iterdir() if file.suffix == f".{languages[0]}")
    found: dict[str, Path] = {}
    for file in (*tables, *texts):
        split = split_of(file.stem if file in tables else file.name)
        if split and split in found:
            hint = "leave one of them there"
            raise DataError(f"{found[split].name} and {file.name} are both the {split} split", where=folder, hint=hint)
        if split:
            found[split] = file
    if not found:
        hint = f"put train.tsv into it, or train.{languages[0]} and train.{languages[1]}"
        raise DataError("the folder has no sentences of any split", where=folder, hint=hint)
    return found


def _read(path: Path, languages: tuple[str, str]) -> Iterator[Pair]:
    """The pairs of a table, or of two files; raises `DataError` for the first line that is none."""
    if path.suffix.lower() in SEPARATORS:
        yield from _read_table(path, languages)
        return
    files = _files(path, languages)
    sides = [[line.rstrip("\r\n") for line in _lines(file)] for file in files]
    if len(sides[0]) != len(sides[1]):
        what = f"{files[0].name} has {len(sides[0]):,} lines and {files[1].name} {len(sides[1]):,}"
        raise DataError(what, where=path, hint="line by line, one must be the translation of the other")
    for number, (source, target) in enumerate(zip(*sides, strict=True), 1):
        yield _pair(files[0] if not source.strip() else files[1], number, source, target)


def _files(path: Path, languages: tuple[str, str]) -> list[Path]:
    """The two files that begin alike; raises `DataError` where there is one missing."""
    files = [Path(f"{path}.{language}") for language in languages]
    for file in files:
        if not file.is_file():
            hint = f"give a table such as pairs.tsv, or what {files[0].name} and {files[1].name} have in common"
            raise DataError(f"there is no file {file.name}", where=path, hint=hint)
    return files


def _read_table(file: Path, languages: tuple[str, str]) -> Iterator[Pair]:
    separator = SEPARATORS[file.suffix.lower()]
    quoting: Any = csv.QUOTE_NONE if separator == "\t" else csv.QUOTE_MINIMAL
    reader = csv.reader(_lines(file), delimiter=separator, quoting=quoting, strict=True)
    try:
        header = [cell.strip() for cell in next(reader, [])]
        places = [_column(file, header, language) for language in languages]
        for row in reader:
            if not row:
                continue
            if len(row) != len(header):
                what = f"{len(row)} cells in place of {len(header)}"
                raise DataError(what, where=f"{file}:{reader.line_num}", hint="give every line a cell for each column")
            yield _pair(file, reader.line_num, *(row[place] for place in places))
    except csv.Error as error:
        where = f"{file}:{reader.line_num}"
        raise DataError(f"the table is damaged: {error}", where=where, hint="correct that line") from None


def _column(file: Path, header: Sequence[str], language: str) -> int:
    if header.count(language) != 1:
        there = ", ".join(map(repr, header)) or "none"
        what = f"{header.count(language) or 'no'} columns are called {language!r}; there are {there}"
        raise DataError(what, where=f"{file}:1", hint="name the columns by --source and --target")
    return header.index(language)


def _pair(file: Path, line: int, source: str, target: str) -> Pair:
    source, target = clean(source), clean(target)
    if not source or not target:
        what = f"there is no {'translation' if source else 'sentence'}"
        raise DataError(what, where=f"{file}:{line}", hint="fill it in, or take the line out")
    return Pair(f"{file.name}:{line}", source, target)


def clean(text: str) -> str:
    """A text as models see it: composed letters, and no space around it."""
    whole = text.encode("utf-8", errors="replace").decode()  # half a letter of UTF-16 is none
    return unicodedata.normalize("NFC", whole).strip()


def _lines(file: Path) -> Iterator[str]:
    """The lines of a file in UTF-8."""
    number = 0
    try:
        with regular_file(file, MOST) as lines:
            for number, line in enumerate(iter(lambda: lines.readline(MOST_BYTES + 1), b""), 1):
                if len(line) > MOST_BYTES:
                    raise DataError("a line of more than a megabyte", where=f"{file}:{number}", hint="sentences are shorter")
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
    except OSError as error:
        hint = "give pairs.tsv, the common part of two files, or a folder with train.tsv"
        raise DataError(f"no sentences at {str(file)!r}: {error.strerror}", where="--data", hint=hint) from None
    except UnicodeDecodeError:
        raise DataError("the line is not in UTF-8", where=f"{file}:{number}", hint="save the file in UTF-8") from None


def _divided(data: PairData, shares: Mapping[str, float], seed: int, assignment: dict[str, str] | None) -> PairData:
    """The data with some of its training sentences for other splits; equal sentences stay together."""
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
    """That lines may no longer be those that a split was made of, where there are more or fewer of them."""
    names = {pair.name for pair in pairs}
    if names == assignment.keys():
        return []
    more, gone = len(names - assignment.keys()), len(assignment.keys() - names)
    what = f"warning: since the sentences were split, {more:,} lines were added and {gone:,} taken away"
    return [f"{what}; splits go by the numbers of lines, so this is right only if it was at the end of the file"]
