"""A whitened first layer: what it gives of its images has no correlation, and variance one."""

import numpy as np
import pytest
import torch
from torch import nn

from vitrail.parts.vision.whitening import EPSILON, Whitening


def correlated(count: int, channels: int, *size: int) -> torch.Tensor:
    """Images whose neighbours and channels are alike."""
    noise = torch.randn(count, channels, *size, generator=torch.Generator().manual_seed(0)).cumsum(-1)
    return (noise - noise.mean()) / noise.std() + 0.5 * noise.mean(1, keepdim=True)


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize(("channels", "side", "size"), [(3, 2, (9, 12)), (1, 2, (5, 4)), (2, 3, (8, 8))])
def test_what_it_gives_has_no_correlation_and_variance_one(channels, side, size, whole):
    images = correlated(40, channels, *size)
    layer = Whitening(channels, side, whole=whole).double()
    layer.fit([images[:7], images[7:]])
    found = layer(images.double())
    half, rim = channels * side**2, 0 if whole else side - 1
    assert found.shape == (40, 2 * half, size[0] + rim + 1 - side, size[1] + rim + 1 - side)
    torch.testing.assert_close(found[:, half:], -found[:, :half])
    values = found[:, :half].transpose(0, 1).flatten(1).numpy()
    moments = values @ values.T / values.shape[1]

    padded = np.pad(images.double().numpy(), ((0, 0), (0, 0), (0, rim), (0, rim)))
    patches = np.lib.stride_tricks.sliding_window_view(padded, (side, side), axis=(2, 3)).transpose(1, 4, 5, 0, 2, 3)
    patches = patches.reshape(half, -1)
    spectrum = np.linalg.svd(patches, compute_uv=False)[::-1] ** 2 / patches.shape[1]
    np.testing.assert_allclose(moments, np.diag(spectrum / (spectrum + EPSILON)), atol=1e-9)


def test_it_is_kept_with_the_weights_and_is_none_that_learns():
    layer = Whitening(3)
    assert not list(layer.parameters()) and list(layer.state_dict()) == ["weight"]
    layer(torch.rand(1, 3, 4, 4, requires_grad=True)).sum().backward()
    assert isinstance(layer, nn.Conv2d) and layer.weight.grad is None
