"""The state of a run on disk: tensors in safetensors, the rest in JSON, and checksums that say that all of it is there."""

import shutil
from pathlib import Path
from typing import Any

from torch import Tensor

from vitrail.errors import ModelFileError
from vitrail.files import LARGE, read_text, recover_folder, room_for, whole_folder, write_json, write_text
from vitrail.weights.formats.checksums import SUMS, checksums
from vitrail.weights.formats.safe_files import read_json
from vitrail.weights.formats.tensor_files import read_tensors, write_tensors

Tensors = dict[str, Tensor]

STATE = "state.json"
KEPT = 2
"""Checkpoints that stay: the newest, and the one before it in case that one is damaged."""


def save_checkpoint(folder: Path, tensors: dict[str, Tensors], state: dict[str, Any], *, resume: str) -> None:
    """Write groups of tensors and a JSON-able state, then remove the checkpoints before the last `KEPT`.

    Everything is on the disk before the folder takes its name, so that at every moment a complete checkpoint exists.

    Raises:
        DiskFullError: there is no room; older checkpoints stay. ``resume`` is the command that goes on.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    size = sum(tensor.nbytes for group in tensors.values() for tensor in group.values())
    with room_for(size, folder.parent, hint=f"free some space, then {resume}"), whole_folder(folder) as draft:
        for name, group in tensors.items():
            write_tensors(draft / f"{name}.safetensors", group)
        write_json(draft / STATE, state)
        write_text(draft / SUMS, checksums(draft))
    for old in checkpoints(folder.parent.parent)[KEPT:]:
        shutil.rmtree(old, ignore_errors=True)


def load_checkpoint(folder: Path) -> tuple[dict[str, Tensors], dict[str, Any]]:
    """Read what `save_checkpoint` wrote; raises `ModelFileError` if a single byte of it is another."""
    require_complete(folder)
    return {f.stem: read_tensors(f) for f in sorted(folder.glob("*.safetensors"))}, read_state(folder)


def read_state(folder: Path) -> dict[str, Any]:
    """Return the part of a checkpoint that is JSON."""
    return read_json(folder / STATE, LARGE, any_name=True)


def require_complete(folder: Path) -> None:
    """Raise `ModelFileError` unless a checkpoint has all its files, byte for byte, and no others."""
    try:
        if read_text(folder / SUMS) == checksums(folder):
            return
        what = f"the checkpoint is damaged: {SUMS} does not fit its files"
    except FileNotFoundError:
        what = "the checkpoint is not complete"
    except (OSError, ValueError) as error:
        what = f"the checkpoint is damaged: {error}"
    raise ModelFileError(what, where=folder, hint="take the one before it")


def checkpoints(run: Path) -> list[Path]:
    """Return all checkpoints of a run folder, the newest first, complete or not."""
    return sorted((run / "checkpoints").glob("step-*"), reverse=True)


def has_checkpoint(run: Path) -> bool:
    """Return whether a run has a checkpoint, if only one that a kill left renamed; see `recover_checkpoints`."""
    return bool(checkpoints(run)) or any((run / "checkpoints").glob(".step-*-old"))


def keep_newest(run: Path) -> int:
    """Remove all checkpoints of a run folder but the newest, and return the number of bytes that this frees."""
    older = checkpoints(run)[1:]
    size = sum(file.stat().st_size for folder in older for file in folder.iterdir())
    for folder in older:
        shutil.rmtree(folder, ignore_errors=True)
    return size


def recover_checkpoints(run: Path) -> None:
    """Remove half-written checkpoints of a run that was killed."""
    folder = run / "checkpoints"
    for step in {draft.name.split("-")[1] for draft in folder.glob(".step-*-*")}:
        recover_folder(folder / f"step-{step}")
