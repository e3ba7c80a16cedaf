"""What a Diffusion Transformer consists of, and the names of its sizes."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from vitrail.checks import require_at_most, require_divisible, require_multiple
from vitrail.models.configs.base import Depth, Epsilon, ImageConfig, Positive, Size, Width

Objective = Literal["noise", "velocity", "flow"]
"""Output of the model: ε; ``v = a ε - s x_0`` (Salimans and Ho 2022, https://arxiv.org/abs/2202.00512); or ``ε - x_0``, the
velocity of a rectified flow."""
Betas = Literal["linear", "cosine"]
"""Variances of the steps: linear from 1e-4 to 0.02, or by a cosine (Nichol and Dhariwal 2021, https://arxiv.org/abs/2102.09672)."""
Spacing = Literal["linspace", "leading", "trailing"]
"""Times of N of T steps: with both ends; multiples of ⌊T/N⌋ from 0 on; or every T/N from the last one on, without 0."""


class DiTConfig(ImageConfig):
    """Every choice of DiT (Peebles and Xie 2023, https://arxiv.org/abs/2212.09748)."""

    image_size: Size = (32, 32)
    """Height and width of the images or latents."""
    channels: Positive = 4
    """Channels of the images or latents: 4 for the latents of Stable Diffusion's autoencoder."""
    patch_size: Size = (2, 2)
    """Height and width of a patch."""
    dim: Width = 384
    """Width D of a token."""
    depth: Depth = 12
    """Number of blocks L."""
    heads: Positive = 6
    """Attention heads k."""
    mlp_dim: Positive = 1536
    """Hidden width of the MLP."""
    time_dim: Annotated[int, Field(ge=2, le=2**16, multiple_of=2)] = 256
    """Number of cosines and sines of the time."""
    time_shift: Literal[0, 1] = 0
    """Taken off the number of frequencies in their exponent: 0 in the authors' code, 1 in models trained with diffusers."""
    null_class: bool = True
    """A row of the label table that stands for no class, which guidance needs."""
    learned_variance: bool = True
    """A second output of the size of the first: where the variance of a step lies between its two bounds."""
    norm_eps: Epsilon = 1e-6
    """Epsilon of the norms."""
    mlp_norm_eps: Epsilon | None = None
    """Epsilon of the norms before the MLPs, by default as of the others; diffusers has 1e-5 there."""
    objective: Objective = "noise"
    """Meaning of the output: the noise ε; ``v = a ε - s x``; or the velocity ``ε - x`` of a rectified flow."""
    betas: Betas = "linear"
    """Variances of the forward process, which a flow does not have."""
    steps: Annotated[int, Field(ge=2, le=100_000)] = 1000
    """Number of times of the forward process, which a flow does not have."""
    spacing: Spacing = "linspace"
    """Times of fewer sampling steps: evenly from the last to 0 as the authors have them; multiples of a whole number, from 0 on,
    as most pipelines of diffusers; or evenly from the last down to one step above the image."""

    answer: ClassVar[Literal["vector", "heatmaps", "text", "noise"]] = "noise"

    @model_validator(mode="after")
    def _combinations_work(self) -> Self:
        require_divisible("dim", self.dim, "heads", self.heads)
        require_multiple("dim", self.dim, 4, "the 2-D sin-cos position")
        for side, image, patch in zip(("height", "width"), self.image_size, self.patch_size, strict=True):
            require_divisible(f"image {side}", image, f"patch {side}", patch)
        require_at_most("number of patches", self.grid[0] * self.grid[1], 2**16)
        if self.learned_variance and self.objective == "flow":
            raise ValueError("a flow has no variance to learn; set learned_variance to false")
        return self

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        return self.image_size[0] // self.patch_size[0], self.image_size[1] // self.patch_size[1]

    @property
    def output_channels(self) -> int:
        """Channels of the output: the noise, and with a learned variance as many again."""
        return self.channels * (1 + self.learned_variance)

    @property
    def labels(self) -> int:
        """Rows of the label table; 0 without classes."""
        return self.num_classes + self.null_class if self.num_classes else 0

    @property
    def repeated(self) -> int | None:
        return self.depth

    @property
    def size_multiple(self) -> tuple[int, int]:
        return self.patch_size

    @property
    def summary(self) -> str:
        """The architecture in one line."""
        rows, columns = self.image_size
        patch = "×".join(map(str, dict.fromkeys(self.patch_size)))
        classes = f"{self.num_classes} classes" if self.num_classes else "no classes"
        return (
            f"dim {self.dim}, depth {self.depth}, heads {self.heads}, patch {patch}, {rows}×{columns}×{self.channels}, {classes}"
        )


def linear_ends(steps: int) -> tuple[float, float]:
    """Return the first and the last variance β of a linear forward process: 1e-4 and 0.02 for a thousand steps."""
    scale = 1000 / steps
    return scale * 1e-4, min(scale * 0.02, 0.999)


SIZES = {
    "S": {"dim": 384, "depth": 12, "heads": 6, "mlp_dim": 1536},
    "B": {"dim": 768, "depth": 12, "heads": 12, "mlp_dim": 3072},
    "L": {"dim": 1024, "depth": 24, "heads": 16, "mlp_dim": 4096},
    "XL": {"dim": 1152, "depth": 28, "heads": 16, "mlp_dim": 4608},
}
"""The sizes of table 1."""

PRESETS: dict[str, dict[str, Any]] = {
    f"DiT-{size}/{patch}": {**fields, "patch_size": patch} for size, fields in SIZES.items() for patch in (2, 4, 8)
}
