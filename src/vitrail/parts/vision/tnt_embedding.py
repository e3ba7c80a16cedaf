"""Words inside of patches (TNT; Han et al. 2021, https://arxiv.org/abs/2103.00112).

The words of all patches stand behind each other, (B·N, n, d): n words of every patch, the patches of an image row by row.
"""

from typing import Any

import torch
from torch import Tensor, nn

from vitrail.parts.attention.windows import cut_windows
from vitrail.parts.block import Block
from vitrail.parts.positions.interpolation import Grid
from vitrail.parts.vision.patches import Size, grid_size, middle_of, patchify


class WordEmbedding(nn.Module):
    """Each patch as words, by a 7×7 convolution: (B, C, H, W) to (B·N, n, d).

    Args:
        channels: of the images.
        dim: width d of a word.
        patch_size: height and width of a patch.
        stride: pixels from one word to the next, which divides the patch.
        across: whether the convolution sees the whole image, and not every patch alone, with zeros around it.
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
    """A token of each patch from its words: (B·N, n, d) to (B, N, D).

    ``LN(W LN([w_1; …; w_n]))``, equation (5); where norms are on ``each`` word, ``W [LN(w_1); …; LN(w_n)]``.

    Args:
        words: n.
        dim: width d of a word.
        output_dim: width D.
        bias: of W.
        each: where the norms are.
        norm_eps: their epsilon.
    """

    def __init__(self, words: int, dim: int, output_dim: int, *, bias: bool, each: bool = False, norm_eps: float = 1e-5):
        super().__init__()
        self.each = each
        self.norm = nn.LayerNorm(dim if each else words * dim, eps=norm_eps)
        self.projection = nn.Linear(words * dim, output_dim, bias=bias)
        self.output_norm = nn.Identity() if each else nn.LayerNorm(output_dim, eps=norm_eps)

    def forward(self, words: Tensor, patches: int) -> Tensor:
        """Fold words (B·N, n, d) of N ``patches`` into tokens (B, N, D)."""
        x = self.norm(words).flatten(1) if self.each else self.norm(words.flatten(1))  # (B·N, n·d)
        return self.output_norm(self.projection(x.unflatten(0, (-1, patches))))


class NestedBlock(Block):
    """A block among the words of every patch, whose result is added to the patch, and a block among the patches.

    Args:
        dim: width D of a patch's token.
        attention, mlp: among the patches.
        inner: the block among words.
        fold: as `WordsToPatches`.
        options: as in `vitrail.parts.block.Branch`, of the branches among the patches.
    """

    def __init__(self, dim: int, attention: nn.Module, mlp: nn.Module, *, inner: Block, fold: WordsToPatches, **options: Any):
        super().__init__(dim, attention, mlp, **options)
        among_patches = dict(self.named_children())
        for name in among_patches:
            delattr(self, name)
        self.inner, self.fold = inner, fold
        for name, branch in among_patches.items():  # in the order of the pass: the MLP of the patches is the last
            self.add_module(name, branch)

    def forward(self, x: Tensor, words: Tensor, *, grid: Grid, **options: Any) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        """Map tokens (B, prefix + N, D) of patches on a ``grid`` and words (B·N, n, d) to the same; ``options`` as in `Block`."""
        words, count = self.inner(words), grid[0] * grid[1]
        prefix = x.shape[1] - count
        x = torch.cat([x[:, :prefix], x[:, prefix:] + self.fold(words, count)], dim=1)
        return super().forward(x, **options), words
