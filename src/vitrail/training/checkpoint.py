"""The state of a run on disk: tensors in safetensors, the rest in JSON."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from vitrail.errors import ModelFileError
from vitrail.files import whole_folder, write_json
from vitrail.weights.tensor_files import read_json, read_tensors, write_tensors

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


def optimizer_tensors(optimizers: list[Optimizer]) -> Tensors:
    """The state of optimizers that step together, flat: ``{"0.3.exp_avg": …}``."""
    return {
        f"{i}.{parameter}.{key}": torch.as_tensor(value)
        for i, optimizer in enumerate(optimizers)
        for parameter, entries in optimizer.state_dict()["state"].items()
        for key, value in entries.items()
        if value is not None
    }


def load_optimizer_tensors(optimizers: list[Optimizer], tensors: Tensors) -> None:
    """Give optimizers built alike their state back."""
    for i, optimizer in enumerate(optimizers):
        whole = optimizer.state_dict()
        whole["state"] = {}
        for name, tensor in tensors.items():
            index, parameter, key = name.split(".", 2)
            if int(index) == i:
                whole["state"].setdefault(int(parameter), {})[key] = tensor
        optimizer.load_state_dict(whole)
