"""Patch embeddings for other patches and channels: the property they are made for, and timm's numbers."""

import pytest
import torch
import torch.nn.functional as F
from timm.layers import resample_patch_embed
from timm.models import adapt_input_conv

from vitrail.parts import adapt_channels, patchify, resize_patches


@pytest.mark.parametrize(
    ("old", "new"), [((8, 8), (16, 16)), ((8, 8), (12, 20)), ((8, 8), (9, 8)), ((4, 6), (7, 6)), ((1, 4), (1, 8))], ids=str
)
def test_an_enlarged_patch_gives_the_token_of_the_patch(old, new):
    weight, patch = torch.randn(5, 3, *old, dtype=torch.float64), torch.randn(1, 3, *old, dtype=torch.float64)
    enlarged = F.interpolate(patch, size=new, mode="bicubic", antialias=True)
    expected = torch.einsum("dchw,bchw->bd", weight, patch)
    torch.testing.assert_close(torch.einsum("dchw,bchw->bd", resize_patches(weight, new), enlarged), expected)


@pytest.mark.parametrize("new", [(16, 16), (4, 4), (6, 10), (8, 12)], ids=str)
def test_numbers_are_timms(new):
    weight = torch.randn(5, 3, 8, 8)
    torch.testing.assert_close(resize_patches(weight, new), resample_patch_embed(weight, list(new)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("old", "new"), [((8, 8), (4, 4)), ((8, 6), (5, 6)), ((4, 4), (4, 1))], ids=str)
def test_a_reduced_patch_gives_the_nearest_token_that_it_can(old, new):
    """Whatever other weights w' are taken, B w' is no nearer to w: the error is at right angles to all that B can give."""
    weight, pixels = torch.randn(5, 3, *old, dtype=torch.float64), torch.eye(old[0] * old[1], dtype=torch.float64)
    columns_first = F.interpolate(pixels.reshape(-1, 1, *old).mT, size=new[::-1], mode="bicubic", antialias=True).mT
    transposed = columns_first.flatten(1)  # Bᵀ: (old pixels, new pixels)
    error = resize_patches(weight, new).flatten(2) @ transposed.T - weight.flatten(2)
    torch.testing.assert_close(error @ transposed, torch.zeros(5, 3, new[0] * new[1], dtype=torch.float64))


def test_a_resized_patch_keeps_the_precision():
    weight = torch.randn(5, 3, 8, 8)
    half = resize_patches(weight.bfloat16(), (12, 12))
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), resize_patches(weight.bfloat16().float(), (12, 12)), rtol=0.01, atol=0.01)


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 7])
def test_channels_are_adapted_as_in_timm(channels):
    weight = torch.randn(5, 3, 4, 4)
    torch.testing.assert_close(adapt_channels(weight, channels), adapt_input_conv(channels, weight))


@pytest.mark.parametrize(("old", "new"), [(3, 1), (1, 3), (3, 6)])
def test_equal_channels_give_the_same_tokens(old, new):
    weight, grey = torch.randn(5, old, 4, 4), torch.randn(2, 1, 8, 8)

    def tokens(weight):
        return patchify(grey.expand(-1, weight.shape[1], -1, -1), (4, 4)) @ weight.flatten(1).T

    torch.testing.assert_close(tokens(adapt_channels(weight, new)), tokens(weight), rtol=1e-4, atol=1e-4)
