"""The state of a run on disk: tensors in safetensors, the rest in JSON."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from vitrail.errors import ModelFileError
from vitrail.files import whole_folder, write_json
from vitrail.weights.folder import read_json, read_tensors, write_tensors

Tensors = dict[str, Tensor]


def save_checkpoint(folder: Path, tensors: dict[str, Tensors], state: dict[str, Any]) -> None:
    """Write groups of tensors and a JSON-able state; the folder appears whole or not at all."""
    with whole_folder(folder) as draft:
        for name, group in tensors.items():
            write_tensors(draft / f"{name}.safetensors", group)
        write_json(draft / "state.json", state)


def load_checkpoint(folder: Path) -> tuple[dict[str, Tensors], dict[str, Any]]:
    """Read what `save_checkpoint` wrote."""
    state = read_json(folder / "state.json")
    return {f.stem: read_tensors(f) for f in sorted(folder.glob("*.safetensors"))}, state


def latest_checkpoint(run: Path) -> Path:
    """The newest checkpoint of a run folder."""
    found = sorted((run / "checkpoints").glob("step-*"))
    if not found:
        raise ModelFileError("no checkpoint to resume from", where=run / "checkpoints", hint="train anew into another folder")
    return found[-1]


def optimizer_tensors(optimizer: Optimizer) -> Tensors:
    """An optimizer's state, flat: ``{"3.exp_avg": …}``."""
    state = optimizer.state_dict()["state"]
    return {f"{i}.{k}": torch.as_tensor(v) for i, entries in state.items() for k, v in entries.items() if v is not None}


def load_optimizer_tensors(optimizer: Optimizer, tensors: Tensors) -> None:
    """Give an optimizer built alike its state back."""
    whole = optimizer.state_dict()
    whole["state"] = {}
    for name, tensor in tensors.items():
        index, key = name.split(".", 1)
        whole["state"].setdefault(int(index), {})[key] = tensor
    optimizer.load_state_dict(whole)
