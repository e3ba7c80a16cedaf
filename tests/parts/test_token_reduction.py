"""Patch dropout: which tokens stay, and what positions they take along."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vitrail.parts import RelativePositionBias, RotaryPosition2d
from vitrail.parts.token_reduction import keep_bias, keep_rotation, keep_tokens, random_keep

CPU = torch.device("cpu")


@given(batch=st.integers(1, 4), patches=st.integers(1, 12), prefix=st.integers(0, 3), drop=st.floats(0, 0.99))
@settings(max_examples=40, deadline=None)
def test_every_prefix_token_and_the_right_number_of_patches_stay_in_order(batch, patches, prefix, drop):
    kept = random_keep(batch, patches, prefix=prefix, drop=drop, device=CPU)
    assert kept.shape == (batch, prefix + max(1, round(patches * (1 - drop))))
    for row in kept.tolist():
        assert row[:prefix] == list(range(prefix))
        assert row == sorted(set(row))
        assert all(prefix <= token < prefix + patches for token in row[prefix:])


def test_every_patch_is_equally_likely_and_samples_differ():
    kept = random_keep(4000, 8, prefix=1, drop=0.5, device=CPU)
    share = torch.bincount(kept[:, 1:].flatten(), minlength=9)[1:] / 4000
    assert ((share - 0.5).abs() < 0.05).all()
    assert len(kept.unique(dim=0)) > 50


def test_kept_tokens_are_those_at_the_indices():
    x, kept = torch.randn(2, 5, 3), torch.tensor([[0, 2, 4], [0, 1, 3]])
    result = keep_tokens(x, kept)
    for sample in range(2):
        for place in range(3):
            assert torch.equal(result[sample, place], x[sample, kept[sample, place]])


@pytest.mark.parametrize("prefix", [0, 1])
def test_a_kept_bias_is_that_of_the_kept_pairs(prefix):
    bias = RelativePositionBias((2, 3), 2, prefix=prefix)()
    kept = random_keep(3, 6, prefix=prefix, drop=0.5, device=CPU)
    result = keep_bias(bias, kept)
    assert result.shape == (3, 2, prefix + 3, prefix + 3)
    for sample in range(3):
        for i, token in enumerate(kept[sample]):
            for j, other in enumerate(kept[sample]):
                assert torch.equal(result[sample, :, i, j], bias[:, token, other])


def test_a_kept_rotation_is_that_of_the_kept_tokens_for_all_heads():
    rotation = RotaryPosition2d((2, 3), 8, prefix=1)()
    kept = random_keep(3, 6, prefix=1, drop=0.5, device=CPU)
    for table, result in zip(rotation, keep_rotation(rotation, kept), strict=True):
        assert result.shape == (3, 1, 4, 8)
        for sample in range(3):
            assert torch.equal(result[sample, 0], table[kept[sample]])
