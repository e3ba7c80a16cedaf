"""Attention by random features: it is what its formula says, near softmax for many features, and linear in the tokens."""

import pytest
import torch

from vitrail.errors import ConfigError
from vitrail.parts import KernelAttention, attention_weights
from vitrail.parts.attention.performer import positive_features


def test_features_are_those_of_the_paper_and_their_products_near_the_exponential():
    torch.manual_seed(0)
    q, k, directions = 0.3 * torch.randn(2, 5, 8), 0.3 * torch.randn(2, 6, 8), torch.randn(200_000, 8)
    products = positive_features(q, directions) @ positive_features(k, directions).mT
    torch.testing.assert_close(products, (q @ k.mT).exp(), rtol=0.05, atol=0)


def test_weights_are_near_those_of_a_softmax_without_a_scale_and_rows_sum_to_one():
    torch.manual_seed(0)
    attention = KernelAttention(8, 2, features=4096)
    torch.nn.init.normal_(attention.features)
    x = 0.5 * torch.randn(2, 7, 8)
    q, k, _ = attention.project(x)
    found = attention.weights(x)
    torch.testing.assert_close(found.sum(dim=-1), torch.ones(2, 2, 7))
    torch.testing.assert_close(found, attention_weights(q, k, scale=1.0), rtol=0.1, atol=0)


def test_the_result_is_that_of_the_weights():
    torch.manual_seed(0)
    attention = KernelAttention(12, 2, features=5, query_dim=8, output_dim=8, value_skip=True)
    x = torch.randn(2, 9, 12)
    _, _, v = attention.project(x)
    heads = attention.weights(x) @ v
    expected = v.transpose(1, 2).flatten(2) + attention.output(heads.transpose(1, 2).flatten(2))
    torch.testing.assert_close(attention(x), expected)


def test_random_features_are_kept_orthogonal_and_as_long_as_the_authors():
    features = KernelAttention(12, 1, features=6).features
    torch.testing.assert_close(features @ features.mT, 6 * torch.eye(6), rtol=1e-5, atol=1e-5)
    assert "features" in KernelAttention(12, 1, features=6).state_dict()


@pytest.mark.parametrize("options", [{"mask": torch.ones(3, 3, dtype=torch.bool)}, {"bias": torch.zeros(3, 3)}, {"causal": True}])
def test_what_it_cannot_hide_is_refused(options):
    with pytest.raises(ConfigError, match="takes no mask, bias, groups or causal"):
        KernelAttention(8, 1, features=4)(torch.randn(1, 3, 8), **options)
