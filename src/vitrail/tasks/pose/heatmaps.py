"""Joints as heatmaps and back: unbiased coordinates (UDP; Huang et al. 2020, https://arxiv.org/abs/1911.07524), refined by the
shape of the peak (DARK; Zhang et al. 2020, https://arxiv.org/abs/1910.06278).

Positions are (x, y), x to the right and y down. In image and heatmap, (0, 0) is the centre of the first pixel and
(W - 1, H - 1) the centre of the last, so that their outermost pixels coincide.
"""

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.checks import nearest_multiple
from vitrail.data.images.box_preparation import BoxPreparation
from vitrail.models.configs.base import ENLARGED
from vitrail.parts.vision.heatmap_decoder import pixels_per_place
from vitrail.tasks.pose.people.skeleton import Skeleton

Size = tuple[int, int]
"""Height and width."""
Network = Callable[[Tensor], Tensor]
"""Function from images (B, C, H, W) to heatmaps (B, K, h, w)."""
SHARPNESS = 20.0
"""Factor of a view's mean peak height in the softmax that weighs views. On validation data 10 to 40 gave equal results."""
FEW = 8
"""Number of images below which several turns are computed in one batch."""

REACH = 3
"""Distance from a joint, in standard deviations, beyond which its heatmap is zero."""
RADIUS = 5
"""Radius of the smoothing kernel in heatmap cells: 11 cells in all, as in the authors' code."""
LEAST, MOST = 1e-3, 50.0
"""Limits of heatmap values before the logarithm."""
FARTHEST = 3.0
"""Maximum refinement in cells; in a heatmap that is not bell-shaped the step may point anywhere."""


def encode(joints: Tensor, image: Size, heatmap: Size, *, sigma: float = 2.0) -> tuple[Tensor, Tensor]:
    """Compute heatmaps (…, K, h, w) of joints at image positions (…, K, 2), and whether each is non-zero (…, K).

    Each is ``exp(-d² / 2σ²)``, with d the distance to the joint, which may lie between cells; it is zero outside a square around
    the nearest cell. ``sigma`` is in heatmap cells.
    """
    exact = joints / pixels_per_place(image, heatmap).to(joints)
    nearest = (exact + 0.5).trunc()
    across, down = (
        _bell(torch.arange(size).to(joints), exact[..., axis, None], nearest[..., axis, None], sigma)
        for axis, size in enumerate(reversed(heatmap))
    )
    maps = down[..., :, None] * across[..., None, :]
    return maps, maps.flatten(-2).amax(-1) > 0


def _bell(places: Tensor, exact: Tensor, nearest: Tensor, sigma: float) -> Tensor:
    bell = torch.exp(-((places - exact) ** 2) / (2 * sigma**2))
    return bell * ((places - nearest).abs() <= REACH * sigma)


def decode(heatmaps: Tensor, *, sigma: float = 2.0, exact_rim: bool = True) -> tuple[Tensor, Tensor]:
    """Read the joints in heatmaps (B, K, h, w): positions in heatmap cells (B, K, 2), and the height of each peak, (B, K).

    From the highest cell, one step of Newton's method is taken on the logarithm of the smoothed map, ``m - H⁻¹ g``; the
    logarithm of a bell is a parabola.

    Args:
        heatmaps: heatmaps of any scale.
        sigma: standard deviation of the smoothing, in cells: 2 in the authors' code, 0.8 in transformers; 0 for none.
        exact_rim: near the border, where smoothing distorts, use the unsmoothed map, and take derivatives at the nearest cell
            that has all its neighbours; if the step is longer than three cells, return the highest cell. False is the
            authors' method.
    """
    height, width = heatmaps.shape[-2:]
    scores, highest = heatmaps.flatten(2).max(dim=2)
    x, y = highest % width, highest // width
    maps = smoothed(heatmaps, sigma)
    peak = torch.stack([x, y], dim=-1)
    if not exact_rim:
        return peak - _step(maps, x, y), scores
    near = torch.stack([x, y, width - 1 - x, height - 1 - y]).amin(dim=0) <= RADIUS
    inside = x.clamp(1, max(1, width - 2)), y.clamp(1, max(1, height - 2))
    step = _step(torch.where(near[..., None, None], heatmaps, maps), *inside)
    found = torch.stack(inside, dim=-1) - step
    return torch.where(step.norm(dim=-1, keepdim=True) <= FARTHEST, found, peak.to(found)), scores


