"""Folders with an annotation file for each split, such as COCO's."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Literal, get_args

from vitrail.data.items import Issue, count_by_kind, split_of, splits_in
from vitrail.data.readers.tree import files_of, folders_of
from vitrail.errors import DataError

Kind = Literal["caption", "keypoint", "instances"]
"""Kinds of COCO's annotation files; the kind is a part of the file's name."""
UNCLEAR = (
    "put train, val or test into the name of each file, or move files that are no annotations out of the folder, or give one "
    "file with all annotations instead of the folder"
)
FURTHER_WORDS = {"caption": ("token",)}
"""Other words that identify a kind in file names: Flickr8k's captions are in ``Flickr8k.token.txt``."""
LEMMAS = ".lemma"
"""Part of the name of Flickr8k's file of lemmatized captions, which is ignored."""
PLAIN = ".txt"
"""Suffix of files that are read only if their name has the kind: others may be a README."""
MOST_NAMED = 4
"""Number of files that an error names; the others are counted."""


def split_files(folder: Path, kind: Kind, endings: Collection[str], *, hint: str) -> dict[str, Path]:
    """Return the annotation file of each split in a folder; a single file without a split has the key "all".

    The split is a word in the file's name, perhaps with a number after it: ``captions_train2017.json``. Hidden files are
    ignored.

    Args:
        folder: contains the files, or a folder ``annotations`` with them.
        kind: if some file names contain the kind, only these files are read; files of other kinds are never read.
        endings: the suffixes of files that may be annotations.
        hint: the hint of an error: what such a folder contains.

    Raises:
        DataError: there is no file, or the split of a file is not clear.
    """
    places = [place for place in (folder, folder / "annotations") if place.is_dir()]
    files = [file for place in places for file in files_of(place) if file.suffix.lower() in endings and file.is_file()]
    files = [file for file in files if LEMMAS not in file.suffixes] or files
    called = [file for file in files if any(word in file.stem.lower() for word in (kind, *FURTHER_WORDS.get(kind, ())))]
    others = [file for file in files if file.suffix.lower() != PLAIN]
    files = called or [file for file in others if not any(other in file.stem.lower() for other in get_args(Kind))]
    if not files and (inside := _inside_splits(folder, endings)):
        return inside
    named: dict[str, list[Path]] = {}
    for file in files:
        splits = splits_in(file.stem)
        named.setdefault(splits[0] if len(splits) == 1 else "all", []).append(file)
    if not files:
        held = count_by_kind(Issue("ignored", str(file), "") for place in places for file in files_of(place)) or "no files"
        raise DataError(f"no file of {kind}s in {folder.name!r}, which holds {held}", where=folder, hint=hint)
    if "all" in named and len(files) > 1:
        others = [file for file in files if file not in named["all"]]
        what = f"it is not clear which split is meant by {_listed(named['all'])}"
        raise DataError(what + (f", beside {_listed(others)}" if others else ""), where=folder, hint=UNCLEAR)
    if twice := next((split for split, own in named.items() if len(own) > 1), None):
        raise DataError(f"{_listed(named[twice])} would each be the {twice} split", where=folder, hint=hint)
    return {split: file for split, (file,) in named.items()}


def _inside_splits(folder: Path, endings: Collection[str]) -> dict[str, Path]:
    """Return the annotation file in each folder named like a split, if it is the only one there: ``train/metadata.jsonl``."""
    found: dict[str, Path] = {}
    for place in folders_of(folder):
        files = [own for own in files_of(place) if own.suffix.lower() in endings and own.suffix.lower() != PLAIN]
        split = split_of(place.name)
        if split and split not in found and len(files) == 1:
            found[split] = files[0]
    return found


def _listed(files: Sequence[Path]) -> str:
    names = [file.name for file in files[:MOST_NAMED]]
    if len(files) > MOST_NAMED:
        names.append(f"{len(files) - MOST_NAMED:,} more")
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
