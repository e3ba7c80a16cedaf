"""A first layer that is fitted to images before training begins (Page 2018,
https://github.com/davidcpage/cifar10-fast; Jordan 2024, https://arxiv.org/abs/2404.00498)."""

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

EPSILON = 5e-4
"""Added to the eigenvalues, lest noise is made large."""


class Whitening(nn.Conv2d):
    """The principal components of small patches, each with variance 1, and their negatives: (B, C, H, W) to (B, 2·C·k², H, W).

    The filters are ``± e_i / sqrt(λ_i + ε)``, with the eigenvectors and eigenvalues of the mean of ``p pᵀ`` over all patches p of
    the images in `fit`. They are not trained. Zeros to the right and below keep height and width, unless patches are ``whole``:
    then k − 1 rows and columns fewer come out.

    Args:
        channels: C of the images.
        side: k of a patch.
        whole: patches inside the image alone.
    """

    def __init__(self, channels: int, side: int = 2, *, whole: bool = False):
        super().__init__(channels, 2 * channels * side**2, side, bias=False)
        self.whole = whole
        filters = self.weight.detach()
        del self.weight
        self.register_buffer("weight", filters)  # kept with the weights, but no parameter

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self._padded(x))

    def _padded(self, x: Tensor) -> Tensor:
        if self.whole:
            return x
        rows, columns = (side - 1 for side in self.kernel_size)
        return F.pad(x, (0, columns, 0, rows))

    @torch.no_grad()
    def fit(self, batches: Iterable[Tensor]) -> None:
        """Take the filters from batches (B, C, H, W) of images as the model sees them, each of any size."""
        numbers = self.weight[0].numel()
        moments, count = torch.zeros(numbers, numbers, dtype=torch.float64), 0
        for images in batches:
            patches = F.unfold(self._padded(images.double()), self.kernel_size).transpose(0, 1).flatten(1)  # (C·k², all places)
            moments += patches @ patches.T
            count += patches.shape[1]
        values, vectors = torch.linalg.eigh(moments / max(1, count))
        filters = (vectors / (values + EPSILON).sqrt()).T
        self.weight.copy_(torch.cat([filters, -filters]).view_as(self.weight))
