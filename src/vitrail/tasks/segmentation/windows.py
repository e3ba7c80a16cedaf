"""Logits of images at their own size, from the whole image or from overlapping windows, band by band.

The logits of a large image do not fit into memory: 150 classes of 6,000×4,000 pixels take 14 GB. So windows are averaged at the
network's own stride, and only a band of rows is enlarged at a time.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.errors import DataError

Network = Callable[[Tensor], Tensor]
"""Images, uint8 (B, C, H, W), to logits (B, K, h, w) in float32, of any height and width."""
Extent = tuple[int, int]
"""Height and width in pixels."""
BAND = 2**26
"""Bytes of enlarged logits at a time, at most, but for a single row of the network's output."""
MOST_WHOLE = 2**22
"""Largest number of pixels of an image that is passed to a network as a whole."""


class View(NamedTuple):
    """The way in which images are passed to a network."""

    multiple: Extent
    """Divisors of the heights and widths that the network accepts."""
    window: Extent | None = None
    """Size of the windows, multiples of ``multiple``; None for the whole image."""
    overlap: float = 0.0
    """Least fraction of a window's side that the next one shows, too."""
    mirror: bool = False
    """Average with the mirror image."""

    def require_small(self, size: Extent, where: object) -> None:
        """Raise `DataError` for an image that is too large to be passed as a whole."""
        if self.window is None and size[0] * size[1] > MOST_WHOLE:
            what = f"the image has {size[1]:,}×{size[0]:,} pixels, too many to be segmented as a whole"
            hint = "segment it in windows of about the size that the model was trained on: --window 512"
            raise DataError(what, where=where, hint=hint)

    def window_for(self, size: Extent) -> Extent:
        """Return the size of the windows of an image: of a whole image its padded size."""
        return self.window or self.padded(size)

    def padded(self, size: Extent) -> Extent:
        """Return the least size that covers an image of this size and is a window, plus multiples of ``multiple``."""
        sides = zip(size, self.window or (0, 0), self.multiple, strict=True)
        height, width = (least + max(0, -(-(side - least) // each)) * each for side, least, each in sides)
        return height, width


def logits_in_bands(network: Network, images: Tensor, view: View) -> Iterator[tuple[slice, Tensor]]:
    """Yield all rows of images (B, C, H, W), uint8, from the top, with their logits (B, K, rows, W)."""
    rows, columns = images.shape[-2:]
    top = 0
    for band in _enlarged(_strips(_mirrored(network) if view.mirror else network, images, view)):
        band = band[:, :, : rows - top, :columns]  # without the padding
        if band.shape[2]:
            yield slice(top, top + band.shape[2]), band
        top += band.shape[2]


class _Strip(NamedTuple):
    """Some rows of logits at the network's stride."""

    logits: Tensor
    """(B, K, rows, columns)."""
    stride: Extent


def _strips(network: Network, images: Tensor, view: View) -> Iterator[_Strip]:
    """Yield the logits of padded images from the top, averaged where windows overlap."""
    images = _with_padding(images, view)
    size = (images.shape[-2], images.shape[-1])
    window = view.window_for(size)
    tops, lefts = (_starts(*sides, view.overlap) for sides in zip(size, window, view.multiple, strict=True))
    if len(tops) == len(lefts) == 1:
        yield _at_whole_stride(network(images), size, view.multiple)
        return
    held = None  # sums of rows that windows further down show, too
    for top, following in pairwise((*tops, size[0])):
        for left in lefts:
            shown = images[:, :, top : top + window[0], left : left + window[1]]
            logits, stride = _at_whole_stride(network(shown), window, view.multiple)
            weights = _taper(logits)
            if left == 0:
                total = logits.new_zeros(*logits.shape[:3], size[1] // stride[1])
                weight = torch.zeros_like(total[0, 0])
                if held is not None:
                    total[:, :, : held[0].shape[2]], weight[: len(held[1])] = held
            columns = slice(left // stride[1], left // stride[1] + logits.shape[3])
            total[..., columns] += logits * weights
            weight[:, columns] += weights
        done = (following - top) // stride[0]
        yield _Strip(total[:, :, :done] / weight[:done], stride)
        held = total[:, :, done:].clone(), weight[done:].clone()


def _starts(side: int, window: int, multiple: int, overlap: float) -> list[int]:
    """Return where windows start along a side; the last one ends with it."""
    step = max(1, int(window * (1 - overlap)) // multiple) * multiple
    return [*range(0, side - window, step), side - window]


def _at_whole_stride(logits: Tensor, size: Extent, multiple: Extent) -> _Strip:
    """Return the logits of an image of this size with their stride, after a resize if it does not divide ``multiple``.

    Windows start at multiples of ``multiple``, where their logits must meet. A patch of 14 pixels at the stride 4 needs a resize.
    """
    sides = tuple(zip(size, logits.shape[-2:], multiple, strict=True))
    down, across = (max(d for d in range(1, each + 1) if each % d == 0 and d * own <= side) for side, own, each in sides)
    grid = (size[0] // down, size[1] // across)
    return _Strip(resized(logits, grid), (down, across))


def _taper(logits: Tensor) -> Tensor:
    """Return weights (h, w) of a window's logits that fall linearly from the middle to the borders."""
    down, across = (torch.arange(side, device=logits.device) + 0.5 for side in logits.shape[-2:])
    down, across = (torch.minimum(places, len(places) - places) / len(places) for places in (down, across))
    return down[:, None] * across


def _with_padding(images: Tensor, view: View) -> Tensor:
    """Return images (B, C, H, W) padded at the right and bottom with their mirror images, which a network mistakes the least."""
    for axis, padded in zip((-2, -1), view.padded((images.shape[-2], images.shape[-1])), strict=True):
        side = images.shape[axis]
        if padded > side:
            places = torch.arange(padded, device=images.device)
            images = images.index_select(axis, torch.minimum(places, 2 * side - 1 - places).clamp(min=0))
    return images


def _mirrored(network: Network) -> Network:
    """Return the network that averages the logits of an image and of its mirror image."""
    return lambda images: (network(images) + network(images.flip(-1)).flip(-1)) / 2


def _enlarged(strips: Iterator[_Strip]) -> Iterator[Tensor]:
    """Yield the logits of strips at full size, as one bilinear resize of all rows would give them, in bands.

    A row between two others needs both. So the last row so far is held back until the next is there.
    """
    held: Tensor | None = None
    stride = (1, 1)
    for logits, stride in strips:
        row_bytes = 4 * logits[:, :, 0].numel() * stride[0] * stride[1]
        for part in logits.split(max(1, BAND // row_bytes), dim=2):
            rows = part if held is None else torch.cat([held, part], dim=2)
            above = 0 if held is None else held.shape[2] - 1
            yield _enlarged_by(rows, stride)[:, :, stride[0] * above : stride[0] * (rows.shape[2] - 1)]
            held = rows[:, :, -2:]
    if held is not None:
        yield _enlarged_by(held, stride)[:, :, stride[0] * (held.shape[2] - 1) :]


def resized(logits: Tensor, size: Extent) -> Tensor:
    """Return logits (B, K, h, w) at another size, by bilinear interpolation."""
    return logits if logits.shape[-2:] == size else F.interpolate(logits, size, mode="bilinear", align_corners=False)


def _enlarged_by(logits: Tensor, stride: Extent) -> Tensor:
    return resized(logits, (logits.shape[2] * stride[0], logits.shape[3] * stride[1]))
