"""Inference of sizes from parameter shapes, for several architectures."""

import math
import re
from collections.abc import Iterable, Mapping

from vitrail.errors import ModelFileError
from vitrail.weights.keys import Shape, count_of
from vitrail.weights.layout import Size

HEAD_DIM = 64
"""Width of an attention head in nearly all published models."""


def require_shapes(shapes: Mapping[str, Shape], dimensions: Mapping[str, int], what: str) -> None:
    """Raise `ModelFileError` if a parameter that ``what`` needs is missing or has another number of dimensions."""
    for name, count in dimensions.items():
        if len(shapes.get(name, ())) != count or not all(shapes[name]):
            problem = f"{name} has the shape {shapes[name]}, impossible in" if shapes.get(name) else f"no {name} of"
            raise ModelFileError(f"{problem} {what}", where="weights")


def depth_of(shapes: Mapping[str, Shape]) -> int:
    """Return the number of blocks, from parameters ``blocks.0.…``; raises `ModelFileError` if most blocks are missing."""
    return count_of((int(name.split(".")[1]) for name in shapes if name.startswith("blocks.")), "block")


def depths_of(shapes: Mapping[str, Shape], block: str = r"stages\.(\d+)\.blocks\.(\d+)\.") -> tuple[int, ...]:
    """Return the number of blocks in every stage; ``block`` is a regular expression for the start of a parameter's name.

    Raises:
        ModelFileError: a stage has no blocks, or most blocks are missing.
    """
    found = {tuple(map(int, hit.groups())) for name in shapes if (hit := re.match(block, name))}
    stages = count_of((stage for stage, _ in found), "stage")
    depths = tuple(count_of((block for at, block in found if at == stage), "block") for stage in range(stages))
    if not depths or not all(depths):
        what = f"stage {depths.index(0)} has no blocks" if depths else "no stages"
        raise ModelFileError(what, where="weights")
    return depths


def usual_heads(dim: int, width: int = HEAD_DIM, of: str = "tokens") -> int:
    """Return the number of attention heads of this width; raises `ModelFileError` if it does not divide ``dim``."""
    if dim % width:
        what = f"the number of heads is unknown: the width {dim} of {of} is not a multiple of {width}"
        raise ModelFileError(what, where="weights", hint="give heads: heads=… in Python, --heads in vitrail convert")
    return dim // width


def image_size_of(patches: int, patch: Size, tried: Iterable[Size | None]) -> Size:
    """Return the first size in ``tried`` that has this many patches, else a square; raises `ModelFileError` if none fits."""
    for size in tried:
        if size is not None and math.prod(max(1, a // b) for a, b in zip(size, patch, strict=True)) == patches:
            return size
    side = math.isqrt(patches)
    if side * side != patches:
        what = f"{patches} patches form no square"
        raise ModelFileError(what, where="weights", hint="give the image size of the model: image_size=(height, width)")
    return side * patch[0], side * patch[1]
