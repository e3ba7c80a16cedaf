"""Soft splits are torch's unfolding."""

import pytest
import torch
from torch import nn

from vitrail.parts import KeptPosition, SoftSplit, sincos_position_1d


@pytest.mark.parametrize(("side", "stride", "padding"), [(7, 4, 2), (3, 2, 1), (3, 1, 1), (4, 4, 0)])
@pytest.mark.parametrize("size", [(16, 16), (13, 18)])
def test_a_soft_split_is_torchs_unfold(side, stride, padding, size):
    images = torch.randn(2, 3, *size)
    expected = nn.Unfold(side, stride=stride, padding=padding)(images).mT
    found = SoftSplit(side, stride, padding)(images.permute(0, 2, 3, 1))
    assert torch.equal(found.flatten(1, 2), expected)


@pytest.mark.parametrize("size", [(1, 1), (2, 9), (9, 1)])
def test_what_is_less_than_a_patch_is_padded_to_one(size):
    images = torch.randn(2, *size, 3)
    larger = nn.functional.pad(images, (0, 0, 0, max(0, 3 - size[1]), 0, max(0, 3 - size[0])))
    assert torch.equal(SoftSplit(7, 4, 2)(images), SoftSplit(7, 4, 2)(larger))


def test_a_kept_table_is_the_computed_one_until_the_grid_changes():
    kept, computed = KeptPosition((3, 4), 8, prefix=1), sincos_position_1d((3, 4), 8, prefix=1)
    x = torch.randn(2, 13, 8)
    assert torch.equal(kept(x), computed(x)) and torch.equal(kept(x, (3, 4)), kept(x))
    assert list(kept.state_dict()) == ["embedding"] and not list(computed.state_dict()) and not list(kept.parameters())
    other = torch.zeros(1, 31, 8)
    assert kept(other, (5, 6)).shape == (1, 31, 8) and not torch.allclose(kept(other, (5, 6)), computed(other, (5, 6)))
    assert torch.equal(kept(other, (5, 6))[0, 0], kept.embedding[0])
