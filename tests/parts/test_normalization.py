"""Norms of tokens and of feature maps."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from vitrail.parts.normalization import BatchNorm, norm_layer


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_a_norm_without_affine_parameters_is_the_fresh_one_with_them(kind):
    plain, usual, x = norm_layer(6, kind=kind, eps=0.1, affine=False), norm_layer(6, kind=kind, eps=0.1), torch.randn(2, 3, 6)
    assert not list(plain.parameters()) and list(usual.parameters())
    torch.testing.assert_close(plain(x), usual(x))


def remembering(kind):
    """A norm of three channels that has seen other maps before."""
    torch.manual_seed(0)
    norm = kind(3)
    nn.init.normal_(norm.weight)
    norm(2 + 3 * torch.randn(8, 3, 4, 4))
    return norm


@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 3))
def test_batch_norm_is_torchs_wherever_torch_has_one(batch, height, width):
    ours, theirs = remembering(BatchNorm), remembering(nn.BatchNorm2d)
    maps = torch.randn(batch, 3, height, width)
    if batch * height * width > 1:
        torch.testing.assert_close(ours(maps), theirs(maps), rtol=0, atol=0)
        torch.testing.assert_close(ours.state_dict(), theirs.state_dict(), rtol=0, atol=0)
    torch.testing.assert_close(ours.eval()(maps), theirs.eval()(maps), rtol=0, atol=0)


def test_of_a_single_value_per_channel_batch_norm_learns_its_scale_alone():
    norm, before, one = remembering(BatchNorm), remembering(BatchNorm).state_dict(), torch.randn(1, 3, 1, 1)
    answer = norm(one)
    answer.sum().backward()
    torch.testing.assert_close(answer, remembering(BatchNorm).eval()(one))
    torch.testing.assert_close(dict(norm.state_dict()), dict(before))
    assert norm.weight.grad.abs().min() > 0 and norm.bias.grad.abs().min() > 0
