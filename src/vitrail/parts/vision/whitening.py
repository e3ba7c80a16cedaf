"""A first layer whose filters are computed from images before training (Page 2018,
https://github.com/davidcpage/cifar10-fast; Jordan 2024, https://arxiv.org/abs/2404.00498)."""

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

EPSILON = 5e-4
"""Added to the eigenvalues, so that components of little variance are not amplified without limit."""


class Whitening(nn.Conv2d):
    """Principal components of small patches, scaled to variance 1, and their negatives: (B, C, H, W) to (B, 2·C·k², H, W).

    The filters are ``± e_i / sqrt(λ_i + ε)``, with eigenvectors e_i and eigenvalues λ_i of the mean of ``p pᵀ`` over all patches
    p of the images passed to `fit`. They are not trained. Zeros to the right and below preserve height and width; with ``whole``
    there is no padding, and height and width shrink by k − 1.

    Args:
        channels: channels C of the images.
        side: side k of a patch.
        whole: uses only patches that lie inside the image.
    """

    def __init__(self, channels: int, side: int = 2, *, whole: bool = False):
        super().__init__(channels, 2 * channels * side**2, side, bias=False)
        self.whole = whole
        filters = self.weight.detach()
        del self.weight
        self.register_buffer("weight", filters)  # saved in the state dict, but not trained

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self._padded(x))

    def _padded(self, x: Tensor) -> Tensor:
        if self.whole:
            return x
        rows, columns = (side - 1 for side in self.kernel_size)
        return F.pad(x, (0, columns, 0, rows))

    @torch.no_grad()
    def fit(self, batches: Iterable[Tensor]) -> None:
        """Compute the filters from batches (B, C, H, W) of preprocessed images; batches may differ in size."""
        numbers = self.weight[0].numel()
        moments, count = torch.zeros(numbers, numbers, dtype=torch.float64), 0
        for images in batches:
            patches = F.unfold(self._padded(images.double()), self.kernel_size).transpose(0, 1).flatten(1)  # (C·k², all places)
            moments += patches @ patches.T
            count += patches.shape[1]
        values, vectors = torch.linalg.eigh(moments / max(1, count))
        filters = (vectors / (values + EPSILON).sqrt()).T
        self.weight.copy_(torch.cat([filters, -filters]).view_as(self.weight))
