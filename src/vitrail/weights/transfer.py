"""Start a model from another one's weights: fine-tuning, section 3.2 of the paper."""

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
    """Return the parameters of a ``source`` model as a ``target`` model needs them; what needs no change is not copied.

    See the model's own `adapted`. What is new, such as the heads unless ``keep_head``, starts as in a new model. The last
    layer of every new head is zero, as in the paper; hidden layers before it are not, or nothing would ever reach them.

    Raises:
        ConfigError: the two differ in anything that weights cannot make up for, with every difference listed.
        ModelFileError: ``tensors`` are not those of a model of ``source``.
    """
    old, new = empty_model(source), empty_model(target)
    if misfits := _misfits(tensors, old.state_dict()):
        what = f"the weights do not fit the configuration: {some(misfits)}"
        raise ModelFileError(what, where="weights", hint="give the configuration that belongs to them")
    fitted = _fitted(tensors, old, new, keep_head, interpolation)
    missing = new.state_dict().keys() - fitted.keys()
    if not missing:
        return fitted
    less = {"depth": 1, "token_merging": 0}  # all that is new stands outside of the layers
    one = {name: value for name, value in less.items() if name in type(target).model_fields}
    start = build(target.changed(**one))
    _zero_new_heads(start, fitted)
    return fitted | {name: tensor for name, tensor in start.state_dict().items() if name in missing}


@torch.no_grad()
def transfer(source: ImageModel, target: ImageModel, *, keep_head: bool, interpolation: Interpolation = ANTIALIASED) -> None:
    """Copy the weights of ``source`` into ``target``; see `adapt`. What is new keeps the start that ``target`` has given it.

    Raises:
        ConfigError: the two differ in what weights cannot make up for; ``target`` is left as it was.
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
    """Set the last layer to zero, of every head of which nothing was taken over."""
    for name, head in model.heads().items():
        if model.config.num_classes and not any(_of(key, (name,)) for key in taken):
            for parameter in last_layer(head).parameters():
                nn.init.zeros_(parameter)
