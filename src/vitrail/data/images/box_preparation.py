"""Preparation of a person in an image: the person's box, with a margin, resized to the model's input."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple, Self

import numpy as np
from PIL import Image
from pydantic import BeforeValidator, Field, model_validator

from vitrail.data.images.plan import Extent, Frame, Plan
from vitrail.data.images.preparation import Preparation, Size, damaged
from vitrail.data.images.warp import Warp
from vitrail.errors import ConfigError
from vitrail.settings import numbers

BoxScale = Annotated[float, Field(ge=1, le=10)]
"""Factor by which a box is enlarged for the model's input."""
Smoothing = Annotated[float, Field(ge=0, le=100)]
"""Standard deviation of the Gaussian that smooths heatmaps before joints are located, in heatmap cells; 0 for none."""
SmallerSizes = Annotated[tuple[Annotated[float, Field(ge=0.5, lt=1)], ...], BeforeValidator(numbers), Field(max_length=8)]
"""Additional input sizes at which a box is evaluated, as fractions of the model's own size."""

PROCESSOR = "VitPoseImageProcessor"
OWN = ("box_scale", "upright", "smaller_sizes", "smoothing")
"""Vitrail's own keys, which transformers' processor does not have."""
UNDERSTOOD = {
    *("image_processor_type", "do_affine_transform", "size", "normalize_factor", "do_rescale", "rescale_factor", "do_normalize"),
    *("image_mean", "image_std", *OWN),
    *("_valid_processor_keys", "processor_class", "model_input_names", "data_format", "input_data_format", "device"),
    *("return_tensors", "disable_grouping", "image_seq_length", "auto_map"),
}
"""Keys of transformers' processor for ViTPose that may appear; its ``normalize_factor`` has no effect."""
SMOOTHING = 2.0
"""Default smoothing, the value of DARK's authors; a model folder without the key means this value."""
IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}


class Box(NamedTuple):
    """A box in an image, in pixels, in COCO's format."""

    left: float
    top: float
    width: float
    height: float

    @classmethod
    def of_picture(cls, size: tuple[int, int]) -> "Box":
        """Return the box that covers an entire image of this (width, height)."""
        return cls(0, 0, *size)


