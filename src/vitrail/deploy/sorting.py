"""Images copied into a folder for each label that they are told to show."""

import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from vitrail.files import room_for, whole_folder
from vitrail.weights.labelled import Answer, Labelled

NONE = "none"
"""The folder of images that show no label."""
LONGEST = 100
"""Bytes of a folder's name; of 255 the system leaves room for a number."""
DEVICES = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
"""Names that Windows keeps for itself."""


def sort_into(out: Path, model: Labelled, answers: Sequence[tuple[Path, Answer]]) -> dict[str, int]:
    """Copy each image to ``out/LABEL/name``, one of several labels into each, one of none to ``none``; nothing is moved.

    The folder appears whole or not at all. Images of one name become ``name (2)``.

    Args:
        out: must not exist.
        model: what answered.
        answers: images, with the answer to each.

    Returns:
        The number of copies in each folder, in the order of the model's labels.

    Raises:
        DiskFullError: there is no room for all copies.
    """
    names = folder_names(model.labels, taken=[NONE] if model.may_tell_none else [])
    copies = [(file, label) for file, answer in answers for label in _folders(answer, names)]
    count = {name: sum(label == name for _, label in copies) for name in (*names.values(), NONE)}
    out.parent.mkdir(parents=True, exist_ok=True)
    size, hint = sum(file.stat().st_size for file, _ in copies), "free some, or give a folder on another disk"
    with room_for(size, out.parent, hint=hint), whole_folder(out, replace=False) as draft:
        used: dict[str, set[str]] = {}
        for file, label in copies:
            name = free_name(file.name, used.setdefault(label, set()))
            (draft / label).mkdir(exist_ok=True)
            shutil.copy2(file, draft / label / name)
    return {name: images for name, images in count.items() if images}


def _folders(answer: Answer, names: dict[str, str]) -> Iterator[str]:
    yield from (names[label] for label, _ in answer.told)
    if not answer.told:
        yield NONE


def folder_names(labels: Sequence[str], taken: Sequence[str] = ()) -> dict[str, str]:
    """A folder's name for each label, all different also where capitals do not count: the label, where it can be one."""
    used = {name.casefold() for name in taken}
    return {label: free_name(_safe(label), used) for label in labels}


def _safe(label: str) -> str:
    """A label without what leads elsewhere or what some system does not allow in a name."""
    name = re.sub(r'[/\\:*?"<>|\x00-\x1f\x7f]', "_", label).encode("utf-8", "replace")[:LONGEST].decode("utf-8", "ignore")
    name = re.sub(r"^\.", "_", name).rstrip(". ")
    return f"{name}_" if not name or DEVICES.fullmatch(name) else name


def free_name(name: str, used: set[str]) -> str:
    """The name, or with the first number behind it that makes it another than those ``used``, which it joins."""
    stem, suffix = Path(name).stem, Path(name).suffix
    number, free = 1, name
    while free.casefold() in used:
        number += 1
        free = f"{stem} ({number}){suffix}"
    used.add(free.casefold())
    return free
