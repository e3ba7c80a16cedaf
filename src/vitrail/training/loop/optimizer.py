"""Optimizers, and the learning rate and weight decay of each parameter."""

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
    """Return parameter groups with equal learning rate and weight decay, without frozen parameters.

    Parameters of ``beside``, trained parts outside the model, are treated like the head's. Only the matrices of linear layers
    and convolutions decay, not biases, norms, scales, tokens and positions. ``layer_decay`` multiplies the learning rate once
    for every layer between a parameter and the head (Clark et al. 2020, https://arxiv.org/abs/2003.10555). ``layers``
    overrides the settings of the parts that it names.

    In each group ``initial_lr`` is the rate before the schedule's factor, and ``hidden`` says whether Muon takes it. By default
    ``hidden`` holds the model's hidden matrices.
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
        {
            "params": parameters,
            "lr": lr,
            "initial_lr": lr,
            "weight_decay": decay,
            "initial_weight_decay": decay,
            "hidden": is_hidden,
        }
        for (is_hidden, lr, decay), parameters in groups.items()
    ]


def _hidden(model: Model) -> set[Tensor]:
    """Return the weights of linear layers and dense convolutions, except the image's embedding and the heads."""
    layers = [m for m in model.modules() if isinstance(m, nn.Linear | nn.Conv2d)]
    if hasattr(model.config, "channels"):
        del layers[0]  # the first layer of an image model is its embedding
    ends = {parameter for head in model.heads().values() for parameter in head.parameters()}
    return {layer.weight for layer in layers if getattr(layer, "groups", 1) == 1} - ends


def freeze(model: nn.Module, settings: OptimizerSettings, beside: nn.Module | None = None) -> None:
    """Freeze the parts whose learning rate in ``layers`` is 0, in the model and ``beside`` it.

    Raises:
        ConfigError: ``layers`` names a part that does not exist, or every part of the model is frozen.
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
    """Raise `ConfigError` for a name in ``layers`` that is no part of the model or of ``beside``."""
    names = [name for name, _ in _named(model, beside)]
    for part in settings.layers:
        if not any(_is_in(name, part) for name in names):
            parts = sorted({name.split(".")[0] for name in names})
            raise unknown("part of the model", part, parts, where="optimizer.layers")


def _named(model: nn.Module, beside: nn.Module | None) -> list[tuple[str, nn.Parameter]]:
    return [*model.named_parameters(), *(beside or nn.ModuleDict()).named_parameters()]


def layer_settings(name: str, settings: OptimizerSettings) -> LayerSettings:
    """Return the settings in ``layers`` for a parameter; of several matching names, the longest counts."""
    parts = [part for part in settings.layers if _is_in(name, part)]
    return settings.layers[max(parts, key=len)] if parts else LayerSettings()


def _is_in(name: str, part: str) -> bool:
    """Return whether a parameter is the part or inside it; ``*`` in ``part`` matches anything."""
    return fnmatchcase(name, part) or fnmatchcase(name, f"{part}.*")


def layers_above(model: Model) -> dict[nn.Parameter, int]:
    """Return the number of layers from each parameter to the head, its own included; before the first layer, one more than all.

    Modules between two layers, such as the merging of patches between two stages, count as part of the second.
    """
    own = {parameter: number for number, layer in enumerate(model.layers()) for parameter in layer.parameters()}
    count, above = len(model.layers()), {}
    passed = 0  # number of layers whose parameters came before this one
    for parameter in model.parameters():
        if parameter in own:
            passed = own[parameter] + 1
            above[parameter] = count - own[parameter]
        else:
            above[parameter] = count - passed if passed else count + 1
    return above


def state_names(model: nn.Module, beside: nn.Module | None = None) -> dict[Tensor, str]:
    """Return the name of each parameter under which a checkpoint saves the optimizer's state."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    more = beside.named_parameters() if beside is not None else ()
    return names | {parameter: f"beside.{name}" for name, parameter in more}


_NUMBERED = re.compile(r"\d+\.\d+\.\w+$")
"""Pattern of the names in earlier versions, ``0.3.exp_avg``: numbers of an optimizer and a parameter, and the kind of state."""


def named_state(
    tensors: Mapping[str, Tensor], model: Model, settings: OptimizerSettings, beside: nn.Module | None = None
) -> Mapping[str, Tensor]:
    """Return an optimizer's state by parameter names, ``head.weight.exp_avg``; earlier versions used numbers.

    Two numberings exist, since Muon once took only the linear layers of blocks. Their groups differ in length, so that only one
    fits the shapes.

    Raises:
        ValueError: no numbering fits.
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
    """Yield parameters by their numbers in earlier versions, the latest version first."""
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
    """Create the optimizers, which step together: one, or for Muon also AdamW for the other parameters.

    Muon takes linear layers and convolutions, one filter per row. AdamW takes embeddings, heads, depth-wise convolutions,
    tables, vectors and trained parts ``beside`` the model.
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
"""State that each optimizer has for a parameter: the number of steps, and tensors of the parameter's shape."""


def require_state(optimizer: Optimizer, parameter: Tensor, entries: Mapping[str, Tensor]) -> None:
    """Raise `ValueError` for an optimizer's state that does not fit a parameter; torch checks it late, or not at all."""
    if entries.keys() != KEPT[type(optimizer)]:
        keys = ", ".join(sorted(entries))
        raise ValueError(f"{type(optimizer).__name__}'s state has {keys}; an earlier version of Vitrail may have made it")
    for name, tensor in entries.items():
        if tensor.shape != (() if name == "step" else parameter.shape):
            raise ValueError(f"the optimizer's {name} is {tuple(tensor.shape)} for a parameter of {tuple(parameter.shape)}")
