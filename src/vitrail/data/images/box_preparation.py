"""Preparation of a person in a picture: the box around the person, with a rim, at the model's size."""

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
"""Size of the part that a model sees, in sizes of the box."""
Smoothing = Annotated[float, Field(ge=0, le=100)]
"""Deviation by which heatmaps are smoothed before a joint is read from them, in places; 0 for none."""
SmallerSizes = Annotated[tuple[Annotated[float, Field(ge=0.5, lt=1)], ...], BeforeValidator(numbers), Field(max_length=8)]
"""Sizes in which a box is looked at beside the model's own, as shares of it."""

PROCESSOR = "VitPoseImageProcessor"
OWN = ("box_scale", "upright", "smaller_sizes", "smoothing")
"""Keys that transformers' processor does not have."""
UNDERSTOOD = {
    *("image_processor_type", "do_affine_transform", "size", "normalize_factor", "do_rescale", "rescale_factor", "do_normalize"),
    *("image_mean", "image_std", *OWN),
    *("_valid_processor_keys", "processor_class", "model_input_names", "data_format", "input_data_format", "device"),
    *("return_tensors", "disable_grouping", "image_seq_length", "auto_map"),
}
"""Keys of transformers' processor for ViTPose; its ``normalize_factor`` cancels out."""
SMOOTHING = 2.0
"""As the authors of DARK have it, and what is meant where a model's folder says nothing."""
IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}


class Box(NamedTuple):
    """A part of an image in pixels, as COCO has it."""

    left: float
    top: float
    width: float
    height: float

    @classmethod
    def of_picture(cls, size: tuple[int, int]) -> "Box":
        """Return the box of a whole image of some width and height."""
        return cls(0, 0, *size)


class BoxPreparation(Preparation):
    """Cutting out and normalizing of a person, and reading of joints; a picture without a box is a person from rim to rim.

    Coordinates are unbiased (UDP; Huang et al. 2020, https://arxiv.org/abs/1911.07524): the box's sides lie between the centres
    of the outermost pixels, so that a mirrored input shows exactly the mirrored box.
    """

    box_scale: BoxScale = 1.25
    upright: bool = False
    """True if the model has learned from people turned upright, so that a box is looked at in eight turns, and joints are read in
    the mean of all, in which the surest turns weigh the most. The input is square then."""
    smaller_sizes: SmallerSizes = ()
    """Shares of the model's size in which a box is looked at as well; joints are read in the mean of all, as of turns. The model
    takes images of any size."""
    smoothing: Smoothing = SMOOTHING

    @model_validator(mode="after")
    def _is_square_to_be_turned(self) -> Self:
        if self.upright and self.image_size[0] != self.image_size[1]:
            raise ValueError(f"upright people need a square input, not {self.image_size[0]}×{self.image_size[1]}")
        return self

    def __str__(self) -> str:
        (rows, columns), colours = self.image_size, ", ".join(f"{value:g}" for value in self.mean)
        turns = " in eight turns" if self.upright else ""
        sizes = f" in {1 + len(self.smaller_sizes)} sizes" if self.smaller_sizes else ""
        deviations = ", ".join(f"{value:g}" for value in self.std)
        return f"boxes ×{self.box_scale:g}{turns}{sizes} to {rows}×{columns}, mean {colours}, std {deviations}"

    @classmethod
    def of_size(cls, image_size: Size, channels: int = 3, **fields: Any) -> Self:
        """Create one for a model of this size, with ImageNet's mean and deviation as in ViTPose, and with other ``fields``."""
        colours = IMAGENET if channels == 3 else {"mean": (0.5,), "std": (0.5,)}
        values = {"image_size": image_size, "resize_size": image_size, "fit": "squash", "channels": channels, **colours}
        return cls.read({**values, **fields}, where="preparation")

    def to_hugging_face(self) -> dict[str, Any]:
        """Return ``preprocessor_config.json`` of transformers' processor for ViTPose, with the keys `OWN` beside its own.

        transformers does not know the name of a processor that turns people upright, and so refuses it.
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
        """Read what `to_hugging_face` or transformers wrote.

        Raises:
            ModelFileError: incomplete or damaged, or it asks for something that is not supported here.
        """
        try:
            if not str(values.get("image_processor_type", PROCESSOR)).startswith(PROCESSOR):
                raise ValueError(f"{values['image_processor_type']} cuts no people out")
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
        """Return the eighths of a turn against the clock by which a box is looked at."""
        return range(8 if self.upright else 1)

    @property
    def views(self) -> int:
        """Return the number of looks at a box: every turn in every size."""
        return len(self.turns) * (1 + len(self.smaller_sizes))

    def at(self, image_size: tuple[int, int]) -> Self:
        return self.changed(image_size=image_size, resize_size=image_size)

    def warp(self, box: Box, *, scale: float = 1.0, angle: float = 0.0) -> Warp:
        """Return the map that shows a box, widened to the input's shape and enlarged by ``box_scale`` and ``scale``."""
        high, wide = self.image_size
        width = max(box.width, box.height * wide / high) * self.box_scale * scale
        height = width * high / wide
        centre = box.left + box.width / 2 + 0.5, box.top + box.height / 2 + 0.5  # of boxes in which a pixel's centre is whole
        return Warp(centre, (width / max(1, wide - 1), height / max(1, high - 1)), angle, (wide, high))

    def plan_of(self, size: Extent, box: Box) -> Plan:
        """Return the plan that shows a box of a picture of some width and height."""
        return Plan(size, self.warp(box))

    def cut_out(self, picture: Image.Image, box: Box) -> np.ndarray:
        """Return a box of an upright picture as the model takes it: uint8 (C, H, W)."""
        return self.plan_of(picture.size, box).pixels(picture)

    def frame(self, size: Extent) -> Frame:
        return self.warp(Box.of_picture(size))

    def box(self, width: int, height: int) -> tuple[float, float, float, float]:
        return self.warp(Box.of_picture((width, height))).seen


def in_view(places: np.ndarray, image_size: Size) -> np.ndarray:
    """Return which positions (…, 2) lie in an input of this height and width; the centre of its first pixel is (0, 0): (…,)."""
    high, wide = image_size
    inside = (places >= -0.5).all(axis=-1) & (places <= (wide - 0.5, high - 0.5)).all(axis=-1)
    return np.asarray(inside)
