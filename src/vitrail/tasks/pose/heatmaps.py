"""Joints as heatmaps and back: unbiased coordinates (UDP; Huang et al. 2020, https://arxiv.org/abs/1911.07524), read with the
shape of the peak in mind (DARK; Zhang et al. 2020, https://arxiv.org/abs/1910.06278).

Places are (x, y), x to the right and y down. The centre of the first pixel is at (0, 0) and the centre of the last one at
(W - 1, H - 1), in the image as in the heatmap, so that the outermost pixels of both lie on each other.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.parts.vision.heatmap_decoder import pixels_per_place

Size = tuple[int, int]
"""Height and width."""

REACH = 3
"""Deviations from a joint beyond which its heatmap is zero."""
RADIUS = 5
"""Places to each side that the smoothing of a heatmap takes in: a kernel of 11, as its authors have it."""
LEAST, MOST = 1e-3, 50.0
"""What values are cut to before their logarithm is taken."""
FARTHEST = 3.0
"""Places by which a joint may lie off the highest value; in a heatmap that is no bell the step may lead anywhere."""


def encode(joints: Tensor, image: Size, heatmap: Size, *, sigma: float = 2.0) -> tuple[Tensor, Tensor]:
    """What a model is to answer: places in the image (…, K, 2) to heatmaps (…, K, h, w), and which of them show anything (…, K).

    Each is ``exp(-d² / 2σ²)`` of the distance d to the joint, which may lie between places, in a square around the place next to
    it, and zero elsewhere. ``sigma`` is in places.
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
    """The joints that heatmaps (B, K, h, w) show: places in the heatmap (B, K, 2), and how high each peak is, (B, K).

    From the highest value, one step of Newton's method on the logarithm of the smoothed map, which is a parabola where the map
    is a bell: ``m - H⁻¹ g``.

    Args:
        heatmaps: of any scale.
        sigma: deviation of the smoothing, in places: 2 in the authors' code, 0.8 in transformers; 0 for none.
        exact_rim: near the border use the map as it is, since smoothing distorts it there, and take derivatives at the nearest
            place that has all its neighbours; and where the step is longer than three places, keep the highest place itself.
            False is the authors' way.
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
    """``H⁻¹ g`` of the logarithm of maps (B, K, h, w) at places (B, K): (B, K, 2); 0 where H has no inverse."""
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
    step, _ = torch.linalg.solve_ex(hessian, gradient[..., None])  # `torch.linalg.solve` refuses all where one is singular
    return step[..., 0].nan_to_num(0.0, 0.0, 0.0)


def smoothed(heatmaps: Tensor, sigma: float) -> Tensor:
    """(…, h, w) with a Gaussian of this deviation, mirrored at the rim: as SciPy's ``gaussian_filter`` with a radius of 5."""
    if not sigma:
        return heatmaps
    down, across = (_smoothing(size, sigma).to(heatmaps) for size in heatmaps.shape[-2:])
    return down @ heatmaps @ across.T


def _smoothing(size: int, sigma: float) -> Tensor:
    """The matrix (size, size) that smooths a line."""
    offsets = torch.arange(-RADIUS, RADIUS + 1)
    weights = torch.exp(-(offsets.double() ** 2) / (2 * sigma**2))
    places = (torch.arange(size)[:, None] + offsets) % (2 * size)
    mirrored = torch.where(places < size, places, 2 * size - 1 - places)
    matrix = torch.zeros(size, size, dtype=torch.float64)
    return matrix.scatter_add_(1, mirrored, (weights / weights.sum()).expand(size, -1))


def mirrored(heatmaps: Tensor, order: Sequence[int]) -> Tensor:
    """Heatmaps (B, K, h, w) of a mirrored image as the image itself would have them; ``order`` as `Skeleton.order_mirrored`."""
    return heatmaps[:, list(order)].flip(-1)
