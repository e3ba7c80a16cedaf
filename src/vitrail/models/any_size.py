"""Wrappers that run a ViT on images of sizes other than its configuration's."""

from typing import Any

import torch
from torch import Tensor, nn

from vitrail.errors import ConfigError
from vitrail.models.base import ImageModel
from vitrail.parts import LearnedPosition1d, LearnedPosition2d
from vitrail.parts.positions.interpolation import resizing_matrix


class AnySize(nn.Module):
    """A wrapper of a ViT that takes images (B, C, H, W) whose sides are any multiples of the patch. Parameters are the ViT's."""

    def __init__(self, model: ImageModel):
        super().__init__()
        self.model: Any = model

    def forward(self, images: Tensor, *, separate: bool = False) -> Any:
        """Return the output of `ViT.forward`."""
        self.model.require_channels(images)
        model, grid = self.model, self.model.config.grid_of(images.shape[2], images.shape[3])
        z = model.transform(*model.embed(images, any_size=True), first=model.tokens_read)
        return model.forward_head(z, separate=separate, grid=grid)


class AnySizeGraph(nn.Module):
    """`AnySize` for exporting a graph in which height and width stay symbolic.

    Raises:
        ConfigError: positions of another size are not a matrix product of the model's positions, or the model merges tokens.
    """

    def __init__(self, model: ImageModel):
        super().__init__()
        c: Any = model.config
        if c.position not in ("none", "learned-1d", "learned-2d") or any(c.merged):
            raise ConfigError(
                f"a graph for images of any size needs learned positions or none, and no merging; the position is {c.position!r}",
                where="--image-size",
                hint="export one graph for each size: --image-size 384",
            )
        self.model: Any = model

    def forward(self, images: Tensor) -> Any:
        """Return the output of `ViT.forward`, for sides that are multiples of the patch."""
        model = self.model
        grid = model.config.grid_of(images.shape[2], images.shape[3])
        z, attention = self.embed(images)
        return model.forward_head(model.transform(z, attention, first=model.tokens_read), grid=grid)

    def embed(self, images: Tensor) -> tuple[Tensor, dict[str, Any]]:
        """Return `ViT.embed` of images whose sides are multiples of the patch."""
        grid = self.model.config.grid_of(images.shape[2], images.shape[3])
        rows, columns = (torch.arange(count, device=images.device).float() for count in grid)
        embedded: tuple[Tensor, dict[str, Any]] = self.model.embed(
            images, position=self._position(rows, columns).to(images.dtype)
        )
        return embedded

    def _position(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Return E_pos for these rows and columns: (prefix + N, D)."""
        own = self.model.position
        down, across = (resizing_matrix(n, new) for n, new in zip(self.model.config.grid, (rows, columns), strict=True))
        if isinstance(own, LearnedPosition1d):
            grid = own.embedding[own.prefix :].float().unflatten(0, own.grid)  # (rows, columns, D)
            resized = torch.einsum("hr,wc,rcd->hwd", down, across, grid).flatten(0, 1)
            table = torch.cat([own.embedding[: own.prefix].to(resized), resized])
            return table if own.shared is None else table + own.shared
        if isinstance(own, LearnedPosition2d):
            return own.of(down @ own.rows.float(), across @ own.columns.float())
        return rows.new_zeros(1, 1)
