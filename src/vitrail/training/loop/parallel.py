"""Training of one model by several processes: a copy in each (DDP), or parameters sharded over them (FSDP2).

torch's modules for sharding take half a second to import, so `shard` imports them only when they are needed.
"""

import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from vitrail.runtime.processes import Processes
from vitrail.tasks.task import Task
from vitrail.training.loop.optimizer import require_state

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

Tensors = dict[str, Tensor]


def shard(task: Task, group: Processes, device: torch.device, *, learns: bool = True) -> None:
    """Shard the parameters layer by layer; a layer is gathered only while it computes (Zhao et al. 2023, 2304.11277).

    After a forward pass, parameters outside the layers stay gathered for the backward pass, unless the task does not learn.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    mesh = init_device_mesh(device.type, (group.count,))
    for layer in task.model.layers():
        fully_shard(layer, mesh=mesh)
    fully_shard(task, mesh=mesh, reshard_after_forward=None if learns else True)
    for method in task.computes:
        register_fsdp_forward_method(task, method)
    if type(task).follow is not Task.follow:  # an overridden follow() calls answer()
        register_fsdp_forward_method(task, "follow")


def with_averaged_gradients(task: Task, device: torch.device) -> nn.Module:
    """Wrap the task for DDP: every process has a full copy, and the backward pass averages gradients."""
    devices = [torch.cuda.current_device()] if device.type == "cuda" else None
    # Otherwise torch orders the gradients anew after the first step, and three processes would add them in another order after a
    # run is resumed than without.
    return DistributedDataParallel(task, device_ids=devices, find_unused_parameters=True)


def synchronized(model: nn.Module, now: bool) -> AbstractContextManager[Any]:
    """Return a context for the backward pass: gradients are averaged over processes if ``now``, else only accumulated."""
    if isinstance(model, DistributedDataParallel):
        return nullcontext() if now else model.no_sync()
    fsdp = sys.modules.get("torch.distributed.fsdp")
    if fsdp is not None and isinstance(model, fsdp.FSDPModule):
        model.set_requires_gradient_sync(now)
    return nullcontext()


def _is_sharded(tensor: Tensor) -> TypeGuard["DTensor"]:
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def one_number(norm: Tensor) -> Tensor:
    """Return the norm over all processes, from this process's shard."""
    return norm.full_tensor() if _is_sharded(norm) else norm


def local(tensors: list[Tensor]) -> list[Tensor]:
    """Return this process's shard of each tensor, without copying; the full tensor if it is not sharded."""
    return [tensor.to_local() if _is_sharded(tensor) else tensor for tensor in tensors]


def unsharded(tensor: Tensor) -> Tensor:
    """Return the full tensor, in main memory if it was sharded; all processes must call this together."""
    return tensor.full_tensor().cpu() if _is_sharded(tensor) else tensor


def whole(tensors: Mapping[str, Tensor]) -> Tensors:
    """Return every tensor unsharded; all processes must call this together."""
    return {name: unsharded(tensor) for name, tensor in tensors.items()}


def sharded(tensor: Tensor, like: Tensor) -> Tensor:
    """Shard a full tensor over the processes if ``like`` is sharded."""
    if _is_sharded(like) and tensor.shape == like.shape:
        from torch.distributed.tensor import distribute_tensor

        return distribute_tensor(tensor.to(like.device_mesh.device_type), like.device_mesh, like.placements)
    return tensor


def optimizer_tensors(optimizers: list[Optimizer], names: Mapping[Tensor, str]) -> Tensors:
    """Return the states of all optimizers, flat: ``{"head.weight.exp_avg": …}``; sharded where the parameters are."""
    return {
        f"{names[parameter]}.{key}": torch.as_tensor(value)
        for optimizer in optimizers
        for parameter, entries in optimizer.state.items()
        for key, value in entries.items()
        if value is not None
    }


def load_optimizer_tensors(optimizers: list[Optimizer], tensors: Mapping[str, Tensor], names: Mapping[Tensor, str]) -> None:
    """Load the state that `optimizer_tensors` returned; raises `ValueError` if it does not fit the optimizers."""
    states: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        parameter_name, _, key = name.rpartition(".")
        states.setdefault(parameter_name, {})[key] = tensor
    for optimizer in optimizers:
        state = optimizer.state_dict()
        state["state"] = {}
        for number, parameter in enumerate(p for group in optimizer.param_groups for p in group["params"]):
            if entries := states.pop(names[parameter], None):
                require_state(optimizer, parameter, entries)
                state["state"][number] = {key: sharded(tensor, parameter) for key, tensor in entries.items()}
        optimizer.load_state_dict(state)
    if states:
        raise ValueError(f"the optimizer's state has {next(iter(states))}, which is not a trained parameter")


def load_whole(model: nn.Module, tensors: Tensors) -> None:
    """Load full tensors into a model, sharded or not, one at a time; raises `RuntimeError` for other names or shapes."""
    own = model.state_dict()
    if {name: tensor.shape for name, tensor in own.items()} != {name: tensor.shape for name, tensor in tensors.items()}:
        model.load_state_dict(tensors)  # raises, and names what differs
    for name, tensor in own.items():
        tensor.copy_(sharded(tensors[name], tensor))
