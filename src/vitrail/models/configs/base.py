"""Base of all configurations, and the types of their fields."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from vitrail.checks import require_at_most, require_divisible
from vitrail.errors import ConfigError
from vitrail.settings import Settings, numbers

Positive = Annotated[int, Field(gt=0, le=2**24)]  # limits keep a damaged or hostile file from filling the memory
Probability = Annotated[float, Field(ge=0, lt=1)]
Width = Annotated[int, Field(gt=0, le=2**16)]
Depth = Annotated[int, Field(gt=0, le=1000)]
Ratio = Annotated[float, Field(gt=0, le=256)]
Epsilon = Annotated[float, Field(gt=0, le=1)]


def height_and_width(value: Any) -> Any:
    """Return a pair: one number means a square, and the command line writes a pair as ``224x160``."""
    if isinstance(value, str) and "x" in value:
        return tuple(value.split("x"))
    return value if isinstance(value, list | tuple) else (value, value)


Side = Annotated[int, Field(gt=0, le=2**16)]
Size = Annotated[tuple[Side, Side], BeforeValidator(height_and_width)]
OF_IMAGES = ("image_size", "channels")
"""Fields that describe the images, in every model of images."""


ENLARGED = 4
"""Rows and columns of a heatmap for each row and column of patches."""
_STAGES = Field(min_length=1, max_length=8)
Depths = Annotated[tuple[Depth, ...], BeforeValidator(numbers), _STAGES]
Heads = Annotated[tuple[Positive, ...], BeforeValidator(numbers), _STAGES]
Widths = Annotated[tuple[Width, ...], BeforeValidator(numbers), _STAGES]
Ratios = Annotated[tuple[Ratio, ...], BeforeValidator(numbers), _STAGES]
Sides = Annotated[tuple[Annotated[int, Field(gt=0, le=2**10)], ...], BeforeValidator(numbers), _STAGES]
Paddings = Annotated[tuple[Annotated[int, Field(ge=0, le=2**10)], ...], BeforeValidator(numbers), _STAGES]
"""A number for each stage of a model."""


def require_stages(depths: Sequence[int], widths: Sequence[int], heads: Sequence[int], **others: Sequence[Any]) -> None:
    """Raise `ConfigError` unless every field has one number per stage and heads divide widths."""
    for name, given in {"dims": widths, "heads": heads, **others}.items():
        if len(given) != len(depths):
            hint = "give one number for each stage"
            raise ConfigError(f"{len(depths)} stages in depths, {len(given)} in {name}", where=name, hint=hint)
    for width, count in zip(widths, heads, strict=True):
        require_divisible("dim", width, "heads", count)


def require_mlps(widths: Sequence[int], ratios: Sequence[float]) -> None:
    """Raise `ConfigError` for an MLP whose hidden width rounds to 0."""
    for width, ratio in zip(widths, ratios, strict=True):
        if int(width * ratio) < 1:
            what = f"an MLP of ratio {ratio} and width {width} has no hidden values"
            raise ConfigError(what, where="mlp_ratio", hint="give a larger ratio")


def require_patches(image_size: Size, sides: Sequence[int], strides: Sequence[int]) -> None:
    """Raise `ConfigError` for gaps between patches, or for too many patches in the first stage."""
    for side, stride in zip(sides, strides, strict=True):
        if stride > side:
            what = f"a stride of {stride} leaves gaps between patches of {side}"
            raise ConfigError(what, where="strides", hint=f"give a stride of at most {side}")
    height, width = image_size
    require_at_most("number of patches", (height // strides[0]) * (width // strides[0]), 2**20)


class ModelConfig(Settings):
    """Configuration of a model."""

    training_only: ClassVar[frozenset[str]] = frozenset()
    """Fields that change nothing in the output of a trained model."""
    reads: ClassVar[Literal["images", "texts"]]
    answer: ClassVar[Literal["vector", "heatmaps", "text", "noise", "masks"]]
    """Kind of output: a vector (logits if there are classes), a heatmap per class, a text, the noise in an image, or a mask."""
    parts: ClassVar[frozenset[str]] = frozenset()
    """Parts that every model of this kind has at any size; a recipe may set their learning rates."""

    @classmethod
    def taken_from(cls, start: "ModelConfig") -> dict[str, Any]:
        """Return the fields that a new model of this kind takes from the model it starts from; none by default."""
        return {}

    @property
    def summary(self) -> str:
        """The model in one line: the fields that differ from their defaults."""
        fields = self.model_dump(exclude_defaults=True)
        return ", ".join(f"{name} {value}" for name, value in fields.items() if name not in self.training_only)

    @property
    def family(self) -> str:
        """Name of this kind of model in figures; empty to use the architecture's name."""
        return ""

    @property
    def merged(self) -> tuple[int, ...]:
        """Number of patches that each layer merges into others; empty for a model without merging."""
        return ()

    @property
    def repeated(self) -> int | None:
        """Number of equal layers, the field ``depth``; None if layers differ."""
        return None


class ImageConfig(ModelConfig):
    """A model of images. Sizes in pixels are (height, width); one number means a square."""

    image_size: Size = (224, 224)
    """Height and width of the images."""
    channels: Positive = 3
    """Colour channels: 3 for RGB, 1 for grey."""
    num_classes: Annotated[int, Field(ge=0, le=2**24)] = 1000
    """Number of logits; with 0 there is no head, and the model returns the vector that the head would read."""

    reads: ClassVar[Literal["images", "texts"]] = "images"
    answer: ClassVar[Literal["vector", "heatmaps", "text", "noise", "masks"]] = "vector"

    @property
    def size_multiple(self) -> tuple[int, int]:
        """Divisors of the heights and widths that the model accepts."""
        return 1, 1
