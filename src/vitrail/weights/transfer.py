"""Initialise a model with another model's weights: fine-tuning, section 3.2 of the paper."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from vitrail.errors import ConfigError, ModelFileError
from vitrail.models.base import ImageModel
from vitrail.models.configs.base import ImageConfig
from vitrail.models.empty import empty_model
from vitrail.models.registry import build
from vitrail.parts import Interpolation, last_layer
from vitrail.parts.positions.interpolation import ANTIALIASED
from vitrail.weights.formats.safe_files import some


def adapt(
    tensors: Mapping[str, Tensor],
    source: ImageConfig,
    target: ImageConfig,
    *,
    keep_head: bool,
    interpolation: Interpolation = ANTIALIASED,
) -> dict[str, Tensor]:
    """Convert the parameters of a ``source`` model for a ``target`` model; tensors that need no change are not copied.

    The model's `adapted` converts them. New parameters, such as the heads unless ``keep_head``, are initialised as in a new
    model. The last layer of every new head is zero, as in the paper. Hidden layers before it are not zero, since no gradient
    would reach them.

    Raises:
        ConfigError: the configurations differ in fields that the weights cannot be converted for; all are listed.
        ModelFileError: ``tensors`` do not fit ``source``.
    """
    old, new = empty_model(source), empty_model(target)
    if misfits := _misfits(tensors, old.state_dict()):
        what = f"the weights do not fit the configuration: {some(misfits)}"
        raise ModelFileError(what, where="weights", hint="give the configuration that belongs to these weights")
    fitted = _fitted(tensors, old, new, keep_head, interpolation)
    missing = new.state_dict().keys() - fitted.keys()
    if not missing:
        return fitted
    less = {"depth": 1, "token_merging": 0}  # no new parameter is in a layer, so one layer is enough
    one = {name: value for name, value in less.items() if name in type(target).model_fields}
    start = build(target.changed(**one))
    _zero_new_heads(start, fitted)
    return fitted | {name: tensor for name, tensor in start.state_dict().items() if name in missing}


@torch.no_grad()
def transfer(source: ImageModel, target: ImageModel, *, keep_head: bool, interpolation: Interpolation = ANTIALIASED) -> None:
    """Copy the weights of ``source`` into ``target``; see `adapt`. New parameters keep their initial values in ``target``.

    Raises:
        ConfigError: the models differ in fields that the weights cannot be converted for; ``target`` is unchanged.
    """
    fitted = _fitted(source.state_dict(), source, target, keep_head, interpolation)
    target.load_state_dict(fitted, strict=False)
    _zero_new_heads(target, fitted)


def _fitted(
    tensors: Mapping[str, Tensor], source: ImageModel, target: ImageModel, keep_head: bool, interpolation: Interpolation
) -> dict[str, Tensor]:
    if not target.starts_from(type(source)):
        raise _unfit([f"architecture {type(source).__name__} → {type(target).__name__}"])
    old_heads, new_heads = set(source.heads()), set(target.heads())
    kept = {name: tensor for name, tensor in tensors.items() if keep_head or not _of(name, old_heads)}
    ours = target.adapted(kept, source.config, target.config, interpolation)
    may_miss = target.fresh | (new_heads - old_heads if keep_head else new_heads)
    needed = {name: tensor for name, tensor in target.state_dict().items() if name in ours or not _of(name, may_miss)}
    problems = target.differences(source.config, target.config, keep_head=keep_head) + _misfits(ours, needed)
    if problems:
        raise _unfit(problems)
    return ours


def _unfit(problems: list[str]) -> ConfigError:
    what = f"the model to start from does not fit: {some(problems)}"
    return ConfigError(what, where="--from", hint="leave out the model settings that change its shape")


def _of(name: str, modules: Iterable[str]) -> bool:
    return name.partition(".")[0] in modules


def _misfits(ours: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> list[str]:
    shapes = {name: tuple(tensor.shape) for name, tensor in ours.items()}
    return [
        f"{name} {shapes.get(name, 'missing')} → {tuple(expected[name].shape) if name in expected else 'missing'}"
        for name in sorted(shapes.keys() | expected.keys())
        if name not in expected or shapes.get(name) != tuple(expected[name].shape)
    ]


def _zero_new_heads(model: ImageModel, taken: Mapping[str, Tensor]) -> None:
    """Set the last layer to zero in every head that got no tensor from ``taken``."""
    for name, head in model.heads().items():
        if model.config.num_classes and not any(_of(key, (name,)) for key in taken):
            for parameter in last_layer(head).parameters():
                nn.init.zeros_(parameter)
