"""The usual preparation of images for the models of a layout."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Colours:
    """Preparation of images that a layout uses for checkpoints without one of their own."""

    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.5, 0.5, 0.5)
    crop_ratio: float = 1.0
    resampling: str = "bicubic"
    fit: str = "cover"


HALF = Colours()
IMAGENET = Colours((0.485, 0.456, 0.406), (0.229, 0.224, 0.225), 0.875)
CLIP_COLOURS = Colours((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