class BoxPreparation(Preparation):
    """Cropping and normalizing of a person, and reading of joints. An image without a box counts as one box.

    Coordinates are unbiased (UDP; Huang et al. 2020, https://arxiv.org/abs/1911.07524): the box's sides are at the centres of
    the outermost pixels, so that a mirrored input shows exactly the mirrored box.
    """

    box_scale: BoxScale = 1.25
    upright: bool = False
    """True if the model was trained on people rotated to upright. A box is then evaluated in eight rotations, and joints are read
    from their mean, weighted by confidence. The input must be square."""
    smaller_sizes: SmallerSizes = ()
    """Additional input sizes at which a box is evaluated, as fractions of the model's size; joints are read from the mean over
    all sizes. The model must take images of any size."""
    smoothing: Smoothing = SMOOTHING

    @model_validator(mode="after")
    def _is_square_to_be_turned(self) -> Self:
        if self.upright and self.image_size[0] != self.image_size[1]:
            raise ValueError(f"upright needs a square input, not {self.image_size[0]}×{self.image_size[1]}")
        return self

    def __str__(self) -> str:
        (rows, columns), colours = self.image_size, ", ".join(f"{value:g}" for value in self.mean)
        turns = " in eight turns" if self.upright else ""
        sizes = f" in {1 + len(self.smaller_sizes)} sizes" if self.smaller_sizes else ""
        deviations = ", ".join(f"{value:g}" for value in self.std)
        return f"boxes ×{self.box_scale:g}{turns}{sizes} to {rows}×{columns}, mean {colours}, std {deviations}"

    @classmethod
    def of_size(cls, image_size: Size, channels: int = 3, **fields: Any) -> Self:
        """Create the preparation for an input size, with ImageNet's mean and std as in ViTPose; ``fields`` override defaults."""
        colours = IMAGENET if channels == 3 else {"mean": (0.5,), "std": (0.5,)}
        values = {"image_size": image_size, "resize_size": image_size, "fit": "squash", "channels": channels, **colours}
        return cls.read({**values, **fields}, where="preparation")

    def to_hugging_face(self) -> dict[str, Any]:
        """Return the content of ``preprocessor_config.json`` for transformers' ViTPose processor, plus the keys `OWN`.

        With ``upright`` the processor has a name that transformers does not know and refuses, since it cannot rotate people.
        """
        return {
            "image_processor_type": f"{PROCESSOR}Upright" if self.upright else PROCESSOR,
            "do_affine_transform": True,
            "size": {"height": self.image_size[0], "width": self.image_size[1]},
            "do_rescale": True,
            "rescale_factor": 1 / 255,
            "do_normalize": True,
            "image_mean": list(self.mean),
            "image_std": list(self.std),
            "box_scale": self.box_scale,
            **({"upright": True} if self.upright else {}),
            **({"smaller_sizes": list(self.smaller_sizes)} if self.smaller_sizes else {}),
            **({"smoothing": self.smoothing} if self.smoothing != SMOOTHING else {}),
        }

    @classmethod
    def from_hugging_face(cls, values: Mapping[str, Any], *, model_type: str | None = None, where: object = None) -> Self:
        """Read the content of a ``preprocessor_config.json``, written by `to_hugging_face` or transformers.

        Raises:
            ModelFileError: it is incomplete or damaged, or needs a feature that is not supported.
        """
        try:
            if not str(values.get("image_processor_type", PROCESSOR)).startswith(PROCESSOR):
                raise ValueError(f"{values['image_processor_type']} is not a processor for people")
            if strange := [key for key in values if key not in UNDERSTOOD]:
                raise ValueError(f"{strange[0]!r} is not understood")
            for key in ("do_affine_transform", "do_rescale", "do_normalize"):
                if not values.get(key, True):
                    raise ValueError(f"{key!r} is false")
            if not math.isclose(values.get("rescale_factor", 1 / 255), 1 / 255, rel_tol=1e-5):
                raise ValueError(f"'rescale_factor' is {values['rescale_factor']}")
            size, mean, std = values["size"], values["image_mean"], values["image_std"]
            own = {name: values[name] for name in OWN if name in values}
            return cls.of_size((size["height"], size["width"]), len(mean), mean=mean, std=std, **own)
        except (KeyError, TypeError, ValueError, AttributeError, ConfigError) as error:
            raise damaged(error, where) from None

    @property
    def turns(self) -> range:
        """Return the rotations in which a box is evaluated, in steps of 45° anticlockwise."""
        return range(8 if self.upright else 1)

    @property
    def views(self) -> int:
        """Return the number of inputs for a box: rotations times sizes."""
        return len(self.turns) * (1 + len(self.smaller_sizes))

    def at(self, image_size: tuple[int, int]) -> Self:
        return self.changed(image_size=image_size, resize_size=image_size)

    def warp(self, box: Box, *, scale: float = 1.0, angle: float = 0.0) -> Warp:
        """Return the map from a box to the input; the box is extended to the input's shape and scaled by both scales.

        Args:
            box: the person's box.
            scale: a further factor on ``box_scale``.
            angle: degrees by which the box is rotated clockwise.
        """
        high, wide = self.image_size
        width = max(box.width, box.height * wide / high) * self.box_scale * scale
        height = width * high / wide
        centre = box.left + box.width / 2 + 0.5, box.top + box.height / 2 + 0.5  # COCO's coordinates: pixel centres are integers
        return Warp(centre, (width / max(1, wide - 1), height / max(1, high - 1)), angle, (wide, high))

    def plan_of(self, size: Extent, box: Box) -> Plan:
        """Return the plan that crops a box out of an image of this (width, height)."""
        return Plan(size, self.warp(box))

    def cut_out(self, picture: Image.Image, box: Box) -> np.ndarray:
        """Crop a box of an upright image to the model's input: uint8 (C, H, W)."""
        return self.plan_of(picture.size, box).pixels(picture)

    def frame(self, size: Extent) -> Frame:
        return self.warp(Box.of_picture(size))

    def box(self, width: int, height: int) -> tuple[float, float, float, float]:
        return self.warp(Box.of_picture((width, height))).seen


def in_view(places: np.ndarray, image_size: Size) -> np.ndarray:
    """Return whether positions (…, 2), as x and y, lie in an input of this height and width: bool (…,).

    The centre of the first pixel is (0, 0).
    """
    high, wide = image_size
    inside = (places >= -0.5).all(axis=-1) & (places <= (wide - 0.5, high - 0.5)).all(axis=-1)
    return np.asarray(inside)
