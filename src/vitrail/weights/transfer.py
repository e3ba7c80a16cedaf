"""Start a model from another one's weights: fine-tuning, section 3.2 of the paper."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from vitrail.errors import ConfigError, ModelFileError
from vitrail.models.config import ViTConfig
from vitrail.models.empty import empty_model
from vitrail.models.resizing import resized_positions
from vitrail.models.vit import ViT, last_linear
from vitrail.parts import Interpolation, adapt_channels, resize_patches
from vitrail.parts.positions import ANTIALIASED
from vitrail.weights.tensor_files import some
from vitrail.weights.translate import TRAINING_ONLY

MAY_DIFFER = TRAINING_ONLY | {
    "image_size",
    "patch_size",
    "channels",
    "num_classes",
    "registers",
    "distillation_token",
    "token_merging",
}
"""Fields for which weights can be made to fit, and those that change none."""
HEADS = ("head", "head_distillation")
FLAT = {"conv", "linear"}
"""Embeddings in which one matrix makes a token of a patch."""
FIRST = (
    "embedding.resnet.root.0.weight",
    "embedding.layers.0.weight",
    "embedding.first.0.weight",
    "embedding.projection.weight",
)
"""Convolutions that may see the image; the first that a model has does."""


def adapt(
    tensors: Mapping[str, Tensor],
    source: ViTConfig,
    target: ViTConfig,
    *,
    keep_head: bool,
    interpolation: Interpolation = ANTIALIASED,
) -> dict[str, Tensor]:
    """All parameters of a model of ``target``, made of those of one of ``source``; what needs no change is not copied.

    Positions are interpolated to the new grid, the patch embedding is resized to another patch and summed or repeated for
    other channels. A new distillation token and its position start as those of the class token, which has learned to gather
    what classes need; new registers, and the heads unless ``keep_head``, start as in a new model. The last linear layer of
    every new head is zero, as in the paper; hidden layers before it are not, or nothing would ever reach them.

    Raises:
        ConfigError: the two differ in anything else, with every difference listed.
        ModelFileError: ``tensors`` are not those of a model of ``source``.
    """
    misfits = _misfits(tensors, empty_model(source).state_dict())
    if misfits:
        what = f"the weights do not fit the configuration: {some(misfits)}"
        raise ModelFileError(what, where="weights", hint="give the configuration that belongs to them")
    expected = empty_model(target).state_dict()
    fitted = _fitted(tensors, expected, source, target, keep_head, interpolation)
    new = expected.keys() - fitted.keys()
    if not new:
        return fitted
    start = ViT(target.changed(depth=1))  # all that is new stands outside the blocks
    _zero_new_heads(start, fitted)
    return fitted | {name: tensor for name, tensor in start.state_dict().items() if name in new}


@torch.no_grad()
def transfer(source: ViT, target: ViT, *, keep_head: bool, interpolation: Interpolation = ANTIALIASED) -> None:
    """Copy the weights of ``source`` into ``target``; see `adapt`. What is new keeps the start that ``target`` has given it.

    Raises:
        ConfigError: the two differ in what weights cannot make up for; ``target`` is left as it was.
    """
    fitted = _fitted(source.state_dict(), target.state_dict(), source.config, target.config, keep_head, interpolation)
    target.load_state_dict(fitted, strict=False)
    _zero_new_heads(target, fitted)


def _fitted(
    tensors: Mapping[str, Tensor],
    expected: Mapping[str, Tensor],
    source: ViTConfig,
    target: ViTConfig,
    keep_head: bool,
    interpolation: Interpolation,
) -> dict[str, Tensor]:
    """Those of the ``expected`` parameters that the source has, or that come of its own."""
    ours = {name: tensor for name, tensor in tensors.items() if keep_head or not _of(name, HEADS)}
    ours = _resized(ours, source, target, interpolation)
    if target.distillation_token and not source.distillation_token:
        ours |= _second_token(ours)
    new = {"registers", "head_distillation"} if keep_head else {"registers", *HEADS}
    needed = {name: tensor for name, tensor in expected.items() if name in ours or not _of(name, new)}
    problems = _differences(source, target, keep_head) + _misfits(ours, needed)
    if problems:
        raise ConfigError(
            f"the model to start from does not fit: {some(problems)}",
            where="--from",
            hint="leave out the model settings that change its shape",
        )
    return ours


def _of(name: str, modules: Iterable[str]) -> bool:
    """Whether a parameter belongs to one of some modules."""
    return name.partition(".")[0] in modules


def _resized(ours: Mapping[str, Tensor], source: ViTConfig, target: ViTConfig, interpolation: Interpolation) -> dict[str, Tensor]:
    """The parameters for another grid, patch and number of channels."""
    first = next(name for name in FIRST if name in ours)
    changed = {first: _first(ours[first], target, resize=source.embedding in FLAT)}
    return resized_positions(ours, source, target, interpolation) | changed


def _first(weight: Tensor, target: ViTConfig, *, resize: bool) -> Tensor:
    """The convolution that sees the image, for other channels and, if patches are all that it sees, another patch."""
    weight = adapt_channels(weight, target.channels)
    return resize_patches(weight, target.patch_size) if resize else weight


def _second_token(ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A distillation token like the class token, with the same position."""
    second = {"distillation_token": ours["class_token"].clone()} if "class_token" in ours else {}
    tables = [name for name in ("position.embedding", "position.prefix") if name in ours]
    return second | {name: torch.cat([ours[name][:1], ours[name]]) for name in tables}


def _differences(source: ViTConfig, target: ViTConfig, keep_head: bool) -> list[str]:
    """Fields in which the two compute something else, and weights cannot help."""
    allowed = MAY_DIFFER | (set() if keep_head else {"head"})
    if {source.embedding, target.embedding} <= FLAT:
        allowed |= {"embedding"}
    else:
        allowed -= {"patch_size"}
    if source.embedding_norm == "patches":  # which has a weight for every pixel of a patch
        allowed -= {"patch_size", "channels"}
    if (source.layer_scale is None) == (target.layer_scale is None):
        allowed |= {"layer_scale"}
    return [
        f"{name} {getattr(source, name)} → {getattr(target, name)}"
        for name in ViTConfig.model_fields
        if name not in allowed and getattr(source, name) != getattr(target, name)
    ]


def _misfits(ours: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> list[str]:
    """Parameters that one of the two lacks, or has in another shape."""
    shapes = {name: tuple(tensor.shape) for name, tensor in ours.items()}
    return [
        f"{name} {shapes.get(name, 'missing')} → {tuple(expected[name].shape) if name in expected else 'missing'}"
        for name in sorted(shapes.keys() | expected.keys())
        if name not in expected or shapes.get(name) != tuple(expected[name].shape)
    ]


def _zero_new_heads(model: ViT, taken: Mapping[str, Tensor]) -> None:
    """Set the last linear layer to zero, of every head of which nothing was taken over."""
    for name in HEADS:
        head = getattr(model, name)
        if head is not None and model.config.num_classes and not any(_of(key, (name,)) for key in taken):
            for parameter in last_linear(head).parameters():
                nn.init.zeros_(parameter)
