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
    """Return a pair: one number means a square, and ``224x160`` is a pair on the command line."""
    if isinstance(value, str) and "x" in value:
        return tuple(value.split("x"))
    return value if isinstance(value, list | tuple) else (value, value)


Side = Annotated[int, Field(gt=0, le=2**16)]
Size = Annotated[tuple[Side, Side], BeforeValidator(height_and_width)]
OF_IMAGES = ("image_size", "channels")
"""Fields of every model of images that describe the images."""


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
    """Refuse stages of which a number is missing or too many, and widths that heads do not divide; raises `ConfigError`."""
    for name, given in {"dims": widths, "heads": heads, **others}.items():
        if len(given) != len(depths):
            hint = "give a number for each stage"
            raise ConfigError(f"{len(depths)} stages in depths, {len(given)} in {name}", where=name, hint=hint)
    for width, count in zip(widths, heads, strict=True):
        require_divisible("dim", width, "heads", count)


def require_mlps(widths: Sequence[int], ratios: Sequence[float]) -> None:
    """Refuse MLPs without a hidden value; raises `ConfigError`."""
    for width, ratio in zip(widths, ratios, strict=True):
        if int(width * ratio) < 1:
            what = f"an MLP with {ratio} times {width} hidden values has none"
            raise ConfigError(what, where="mlp_ratio", hint="give a larger ratio")


def require_patches(image_size: Size, sides: Sequence[int], strides: Sequence[int]) -> None:
    """Refuse patches with gaps between them, and more of them in the first stage than fit into memory; raises `ConfigError`."""
    for side, stride in zip(sides, strides, strict=True):
        if stride > side:
            what = f"a stride of {stride} between patches of {side} leaves out what lies between"
            raise ConfigError(what, where="strides", hint=f"give a stride of at most {side}")
    height, width = image_size
    require_at_most("number of patches", (height // strides[0]) * (width // strides[0]), 2**20)


class ModelConfig(Settings):
    """Configuration of a model."""

    training_only: ClassVar[frozenset[str]] = frozenset()
    """Fields that change nothing of what a trained model answers."""
    reads: ClassVar[Literal["images", "texts"]]
    answer: ClassVar[Literal["vector", "heatmaps", "text", "noise"]]
    """Output: a vector, of logits if the model has classes; a map for each of its classes; a text; or the noise of an image."""
    parts: ClassVar[frozenset[str]] = frozenset()
    """Parts that every model of this kind has, whatever its size, for which a recipe may have a learning rate."""

    @classmethod
    def taken_from(cls, start: "ModelConfig") -> dict[str, Any]:
        """Return the fields that a model of this kind takes from one to start from; none by default."""
        return {}

    @property
    def summary(self) -> str:
        """The model in one line: what is not as usual."""
        fields = self.model_dump(exclude_defaults=True)
        return ", ".join(f"{name} {value}" for name, value in fields.items() if name not in self.training_only)

    @property
    def family(self) -> str:
        """Name of this kind of model in figures; empty for its architecture's name."""
        return ""

    @property
    def merged(self) -> tuple[int, ...]:
        """Number of patches that each layer merges into others; empty in a model that cannot."""
        return ()

    @property
    def repeated(self) -> int | None:
        """Number of equal layers in a model of this ``depth``; None if layers differ."""
        return None


class ImageConfig(ModelConfig):
    """A model of images. Sizes in pixels are (height, width); one number means a square."""

    image_size: Size = (224, 224)
    """Height and width of the images."""
    channels: Positive = 3
    """Colour channels: 3 for RGB, 1 for grey."""
    num_classes: Annotated[int, Field(ge=0, le=2**24)] = 1000
    """Number of logits; 0 leaves out the head, and the model gives the vector that the head would read."""

    reads: ClassVar[Literal["images", "texts"]] = "images"
    answer: ClassVar[Literal["vector", "heatmaps", "text", "noise"]] = "vector"

    @property
    def size_multiple(self) -> tuple[int, int]:
        """Heights and widths that the model may have are multiples of these."""
        return 1, 1
