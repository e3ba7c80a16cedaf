"""Images copied into a folder for each label that is accepted for them."""

import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from vitrail.files import room_for, whole_folder
from vitrail.runtime.output import free_name, report_partial
from vitrail.runtime.terminal import note
from vitrail.weights.model_folder.classifier_output import Answer, Labelled

NONE = "none"
"""Folder of images without any label."""
LONGEST = 100
"""Bytes of a folder's name; of 255 the system leaves room for a number."""
DEVICES = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
"""Names that Windows keeps for itself."""


@contextmanager
def sorted_copies(out: Path, model: Labelled, files: Sequence[Path]) -> Iterator[Callable[[tuple[Path, Answer]], None]]:
    """Copy each image to ``out/LABEL/name``, for several labels to each, without any to ``none``; nothing is moved."""
    names = folder_names(model.labels, taken=[NONE] if model.may_tell_none else [])
    used: dict[str, set[str]] = {}
    copies = Counter[str]()
    out.parent.mkdir(parents=True, exist_ok=True)
    size, hint = sum(file.stat().st_size for file in files if file.exists()), "free some, or give a folder on another disk"
    try:
        with room_for(size, out.parent, hint=hint), whole_folder(out, replace=False, keep=True) as draft:

            def copy(answered: tuple[Path, Answer]) -> None:
                file, answer = answered
                for label in _folders(answer, names):
                    _copy(file, draft / label / free_name(file.name, used.setdefault(label, set())))
                    copies[label] += 1

            yield copy
    except BaseException:
        report_partial(out, f"copies of {_counted(copies)}")
        raise
    note(f"copied to {out}: {_counted(copies)}")


def _copy(file: Path, to: Path) -> None:
    """Copy a file whole or not at all, into a folder that may not be there yet."""
    to.parent.mkdir(exist_ok=True)
    try:
        shutil.copy2(file, to)
    except BaseException:
        to.unlink(missing_ok=True)
        with suppress(OSError):
            to.parent.rmdir()
        raise


def _counted(copies: Counter[str]) -> str:
    """Return how many copies each folder has, of many folders the fullest."""
    more = [f"{len(copies) - 10:,} folders more"] if len(copies) > 10 else []
    return ", ".join([f"{count:,} {name}" for name, count in copies.most_common(10)] + more)


def _folders(answer: Answer, names: dict[str, str]) -> Iterator[str]:
    yield from (names[label] for label, _ in answer.accepted)
    if not answer.accepted:
        yield NONE


def folder_names(labels: Sequence[str], taken: Sequence[str] = ()) -> dict[str, str]:
    """Return a folder's name for each label, all different even if case does not count."""
    used = {name.casefold() for name in taken}
    return {label: free_name(_safe(label), used) for label in labels}


def _safe(label: str) -> str:
    """Return a label without characters and names that some system does not allow."""
    name = re.sub(r'[/\\:*?"<>|\x00-\x1f\x7f]', "_", label).encode("utf-8", "replace")[:LONGEST].decode("utf-8", "ignore")
    name = re.sub(r"^\.", "_", name).rstrip(". ")
    return f"{name}_" if not name or DEVICES.fullmatch(name) else name