def _step(maps: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Compute ``H⁻¹ g`` of the logarithm of maps (B, K, h, w) at cells (B, K): (B, K, 2); 0 where H is singular."""
    logs = F.pad(maps.clamp(LEAST, MOST).log(), (1, 1, 1, 1), mode="replicate")
    flat, stride = logs.flatten(2), maps.shape[-1] + 2

    def at(dx: int, dy: int) -> Tensor:
        return flat.gather(2, ((y + 1 + dy) * stride + x + 1 + dx)[..., None])[..., 0]

    here, left, right, above, below = at(0, 0), at(-1, 0), at(1, 0), at(0, -1), at(0, 1)
    gradient = torch.stack([right - left, below - above], dim=-1) / 2
    xx, yy = right - 2 * here + left, below - 2 * here + above
    xy = (at(1, 1) - right - below + 2 * here - left - above + at(-1, -1)) / 2
    hessian = torch.stack([xx, xy, xy, yy], dim=-1).unflatten(-1, (2, 2))
    hessian = hessian + torch.finfo(torch.float32).eps * torch.eye(2).to(hessian)
    step, _ = torch.linalg.solve_ex(hessian, gradient[..., None])  # `torch.linalg.solve` raises if any matrix is singular
    return step[..., 0].nan_to_num(0.0, 0.0, 0.0)


def smoothed(heatmaps: Tensor, sigma: float) -> Tensor:
    """Smooth (…, h, w) by a Gaussian, mirrored at the border, like SciPy's ``gaussian_filter`` with radius 5."""
    if not sigma:
        return heatmaps
    down, across = (_smoothing(size, sigma).to(heatmaps) for size in heatmaps.shape[-2:])
    return down @ heatmaps @ across.T


def _smoothing(size: int, sigma: float) -> Tensor:
    offsets = torch.arange(-RADIUS, RADIUS + 1)
    weights = torch.exp(-(offsets.double() ** 2) / (2 * sigma**2))
    places = (torch.arange(size)[:, None] + offsets) % (2 * size)
    mirrored = torch.where(places < size, places, 2 * size - 1 - places)
    matrix = torch.zeros(size, size, dtype=torch.float64)
    return matrix.scatter_add_(1, mirrored, (weights / weights.sum()).expand(size, -1))


def mirrored(heatmaps: Tensor, order: Sequence[int]) -> Tensor:
    """Mirror heatmaps (B, K, h, w) of a mirrored image back; ``order`` as `Skeleton.order_mirrored`."""
    return heatmaps[:, list(order)].flip(-1)


def heatmaps_of(
    network: Network, images: Tensor, preparation: BoxPreparation, skeleton: Skeleton, *, mirror: bool
) -> tuple[Tensor, Tensor]:
    """Return the heatmaps to read joints from and those to compute the loss on, (B, K, h, w) each, for images (B, C, H, W).

    For a preparation with several views both are the mean of views, `in_views`. Otherwise the loss is on the plain image, and
    with ``mirror`` joints are read from the mean of the image and its mirror image. Turned views are never mirrored, since
    it improves nothing.
    """
    mirror = mirror and not preparation.upright

    def both_sides(plain: Tensor, images: Tensor) -> Tensor:
        return (plain + mirrored(network(images.flip(-1)), skeleton.order_mirrored)) / 2 if mirror else plain

    if preparation.views > 1:
        turns, smaller = preparation.turns, preparation.smaller_sizes
        heatmaps = in_views(lambda images: both_sides(network(images), images), images, turns, smaller)
        return heatmaps, heatmaps
    plain = network(images)
    return both_sides(plain, images), plain


def in_views(network: Network, images: Tensor, turns: Sequence[int], smaller: Sequence[float] = ()) -> Tensor:
    """Return the mean heatmaps (B, K, h, w) of several views of images (B, C, H, W), weighed by the height of their peaks.

    Images must be square if they are turned.

    Args:
        network: maps images to heatmaps; it must accept any size if there are smaller ones.
        images: input of the network.
        turns: counterclockwise turns, in eighths.
        smaller: further image sizes, as fractions of the size, rounded to whole patches.
    """
    peaks, back = in_turns(network, images, turns)
    size = back.shape[-2:]
    patch = [ENLARGED * side // places for side, places in zip(images.shape[-2:], size, strict=True)]
    for share in smaller:
        sides = [nearest_multiple(share * side, own) for side, own in zip(images.shape[-2:], patch, strict=True)]
        more, answers = in_turns(network, resized(images, sides), turns)
        peaks, back = torch.cat([peaks, more]), torch.cat([back, resized(answers.flatten(0, 1), size).unflatten(0, more.shape)])
    return torch.einsum("vb,vbkhw->bkhw", (SHARPNESS * peaks).softmax(dim=0), back)


def in_turns(network: Network, images: Tensor, turns: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return the `peaks_of` images (B, C, H, W) in T turns, (T, B), and their heatmaps, turned back, (T, B, K, h, w)."""
    together = max(1, FEW // len(images))  # few images: several turns per batch
    parts = [turns[start : start + together] for start in range(0, len(turns), together)]
    answers = torch.cat([network(torch.cat([turned_by(images, eighths) for eighths in part])) for part in parts])
    answers = answers.unflatten(0, (len(turns), -1))
    back = [turned_by(answer, -eighths, beyond="zeros") for eighths, answer in zip(turns, answers, strict=True)]
    return peaks_of(answers), torch.stack(back)


def turned_by(images: Tensor, eighths: int, *, beyond: str = "border") -> Tensor:
    """Turn square images (B, C, H, H) counterclockwise by eighths; ``beyond`` fills corners with "zeros" or the "border"."""
    quarters, diagonal = divmod(eighths, 2)
    images = torch.rot90(images, quarters, (-2, -1)) if quarters else images
    if not diagonal:
        return images
    side = math.sqrt(0.5)
    matrix = torch.tensor([[side, -side, 0.0], [side, side, 0.0]], device=images.device).expand(len(images), 2, 3)
    grid = F.affine_grid(matrix, list(images.shape), align_corners=True)
    return _of_kind(images.dtype, F.grid_sample(images.float(), grid, padding_mode=beyond, align_corners=True))


def resized(images: Tensor, size: Sequence[int]) -> Tensor:
    """Resize images (B, C, H, W) with aligned corner pixels, as heatmaps are aligned with images."""
    return _of_kind(images.dtype, F.interpolate(images.float(), list(size), mode="bilinear", align_corners=True))


def _of_kind(kind: torch.dtype, values: Tensor) -> Tensor:
    return values if kind.is_floating_point else values.round().to(kind)


def surest_turns(network: Network, images: Tensor) -> Tensor:
    """Return the counterclockwise quarter turns, (B,), in which square images (B, C, H, H) have the highest peaks."""
    answers = torch.stack([network(torch.rot90(images, turns, (-2, -1))) for turns in range(4)])  # (4, B, K, h, h)
    return peaks_of(answers).argmax(dim=0).cpu()


def peaks_of(heatmaps: Tensor) -> Tensor:
    """Return the mean height of the joints' peaks in heatmaps (…, K, h, w): (…)."""
    return heatmaps.flatten(-2).amax(dim=-1).mean(dim=-1)


def turned(images: Tensor, turns: Tensor) -> Tensor:
    """Turn square images (B, C, H, H) counterclockwise, each by its own number of quarter turns (B,)."""
    if not turns.any():
        return images
    return torch.stack([torch.rot90(image, int(count), (-2, -1)) for image, count in zip(images, turns, strict=True)])


def joints_in(heatmaps: Tensor, preparation: BoxPreparation) -> tuple[Tensor, Tensor]:
    """Read the joints in heatmaps (B, K, h, w) of prepared inputs: positions in the input (B, K, 2), and scores (B, K)."""
    places, scores = decode(heatmaps.float(), sigma=preparation.smoothing)
    size = (heatmaps.shape[-2], heatmaps.shape[-1])
    return places * pixels_per_place(preparation.image_size, size).to(places), scores
