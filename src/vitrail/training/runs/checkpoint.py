"""Checkpoints of a run on disk: tensors in safetensors, other values in JSON, and checksums to verify completeness."""

import shutil
from collections import deque
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from torch import Tensor

from vitrail.errors import ModelFileError
from vitrail.files import LARGE, read_text, recover_folder, room_for, whole_folder, write_json, write_text
from vitrail.runtime.processes import ALONE, Processes
from vitrail.training.loop import parallel
from vitrail.weights.formats.checksums import SUMS, checksums
from vitrail.weights.formats.safe_files import read_json
from vitrail.weights.formats.tensor_files import read_tensors, write_in_turn

Tensors = dict[str, Tensor]

STATE = "state.json"
KEPT = 2
"""Number of checkpoints to keep: the newest, and the one before in case the newest is damaged."""


def save_checkpoint(
    folder: Path, tensors: dict[str, Tensors], state: dict[str, Any], *, resume: str, group: Processes = ALONE
) -> None:
    """Write groups of tensors and a JSON-able state, then delete all but the newest `KEPT` checkpoints.

    The folder gets its final name once everything is on disk, so that a complete checkpoint exists at every moment. All processes
    call this together, and the first one writes. Sharded tensors are gathered one at a time: no process holds all of them.

    Raises:
        DiskFullError: the disk is full; older checkpoints stay. Its hint contains ``resume``, the command to continue with.
    """
    gathered = (parallel.unsharded(tensor) for named in tensors.values() for tensor in named.values())
    with group.together():
        try:
            if group.first:
                _write(folder, tensors, gathered, state, resume)
        finally:
            deque(gathered, maxlen=0)  # every process gathers every tensor, also after an error of the first


def _write(folder: Path, tensors: dict[str, Tensors], gathered: Iterator[Tensor], state: dict[str, Any], resume: str) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    size = sum(tensor.nbytes for named in tensors.values() for tensor in named.values())
    with room_for(size, folder.parent, hint=f"free some space, then {resume}"), whole_folder(folder) as draft:
        for name, named in tensors.items():
            write_in_turn(draft / f"{name}.safetensors", named, islice(gathered, len(named)))
        write_json(draft / STATE, state)
        write_text(draft / SUMS, checksums(draft))
    for old in checkpoints(folder.parent.parent)[KEPT:]:
        shutil.rmtree(old, ignore_errors=True)


def load_checkpoint(folder: Path) -> tuple[dict[str, Tensors], dict[str, Any]]:
    """Read the tensors and state that `save_checkpoint` wrote; raises `ModelFileError` if a byte has changed."""
    require_complete(folder)
    return {f.stem: read_tensors(f) for f in sorted(folder.glob("*.safetensors"))}, read_state(folder)


def read_state(folder: Path) -> dict[str, Any]:
    """Return the JSON state of a checkpoint."""
    return read_json(folder / STATE, LARGE, any_name=True)


def require_complete(folder: Path) -> None:
    """Raise `ModelFileError` unless a checkpoint has exactly its files, with the right checksums."""
    try:
        if read_text(folder / SUMS) == checksums(folder):
            return
        what = f"the checkpoint is damaged: {SUMS} does not fit its files"
    except FileNotFoundError:
        what = "the checkpoint is not complete"
    except (OSError, ValueError) as error:
        what = f"the checkpoint is damaged: {error}"
    raise ModelFileError(what, where=folder, hint="use an earlier checkpoint")


def checkpoints(run: Path) -> list[Path]:
    """Return all checkpoints of a run folder, newest first, including incomplete ones."""
    return sorted((run / "checkpoints").glob("step-*"), reverse=True)


def has_checkpoint(run: Path) -> bool:
    """Return whether a run has a checkpoint, also one under the temporary name of an interrupted rename."""
    return bool(checkpoints(run)) or any((run / "checkpoints").glob(".step-*-old"))


def keep_newest(run: Path) -> int:
    """Delete all checkpoints of a run but the newest, and return the number of bytes that this frees."""
    older = checkpoints(run)[1:]
    size = sum(file.stat().st_size for folder in older for file in folder.iterdir())
    for folder in older:
        shutil.rmtree(folder, ignore_errors=True)
    return size


def recover_checkpoints(run: Path) -> None:
    """Delete half-written checkpoints of a killed run, and complete interrupted renames."""
    folder = run / "checkpoints"
    for step in {draft.name.split("-")[1] for draft in folder.glob(".step-*-*")}:
        recover_folder(folder / f"step-{step}")
