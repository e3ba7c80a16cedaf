"""Optimizers, and the learning rate and weight decay of every parameter."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from vitrail.config.settings import LayerSettings, OptimizerSettings
from vitrail.errors import ConfigError, unknown
from vitrail.models.base import Model
from vitrail.training.loop.muon import Muon


def parameter_groups(
    model: Model, settings: OptimizerSettings, beside: nn.Module | None = None, *, hidden: set[Tensor] | None = None
) -> list[dict[str, Any]]:
    """Return groups of parameters with the same learning rate and weight decay, without frozen ones.

    Parts that are learned ``beside`` the model count as its head does. The matrices of linear layers and convolutions decay;
    biases, norms, scales, tokens and positions do not. ``layer_decay`` multiplies the learning rate once for every layer between
    a parameter and the head (Clark et al. 2020, https://arxiv.org/abs/2003.10555); ``layers`` then has the last word on the
    parts it names.

    Each group has in ``initial_lr`` what the schedule multiplies, and in ``hidden`` whether Muon takes it; ``hidden`` are the
    model's hidden matrices by default.
    """
    decaying = nn.Linear | nn.Conv2d | nn.ConvTranspose2d
    modules = (*model.modules(), *(beside.modules() if beside is not None else ()))
    matrices = {module.weight for module in modules if isinstance(module, decaying)}
    hidden = _hidden(model) if hidden is None else hidden
    above = layers_above(model)
    groups: dict[tuple[bool, float, float], list[nn.Parameter]] = defaultdict(list)
    for name, parameter in _named(model, beside):
        if not parameter.requires_grad:
            continue
        is_matrix, own = parameter in matrices, layer_settings(name, settings)
        decay = settings.weight_decay if own.weight_decay is None else own.weight_decay
        lr = settings.lr * own.lr * settings.layer_decay ** above.get(parameter, 0)
        groups[parameter in hidden, lr, decay if is_matrix else 0.0].append(parameter)
    return [
        {"params": parameters, "lr": lr, "initial_lr": lr, "weight_decay": decay, "hidden": is_hidden}
        for (is_hidden, lr, decay), parameters in groups.items()
    ]


def _hidden(model: Model) -> set[Tensor]:
    """Return the weights of linear layers and of convolutions over all channels, between the image's embedding and the heads."""
    layers = [m for m in model.modules() if isinstance(m, nn.Linear | nn.Conv2d)]
    if hasattr(model.config, "channels"):
        del layers[0]  # a model of images begins with what sees them
    ends = {parameter for head in model.heads().values() for parameter in head.parameters()}
    return {layer.weight for layer in layers if getattr(layer, "groups", 1) == 1} - ends


def freeze(model: nn.Module, settings: OptimizerSettings, beside: nn.Module | None = None) -> None:
    """Take the gradient from the parts whose learning rate ``layers`` sets to 0, in the model and ``beside`` it.

    Raises:
        ConfigError: a part that the model does not have, or nothing left to train.
    """
    require_parts(model, settings, beside)
    for name, parameter in _named(model, beside):
        if layer_settings(name, settings).lr == 0:
            parameter.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ConfigError(
            "every part of the model is frozen", where="optimizer.layers", hint="give some part a learning rate above 0"
        )


def require_parts(model: nn.Module, settings: OptimizerSettings, beside: nn.Module | None = None) -> None:
    """Raise `ConfigError` for a part in ``layers`` that neither the model has nor what is learned ``beside`` it."""
    names = [name for name, _ in _named(model, beside)]
    for part in settings.layers:
        if not any(_is_in(name, part) for name in names):
            parts = sorted({name.split(".")[0] for name in names})
            raise unknown("part of the model", part, parts, where="optimizer.layers")


def _named(model: nn.Module, beside: nn.Module | None) -> list[tuple[str, nn.Parameter]]:
    return [*model.named_parameters(), *(beside or nn.ModuleDict()).named_parameters()]


def layer_settings(name: str, settings: OptimizerSettings) -> LayerSettings:
    """Return the entry of ``layers`` for a parameter; the longest name that matches counts."""
    parts = [part for part in settings.layers if _is_in(name, part)]
    return settings.layers[max(parts, key=len)] if parts else LayerSettings()


def _is_in(name: str, part: str) -> bool:
    """Return whether a parameter is the part, or inside of it; ``*`` in a part matches anything."""
    return fnmatchcase(name, part) or fnmatchcase(name, f"{part}.*")


def layers_above(model: Model) -> dict[nn.Parameter, int]:
    """Return the number of layers from each parameter to the head, its own counted; one more than all for parameters before them.

    Modules between two layers, such as the merging of patches between two stages, count as part of the second.
    """
    own = {parameter: number for number, layer in enumerate(model.layers()) for parameter in layer.parameters()}
    count, above = len(model.layers()), {}
    passed = 0  # layers that have parameters before this one
    for parameter in model.parameters():
        if parameter in own:
            passed = own[parameter] + 1
            above[parameter] = count - own[parameter]
        else:
            above[parameter] = count - passed if passed else count + 1
    return above


def state_names(model: nn.Module, beside: nn.Module | None = None) -> dict[Tensor, str]:
    """Return the name by which a checkpoint saves the optimizer's state of each parameter."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    more = beside.named_parameters() if beside is not None else ()
    return names | {parameter: f"beside.{name}" for name, parameter in more}


_NUMBERED = re.compile(r"\d+\.\d+\.\w+$")
"""Name of a tensor of an earlier version, ``0.3.exp_avg``: numbers of an optimizer and of a parameter, and a kind of state."""


def named_state(
    tensors: Mapping[str, Tensor], model: Model, settings: OptimizerSettings, beside: nn.Module | None = None
) -> Mapping[str, Tensor]:
    """Return an optimizer's state under names of parameters, ``head.weight.exp_avg``; earlier versions numbered them.

    There are two orders of such numbers: Muon once took only the linear layers of blocks. They divide the parameters into groups
    of other lengths, so only one of them fits the shapes.

    Raises:
        ValueError: no order fits.
    """
    if not all(_NUMBERED.match(name) for name in tensors):
        return tensors
    names = state_names(model, beside)
    for order in _former_orders(model, settings, beside):
        state = [(order.get(name[: name.rindex(".")]), name.rpartition(".")[2], tensor) for name, tensor in tensors.items()]
        if all(p is not None and tensor.shape in ((), p.shape) for p, _, tensor in state):
            return {f"{names[p]}.{key}": tensor for p, key, tensor in state if p is not None}
    raise ValueError("an earlier version of Vitrail numbered the parameters of another model")


def _former_orders(model: Model, settings: OptimizerSettings, beside: nn.Module | None) -> Iterator[dict[str, Tensor]]:
    """Yield the parameters by the numbers that earlier versions gave them, the latest version's first."""
    hidden = _hidden(model)
    of_blocks: set[Tensor] = {p for name, p in model.named_parameters() if name.startswith("blocks.") and p.ndim == 2}
    for matrices in (hidden, hidden & of_blocks):
        groups = parameter_groups(model, settings, beside, hidden=matrices)
        split = [[g for g in groups if g["hidden"]], [g for g in groups if not g["hidden"]]]
        optimizers = [part for part in split if part] if settings.name == "muon" else [groups]
        yield {
            f"{i}.{number}": parameter
            for i, part in enumerate(optimizers)
            for number, parameter in enumerate(p for group in part for p in group["params"])
        }


def create_optimizers(model: Model, settings: OptimizerSettings, beside: nn.Module | None = None) -> list[Optimizer]:
    """Return the optimizers that step together: one, or for Muon a second one that takes all but hidden matrices.

    Muon takes linear layers and, a filter as a row, convolutions; AdamW takes the rest: embeddings, heads, depth-wise
    convolutions, tables, all vectors and parts that are learned ``beside`` the model.
    """
    groups = parameter_groups(model, settings, beside)
    if settings.name == "sgd":
        return [torch.optim.SGD(groups, momentum=settings.momentum)]
    if settings.name == "adam":
        return [torch.optim.Adam(groups, betas=settings.betas, fused=True)]
    hidden = [group for group in groups if group["hidden"] and settings.name == "muon"]
    rest = [group for group in groups if not (group["hidden"] and settings.name == "muon")]
    muon = [Muon(hidden, momentum=settings.momentum)] if hidden else []
    return [*muon, *([torch.optim.AdamW(rest, betas=settings.betas, fused=True)] if rest else [])]


MOMENTS = {"step", "exp_avg", "exp_avg_sq"}
KEPT = {torch.optim.SGD: {"momentum_buffer"}, torch.optim.Adam: MOMENTS, torch.optim.AdamW: MOMENTS,
        Muon: {"momentum_buffer"}}  # fmt: skip
"""State that each of them holds of a parameter: the number of steps, and tensors of its shape."""


def require_state(optimizer: Optimizer, parameter: Tensor, entries: Mapping[str, Tensor]) -> None:
    """Raise `ValueError` for an optimizer's state that does not fit a parameter; torch would notice later, or never."""
    if entries.keys() != KEPT[type(optimizer)]:
        keys = ", ".join(sorted(entries))
        raise ValueError(f"{type(optimizer).__name__}'s state has {keys}; an earlier version of Vitrail may have made it")
    for name, tensor in entries.items():
        if tensor.shape != (() if name == "step" else parameter.shape):
            raise ValueError(f"the optimizer's {name} is {tuple(tensor.shape)} for a parameter of {tuple(parameter.shape)}")
