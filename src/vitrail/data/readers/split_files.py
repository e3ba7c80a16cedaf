"""Folders with a file of annotations for each split, such as COCO's."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Literal, get_args

from vitrail.data.items import Issue, count_by_kind, split_of, splits_in
from vitrail.data.readers.tree import files_of, folders_of
from vitrail.errors import DataError

Kind = Literal["caption", "keypoint", "instances"]
"""Kinds of COCO's files of the same images: a part of their names."""
UNCLEAR = (
    "put one of the words train, val or test into the name of each; or move elsewhere what is no part of the data; or name one "
    "file that holds all of it in place of the folder"
)
FURTHER_WORDS = {"caption": ("token",)}
"""Other words in the names of files of a kind: Flickr8k's captions are in ``Flickr8k.token.txt``."""
LEMMAS = ".lemma"
"""A part of the name of Flickr8k's other file, which has the same captions with each word in its basic form."""
PLAIN = ".txt"
"""The suffix of files that count only where their names have the kind; any other may be a README."""
MOST_NAMED = 4
"""Most files in an error; more are counted."""


def split_files(folder: Path, kind: Kind, endings: Collection[str], *, hint: str) -> dict[str, Path]:
    """Return the file of each split of a folder, or its only file for all.

    A split is a word in the name of its file, perhaps with a number behind it: ``captions_train2017.json``. Hidden files do not
    count.

    Args:
        folder: has the files, or has them in a folder ``annotations``.
        kind: where some files have it in their names, others do not count, nor do files of other kinds.
        endings: of the files that may count.
        hint: the content of such a folder.

    Raises:
        DataError: there is no file, or it is not clear which split each of several is.
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
    """Return the only such file in each folder that is called like a split: ``train/metadata.jsonl``."""
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
