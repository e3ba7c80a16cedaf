"""TNT's words, which are the small parts of each patch (Han et al. 2021, https://arxiv.org/abs/2103.00112).

The words of all patches form one batch, (B·N, n, d): N patches of each image row by row, n words of each patch.
"""

from typing import Any

import torch
from torch import Tensor, nn

from vitrail.parts.attention.windows import cut_windows
from vitrail.parts.block import Block
from vitrail.parts.positions.interpolation import Grid
from vitrail.parts.vision.patches import Size, grid_size, middle_of, patchify


class WordEmbedding(nn.Module):
    """A 7×7 convolution that makes the words of each patch: (B, C, H, W) to (B·N, n, d).

    Args:
        channels: channels of the images.
        dim: width d of a word.
        patch_size: height and width of a patch.
        stride: pixels from one word to the next; it must divide the patch.
        across: the convolution sees the whole image; otherwise each patch alone, padded with zeros.
    """

    def __init__(self, channels: int, dim: int, patch_size: Size, stride: int, *, across: bool = False):
        super().__init__()
        self.patch_size, self.across = patch_size, across
        self.words = grid_size(patch_size, (stride, stride))
        self.projection = nn.Conv2d(channels, dim, 7, stride, padding=3)
        self.first_middle = middle_of(patch_size)
        """The middle of the first patch."""

    def forward(self, images: Tensor) -> Tensor:
        if self.across:
            return cut_windows(self.projection(images).permute(0, 2, 3, 1), self.words).flatten(0, 1)
        patches = patchify(images, self.patch_size).unflatten(2, (-1, *self.patch_size)).flatten(0, 1)  # (B·N, C, P_h, P_w)
        return self.projection(patches).flatten(2).mT


class WordsToPatches(nn.Module):
    """A projection of each patch's words to one token: (B·N, n, d) to (B, N, D).

    ``LN(W LN([w_1; …; w_n]))``, equation (5); with ``each``, ``W [LN(w_1); …; LN(w_n)]``.

    Args:
        words: number n of words in a patch.
        dim: width d of a word.
        output_dim: width D.
        bias: gives W a bias.
        each: puts a norm on each word, instead of norms before and after the projection.
        norm_eps: epsilon of the norms.
    """

    def __init__(self, words: int, dim: int, output_dim: int, *, bias: bool, each: bool = False, norm_eps: float = 1e-5):
        super().__init__()
        self.each = each
        self.norm = nn.LayerNorm(dim if each else words * dim, eps=norm_eps)
        self.projection = nn.Linear(words * dim, output_dim, bias=bias)
        self.output_norm = nn.Identity() if each else nn.LayerNorm(output_dim, eps=norm_eps)

    def forward(self, words: Tensor, patches: int) -> Tensor:
        """Project words (B·N, n, d) of N ``patches`` to tokens (B, N, D)."""
        x = self.norm(words).flatten(1) if self.each else self.norm(words.flatten(1))  # (B·N, n·d)
        return self.output_norm(self.projection(x.unflatten(0, (-1, patches))))


class NestedBlock(Block):
    """A block on the words of every patch, whose projection is added to the patch's token, then a block on the patches.

    Args:
        dim: width D of a patch's token.
        attention, mlp: layers of the block on patches.
        inner: block on the words.
        fold: projection of words to patches, as `WordsToPatches`.
        options: options of the branches on patches, as in `vitrail.parts.block.Branch`.
    """

    def __init__(self, dim: int, attention: nn.Module, mlp: nn.Module, *, inner: Block, fold: WordsToPatches, **options: Any):
        super().__init__(dim, attention, mlp, **options)
        among_patches = dict(self.named_children())
        for name in among_patches:
            delattr(self, name)
        self.inner, self.fold = inner, fold
        for name, branch in among_patches.items():  # registered in the order of the forward pass: the patches' MLP last
            self.add_module(name, branch)

    def forward(self, x: Tensor, words: Tensor, *, grid: Grid, **options: Any) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        """Map tokens (B, prefix + N, D) on a ``grid`` and words (B·N, n, d) to the same shapes; ``options`` as in `Block`."""
        words, count = self.inner(words), grid[0] * grid[1]
        prefix = x.shape[1] - count
        x = torch.cat([x[:, :prefix], x[:, prefix:] + self.fold(words, count)], dim=1)
        return super().forward(x, **options), words
