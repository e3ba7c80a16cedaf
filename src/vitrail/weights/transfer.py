"""Start a model from another one's weights: fine-tuning, section 3.2 of the paper."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from vitrail.errors import ConfigError
from vitrail.models.config import ViTConfig
from vitrail.models.vit import ViT, last_linear
from vitrail.parts.patches import adapt_channels, resize_patches
from vitrail.parts.positions import ANTIALIASED, Grid, Interpolation, resize_positions
from vitrail.weights.empty import empty_model
from vitrail.weights.translate import TRAINING_ONLY

MAY_DIFFER = TRAINING_ONLY | {"image_size", "patch_size", "channels", "num_classes", "registers", "distillation_token"}
"""Fields for which weights can be made to fit, and those that change none."""
HEADS = ("head.", "head_distillation.")


def adapt(
    tensors: Mapping[str, Tensor],
    source: ViTConfig,
    target: ViTConfig,
    *,
    keep_head: bool,
    interpolation: Interpolation = ANTIALIASED,
) -> dict[str, Tensor]:
    """The parameters of a model of ``source`` for one of ``target``; what needs no change is not copied.

    Positions are interpolated to the new grid, the patch embedding is resized to another patch and summed or repeated for
    other channels. A distillation token that is new starts as the class token, which has learned where to look; registers
    that are new are left out of the result. Unless ``keep_head``, the heads are those of the target with zeros.

    Raises:
        ConfigError: the two differ in anything else, with every difference listed.
    """
    ours = {name: tensor for name, tensor in tensors.items() if keep_head or not name.startswith(HEADS)}
    if target.distillation_token and not source.distillation_token:
        ours |= _second_token(ours)
    for name, tensor in ours.items():
        ours[name] = _resized(name, tensor, source, target, interpolation)
    expected = empty_model(target).state_dict()
    new = {name for name in expected if name not in ours and (name == "registers" or name.startswith(HEADS))}
    if keep_head:
        new = {name for name in new if name == "registers"}
    problems = _differences(source, target, keep_head) + _misfits(ours, {k: v for k, v in expected.items() if k not in new})
    if problems:
        raise ConfigError(
            f"the model to start from does not fit: {'; '.join(problems[:6])}{'; …' if len(problems) > 6 else ''}",
            where="--from",
            hint="leave out the model settings that change its shape",
        )
    return ours | {name: torch.zeros(expected[name].shape) for name in new if name.startswith(HEADS)}


def _second_token(ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A distillation token like the class token, with the same position."""
    second = {"distillation_token": ours["class_token"]} if "class_token" in ours else {}
    rows = ours.get("position.embedding")
    return second if rows is None else {**second, "position.embedding": torch.cat([rows[:1], rows])}


def _resized(name: str, tensor: Tensor, source: ViTConfig, target: ViTConfig, interpolation: Interpolation) -> Tensor:
    """One parameter for another grid, patch or number of channels."""

    def resized(rows: Tensor, old: Grid, new: Grid, prefix: int = 0) -> Tensor:
        return resize_positions(rows, old, new, prefix=prefix, interpolation=interpolation)

    (rows, columns), (new_rows, new_columns) = source.grid, target.grid
    if name == "position.embedding":
        return resized(tensor, source.grid, target.grid, prefix=len(tensor) - rows * columns)
    if name == "position.rows":
        return resized(tensor, (rows, 1), (new_rows, 1))
    if name == "position.columns":
        return resized(tensor, (1, columns), (1, new_columns))
    if name == "relative.table":
        offsets = (2 * rows - 1, 2 * columns - 1)
        count = offsets[0] * offsets[1]
        table = resized(tensor[:count], offsets, (2 * new_rows - 1, 2 * new_columns - 1))
        return tensor if offsets == (2 * new_rows - 1, 2 * new_columns - 1) else torch.cat([table, tensor[count:]])
    if name == "embedding.projection.weight" and source.embedding in ("conv", "linear"):
        return resize_patches(adapt_channels(tensor, target.channels), target.patch_size)
    if name in ("embedding.layers.0.weight", "embedding.resnet.root.0.weight"):
        return adapt_channels(tensor, target.channels)
    return tensor


def _differences(source: ViTConfig, target: ViTConfig, keep_head: bool) -> list[str]:
    """Fields in which the two compute something else, and weights cannot help."""
    allowed = MAY_DIFFER | (set() if keep_head else {"head"})
    if {source.embedding, target.embedding} <= {"conv", "linear"}:
        allowed |= {"embedding"}
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


@torch.no_grad()
def transfer(source: ViT, target: ViT, *, keep_head: bool, interpolation: Interpolation = ANTIALIASED) -> None:
    """Copy the weights of ``source`` into ``target``; see `adapt` for what may differ.

    Unless ``keep_head``, only the last linear layer of each of the target's heads is set to zero, as in the paper: a hidden
    layer before it keeps its start, or nothing would ever reach it.
    """
    tensors = adapt(source.state_dict(), source.config, target.config, keep_head=keep_head, interpolation=interpolation)
    if not keep_head:
        tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith(HEADS)}
    target.load_state_dict(tensors, strict=False)
    if keep_head:
        return
    for head in (target.head, target.head_distillation):
        if head is not None and target.config.num_classes:
            last = last_linear(head)
            for parameter in last.parameters():
                nn.init.zeros_(parameter)
