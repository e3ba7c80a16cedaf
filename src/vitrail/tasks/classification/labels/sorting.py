"""Copies of images in folders by their accepted labels: ``--sort-into``."""

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
"""Largest length of a folder's name in bytes, well below the system's 255."""
DEVICES = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
"""Names that Windows reserves."""


@contextmanager
def sorted_copies(out: Path, model: Labelled, files: Sequence[Path]) -> Iterator[Callable[[tuple[Path, Answer]], None]]:
    """Yield a function that copies an image to ``out/LABEL/name`` for each of its labels; without labels to ``out/none/name``."""
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
    """Copy a file completely or not at all, into a folder that is created if necessary."""
    to.parent.mkdir(exist_ok=True)
    try:
        shutil.copy2(file, to)
    except BaseException:
        to.unlink(missing_ok=True)
        with suppress(OSError):
            to.parent.rmdir()
        raise


def _counted(copies: Counter[str]) -> str:
    """Return the number of copies in each folder as text; of many folders only the largest."""
    more = [f"{len(copies) - 10:,} folders more"] if len(copies) > 10 else []
    return ", ".join([f"{count:,} {name}" for name, count in copies.most_common(10)] + more)


def _folders(answer: Answer, names: dict[str, str]) -> Iterator[str]:
    yield from (names[label] for label, _ in answer.accepted)
    if not answer.accepted:
        yield NONE


def folder_names(labels: Sequence[str], taken: Sequence[str] = ()) -> dict[str, str]:
    """Return a folder name for each label; the names differ even on a system that ignores case."""
    used = {name.casefold() for name in taken}
    return {label: free_name(_safe(label), used) for label in labels}


def _safe(label: str) -> str:
    """Return a label with characters replaced that some operating systems do not allow in names."""
    name = re.sub(r'[/\\:*?"<>|\x00-\x1f\x7f]', "_", label).encode("utf-8", "replace")[:LONGEST].decode("utf-8", "ignore")
    name = re.sub(r"^\.", "_", name).rstrip(". ")
    return f"{name}_" if not name or DEVICES.fullmatch(name) else name
