"""Patch dropout and token merging: which tokens stay, and what they take along."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vitrail.parts import RelativePositionBias, RotaryPosition2d
from vitrail.parts.vision.token_reduction import keep_bias, keep_rotation, keep_tokens, merge_tokens, random_keep

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


# merging


def merged_one_by_one(x, keys, sizes, count):
    """What the paper says in words, for one image: token by token, in Python."""
    x, sizes = x.double(), sizes.double()
    unit = keys / keys.norm(dim=-1, keepdim=True)
    offers = []
    for i in range(0, len(x), 2):
        scores = [float(unit[i] @ unit[j]) for j in range(1, len(x), 2)]
        offers.append((max(scores), i, 2 * scores.index(max(scores)) + 1))
    groups = {i: [i] for i in range(len(x))}
    for _, i, into in sorted(offers, reverse=True)[: min(count, len(x) // 2)]:
        groups[into] += groups.pop(i)
    return {frozenset(g): sum(x[i] * sizes[i] for i in g) / sum(sizes[i] for i in g) for g in groups.values()}


@given(tokens=st.integers(2, 15), count=st.integers(1, 9), seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_merged_tokens_are_the_means_of_what_went_into_them(tokens, count, seed):
    torch.manual_seed(seed)
    x, keys, sizes = torch.randn(3, tokens, 8), torch.randn(3, tokens, 4), torch.randint(1, 5, (3, tokens, 1)).float()
    merged, new_sizes, place = merge_tokens(x, keys, sizes, count)
    left = tokens - min(count, tokens // 2)
    assert merged.shape == (3, left, 8) and new_sizes.shape == (3, left, 1)
    for i in range(3):
        expected = merged_one_by_one(x[i], keys[i], sizes[i], count)
        for new in range(left):
            members = frozenset((place[i] == new).nonzero().flatten().tolist())
            torch.testing.assert_close(merged[i, new].double(), expected[members], atol=1e-5, rtol=1e-5)
            assert new_sizes[i, new] == sizes[i, list(members)].sum()


def test_prefix_tokens_stay_before_the_patches_as_they_are():
    torch.manual_seed(0)
    x, keys, sizes = torch.randn(3, 9, 8), torch.randn(3, 9, 4), torch.ones(3, 9, 1)
    merged, new_sizes, place = merge_tokens(x, keys, sizes, 3, prefix=2)
    alone, alone_sizes, alone_place = merge_tokens(x[:, 2:], keys[:, 2:], sizes[:, 2:], 3)
    assert torch.equal(merged[:, :2], x[:, :2]) and torch.equal(new_sizes[:, :2], sizes[:, :2])
    assert torch.equal(place, torch.cat([torch.arange(2).expand(3, -1), alone_place + 2], dim=1))
    torch.testing.assert_close(merged[:, 2:], alone)
    assert torch.equal(new_sizes[:, 2:], alone_sizes)


@pytest.mark.parametrize("patches", [0, 1])
def test_a_patch_that_is_alone_stays(patches):
    x, keys, sizes = torch.randn(2, 3 + patches, 8), torch.randn(2, 3 + patches, 4), torch.ones(2, 3 + patches, 1)
    merged, new_sizes, place = merge_tokens(x, keys, sizes, 2, prefix=3)
    assert torch.equal(merged, x) and torch.equal(new_sizes, sizes)
    assert torch.equal(place, torch.arange(3 + patches).expand(2, -1))
