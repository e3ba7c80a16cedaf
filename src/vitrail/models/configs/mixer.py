"""Configuration of an MLP-Mixer, and the names of its sizes."""

import re
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from vitrail.checks import require_at_most, require_divisible
from vitrail.models.configs.base import Depth, ImageConfig, Positive, Probability, Size, Width


class MixerConfig(ImageConfig):
    """Configuration of the MLP-Mixer (Tolstikhin et al. 2021, https://arxiv.org/abs/2105.01601)."""

    patch_size: Size = (16, 16)
    """Height and width of a patch."""
    dim: Width = 768
    """Width C of a token."""
    depth: Depth = 12
    """Number of layers."""
    token_dim: Positive = 384
    """Hidden width D_S of the MLP that mixes tokens."""
    channel_dim: Positive = 3072
    """Hidden width D_C of the MLP that mixes channels."""
    dropout: Probability = 0.0
    """Dropout in the MLPs."""
    stochastic_depth: Probability = 0.0
    """Probability of dropping the last layer's branches; grows linearly from 0 in the first."""
    norm_eps: Annotated[float, Field(gt=0, le=1)] = 1e-6
    """Epsilon of the norms."""

    training_only: ClassVar[frozenset[str]] = frozenset(("dropout", "stochastic_depth"))

    @model_validator(mode="after")
    def _patches_fit(self) -> Self:
        for side, image, patch in zip(("height", "width"), self.image_size, self.patch_size, strict=True):
            require_divisible(f"image {side}", image, f"patch {side}", patch)
        require_at_most("number of patches", self.tokens, 2**16)
        return self

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        return self.image_size[0] // self.patch_size[0], self.image_size[1] // self.patch_size[1]

    @property
    def tokens(self) -> int:
        """Number of patches S."""
        return self.grid[0] * self.grid[1]

    @property
    def size_multiple(self) -> tuple[int, int]:
        return self.patch_size

    @property
    def repeated(self) -> int:
        return self.depth


SIZES: dict[str, dict[str, Any]] = {
    name: dict(zip(("dim", "depth", "token_dim", "channel_dim"), numbers, strict=True))
    for name, numbers in {"S": (512, 8, 256, 2048), "B": (768, 12, 384, 3072), "L": (1024, 24, 512, 4096)}.items()
}
PRESETS = {f"Mixer-{size}/{patch}": {**SIZES[size], "patch_size": patch} for size in SIZES for patch in (16, 32)}

_NAME = re.compile(r"Mixer-(?P<size>\w)/(?P<patch>[0-9]{1,5})|mixer_(?P<timm>[sbl])(?P<side>[0-9]{1,5})(_(?P<image>[0-9]{1,5}))?")


def preset_of(name: str) -> dict[str, Any] | None:
    """Return the fields of a name, ``Mixer-B/16`` or timm's ``mixer_b16_224``; None for an unknown name."""
    match = _NAME.fullmatch(name)
    size = (match["size"] or match["timm"].upper()) if match else ""
    if not match or size not in SIZES:
        return None
    image = {"image_size": int(match["image"])} if match["image"] else {}
    return {**SIZES[size], "patch_size": int(match["patch"] or match["side"]), **image}
