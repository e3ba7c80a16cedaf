"""Shapes of a model's named inputs and outputs."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Free:
    """A dimension of any length: the batch, or the height of images of any size. Dimensions of the same name are equal."""

    name: str
    usual: int = 1
    """Length for counting costs and for dummy inputs."""


BATCH = Free("batch")


@dataclass(frozen=True)
class Shape:
    """Shape and type of an input or an output."""

    sides: tuple[int | Free, ...]
    dtype: torch.dtype = torch.float32

    def zeros(self, device: str = "cpu", **lengths: int) -> Tensor:
        """Return zeros of this shape; ``lengths`` sets free sides by name, and others have their usual length."""
        sides = [side if isinstance(side, int) else lengths.get(side.name, side.usual) for side in self.sides]
        return torch.zeros(sides, dtype=self.dtype, device=device)

    def __str__(self) -> str:
        return f"({', '.join(str(side) if isinstance(side, int) else side.name for side in self.sides)})"
