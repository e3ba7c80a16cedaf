"""One model over several processes: a copy in each (DDP), or its parameters dealt out to them (FSDP2)."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from vitrail.runtime.processes import Processes
from vitrail.tasks.task import Task

Tensors = dict[str, Tensor]


def shard(task: Task, group: Processes, device: torch.device) -> None:
    """Deal the parameters out, layer by layer: each is whole only while it computes (Zhao et al. 2023, 2304.11277)."""
    mesh = init_device_mesh(device.type, (group.count,))
    for layer in task.model.layers():
        fully_shard(layer, mesh=mesh)
    fully_shard(task, mesh=mesh)
    register_fsdp_forward_method(task, "answer")


def with_averaged_gradients(task: Task, device: torch.device) -> nn.Module:
    """The task as it is called in training where every process has all of it: gradients are averaged as they come."""
    devices = [torch.cuda.current_device()] if device.type == "cuda" else None
    return DistributedDataParallel(task, device_ids=devices)


def synchronized(model: nn.Module, now: bool) -> AbstractContextManager[Any]:
    """Whether the gradients of what runs inside are averaged over the processes now, or with later ones."""
    if isinstance(model, DistributedDataParallel):
        return nullcontext() if now else model.no_sync()
    if isinstance(model, FSDPModule):
        model.set_requires_gradient_sync(now)
    return nullcontext()


def one_number(norm: Tensor) -> Tensor:
    """A norm over all processes, from what of it is here."""
    return norm.full_tensor() if isinstance(norm, DTensor) else norm


def local(tensors: list[Tensor]) -> list[Tensor]:
    """What is here of each tensor: all of it, or this process's share; no copies."""
    return [tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in tensors]


def whole(tensors: Mapping[str, Tensor]) -> Tensors:
    """Every tensor in one piece in this process's memory; the others must ask for it, too."""
    return {name: t.full_tensor().cpu() if isinstance(t, DTensor) else t for name, t in tensors.items()}


def dealt(tensor: Tensor, like: Tensor) -> Tensor:
    """A whole tensor as ``like`` is: dealt out to the processes, or not."""
    if isinstance(like, DTensor) and tensor.shape == like.shape:
        return distribute_tensor(tensor.to(like.device_mesh.device_type), like.device_mesh, like.placements)
    return tensor


def optimizer_tensors(optimizers: list[Optimizer]) -> Tensors:
    """The state of optimizers that step together, flat and whole: ``{"0.3.exp_avg": …}``."""
    return whole(
        {
            f"{i}.{parameter}.{key}": torch.as_tensor(value)
            for i, optimizer in enumerate(optimizers)
            for parameter, entries in optimizer.state_dict()["state"].items()
            for key, value in entries.items()
            if value is not None
        }
    )


def load_optimizer_tensors(optimizers: list[Optimizer], tensors: Tensors) -> None:
    """Give optimizers built alike their state back."""
    for i, optimizer in enumerate(optimizers):
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        state = optimizer.state_dict()
        state["state"] = {}
        for name, tensor in tensors.items():
            index, number, key = name.split(".", 2)
            if int(index) == i:
                state["state"].setdefault(int(number), {})[key] = dealt(tensor, parameters[int(number)])
        optimizer.load_state_dict(state)


def load_whole(model: nn.Module, tensors: Tensors) -> None:
    """Load whole tensors into a model, dealt out or not."""
    own = model.state_dict()
    model.load_state_dict({name: dealt(tensor, own.get(name, tensor)) for name, tensor in tensors.items()})
