"""Configuration of a Swin Transformer, and the names of its sizes."""

from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from vitrail.checks import require_at_most
from vitrail.models.configs.base import (
    Depths,
    Epsilon,
    Heads,
    ImageConfig,
    Probability,
    Ratio,
    Width,
    require_mlps,
    require_patches,
    require_stages,
)


class SwinConfig(ImageConfig):
    """Configuration of the Swin Transformer (Liu et al. 2021, https://arxiv.org/abs/2103.14030)."""

    patch_size: Annotated[int, Field(gt=0, le=2**10)] = 4
    """Side of a patch."""
    dim: Width = 96
    """Width of the first stage; every later stage doubles it."""
    depths: Depths = (2, 2, 6, 2)
    """Blocks in every stage; each stage but the first halves height and width."""
    heads: Heads = (3, 6, 12, 24)
    """Attention heads of every stage."""
    window_size: Annotated[int, Field(gt=0, le=2**5)] = 7
    """Side of a window, in patches."""
    mlp_ratio: Ratio = 4.0
    """Hidden width of the MLPs divided by the tokens' width."""
    qkv_bias: bool = True
    """Bias of the projections to q, k and v."""
    dropout: Probability = 0.0
    """Dropout in the MLPs and on every branch's result."""
    attention_dropout: Probability = 0.0
    """Dropout on the attention weights."""
    stochastic_depth: Probability = 0.0
    """Probability of dropping the last block's branches; grows linearly from 0 in the first."""
    norm_eps: Epsilon = 1e-5
    """Epsilon of the norms."""

    training_only: ClassVar[frozenset[str]] = frozenset(("dropout", "attention_dropout", "stochastic_depth"))
    position: ClassVar[str] = "relative-per-block"

    @model_validator(mode="after")
    def _stages_fit(self) -> Self:
        require_stages(self.depths, self.widths, self.heads)
        require_patches(self.image_size, (self.patch_size,), (self.patch_size,))
        require_at_most("width of the last stage", self.widths[-1], 2**16)
        require_mlps(self.widths, [self.mlp_ratio] * len(self.widths))
        return self

    @property
    def widths(self) -> tuple[int, ...]:
        """Width of the tokens in every stage."""
        return tuple(self.dim * 2**stage for stage in range(len(self.depths)))


PRESETS: dict[str, dict[str, Any]] = {
    name: {"dim": dim, "depths": depths, "heads": tuple(dim // 32 * 2**stage for stage in range(4)), **image}
    for size, dim, depths in (
        ("T", 96, (2, 2, 6, 2)), ("S", 96, (2, 2, 18, 2)), ("B", 128, (2, 2, 18, 2)), ("L", 192, (2, 2, 18, 2)),
    )
    for name, image in (
        (f"Swin-{size}", {"window_size": 7}), (f"Swin-{size}-384", {"window_size": 12, "image_size": 384}),
    )
    if size in "BL" or not image.get("image_size")
}  # fmt: skip
"""The sizes of table 7; models for 384 pixels have larger windows."""

_TIMM = {
    f"swin_{size}_patch4_window{window}_{image}": f"Swin-{size[0].upper()}{suffix}"
    for size in ("tiny", "small", "base", "large")
    for window, image, suffix in ((7, 224, ""), (12, 384, "-384"))
}
preset_of = {**PRESETS, **{theirs: PRESETS[ours] for theirs, ours in _TIMM.items() if ours in PRESETS}}.get
"""Returns the fields of a name in Vitrail's spelling or timm's; None for an unknown name."""
