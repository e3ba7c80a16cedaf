"""A model for images of another size than its own."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from vitrail.errors import ConfigError
from vitrail.models.config import ViTConfig
from vitrail.models.empty import empty_model
from vitrail.models.vit import ViT
from vitrail.parts import (
    Interpolation,
    LearnedPosition1d,
    LearnedPosition2d,
    resize_factorised,
    resize_positions,
    resize_relative,
)
from vitrail.parts.positions import ANTIALIASED, resizing_matrix


def resized_positions(
    tensors: Mapping[str, Tensor], source: ViTConfig, target: ViTConfig, interpolation: Interpolation = ANTIALIASED
) -> dict[str, Tensor]:
    """The parameters of a model of ``source``, those of its positions interpolated to the grid of ``target``."""
    old, new, how = source.grid, target.grid, {"interpolation": interpolation}
    changes: dict[str, Callable[[Tensor], Tensor]] = {
        "position.embedding": lambda table: resize_positions(table, old, new, prefix=source.prefix - source.registers, **how),
        "position.rows": lambda table: resize_factorised(table, new[0], **how),
        "position.columns": lambda table: resize_factorised(table, new[1], **how),
    }

    def resized(name: str, tensor: Tensor) -> Tensor:
        if name.startswith("relative."):
            return resize_relative(tensor, old, new, prefix_entries=3 if source.prefix else 0, **how)
        return changes[name](tensor) if name in changes else tensor

    return {name: resized(name, tensor) for name, tensor in tensors.items()}


def embed_at(model: ViT, images: Tensor) -> tuple[Tensor, dict[str, Any]]:
    """`ViT.embed` for images (B, C, H, W) whose sides are any multiples of the patch; gradients reach the model's own tables."""
    size = (images.shape[-2], images.shape[-1])
    if size == model.config.image_size:
        return model.embed(images)
    target = model.config.changed(image_size=size)
    own = {name: tensor for name, tensor in model.state_dict(keep_vars=True).items() if not name.startswith(_BEHIND)}
    tensors = resized_positions(own, model.config, target)
    embedding = _embedding_alone(target, images.device)
    for name, module in embedding.model.named_modules():
        module.training = model.get_submodule(name).training  # frozen BatchNorm stays in evaluation while the rest is trained
    result: tuple[Tensor, dict[str, Any]] = functional_call(embedding, {f"model.{k}": v for k, v in tensors.items()}, (images,))
    return result


class AnySize(nn.Module):
    """A model that takes images (B, C, H, W) whose sides are any multiples of the patch; parameters are the model's."""

    def __init__(self, model: ViT):
        super().__init__()
        self.model = model

    def forward(self, images: Tensor, *, separate: bool = False) -> Any:
        """As `ViT.forward`."""
        z, attention = embed_at(self.model, images)
        return self.model.read_out(self.model.transform(z, attention, first=self.model.tokens_read), separate=separate)


class AnySizeGraph(nn.Module):
    """`AnySize` for making a graph of it, in which height and width stay unknown.

    Raises:
        ConfigError: the model's positions for another size are no products of those it has, or it merges tokens.
    """

    def __init__(self, model: ViT):
        super().__init__()
        c = model.config
        if c.position not in ("none", "learned-1d", "learned-2d") or any(c.merged):
            raise ConfigError(
                f"a graph for images of any size needs learned positions or none, and no merging; these are {c.position!r}",
                where="--image-size",
                hint="export one graph for each size: --image-size 384",
            )
        self.model = model

    def forward(self, images: Tensor) -> Any:
        """As `ViT.forward`, for sides that are multiples of the patch."""
        model = self.model
        height, width = model.config.patch_size
        rows = torch.arange(images.shape[2] // height, device=images.device).to(images.dtype)
        columns = torch.arange(images.shape[3] // width, device=images.device).to(images.dtype)
        z, attention = model.embed(images, self._position(rows, columns))
        return model.read_out(model.transform(z, attention, first=model.tokens_read))

    def _position(self, rows: Tensor, columns: Tensor) -> Tensor:
        """E_pos for so many rows and columns: (prefix + N, D)."""
        own = self.model.position
        down, across = (resizing_matrix(n, new) for n, new in zip(self.model.config.grid, (rows, columns), strict=True))
        if isinstance(own, LearnedPosition1d):
            grid = own.embedding[own.prefix :].unflatten(0, own.grid)  # (rows, columns, D)
            resized = torch.einsum("hr,wc,rcd->hwd", down, across, grid).flatten(0, 1)
            return torch.cat([own.embedding[: own.prefix], resized])
        if isinstance(own, LearnedPosition2d):
            return own.of(down @ own.rows, across @ own.columns)
        return rows.new_zeros(1, 1)


_BEHIND = ("blocks.", "norm.", "pool.", "head.", "head_distillation.")
"""What comes after the embedding."""


class _Embedding(nn.Module):
    def __init__(self, model: ViT):
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> tuple[Tensor, dict[str, Any]]:
        return self.model.embed(images)


@lru_cache(maxsize=64)
def _embedding_alone(config: ViTConfig, device: torch.device) -> _Embedding:
    """Without parameters, and with its fixed tables where the images are."""
    with torch.inference_mode(False):  # it is kept, and may be asked for gradients later
        per_block = config.position == "relative-per-block"  # then positions are as many as there are blocks
        model = empty_model(config if per_block else config.changed(depth=1))
        for module in model.modules():
            for name, table in module.named_buffers(recurse=False):
                if not table.is_meta:  # what BatchNorm has seen is the model's own
                    setattr(module, name, table.to(device))
    return _Embedding(model)
