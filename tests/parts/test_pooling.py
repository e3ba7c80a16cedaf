"""Poolings against slices and torch's attention."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from vitrail.parts import AttentionPooling, ClassAndMeanPooling, ClassTokenPooling, MeanPooling


def test_class_token_pooling_takes_the_first_token():
    x = torch.randn(2, 5, 4)
    assert torch.equal(ClassTokenPooling()(x), x[:, 0])


@pytest.mark.parametrize("prefix", [0, 1, 3])
def test_mean_pooling_leaves_the_prefix_out(prefix):
    x = torch.randn(2, 7, 4)
    expected = sum(x[:, i] for i in range(prefix, 7)) / (7 - prefix)
    torch.testing.assert_close(MeanPooling(prefix)(x), expected)
    changed = x.clone()
    changed[:, :prefix] = 99
    torch.testing.assert_close(MeanPooling(prefix)(changed), expected)


def test_the_class_token_stands_before_the_mean():
    x = torch.randn(2, 7, 4)
    torch.testing.assert_close(ClassAndMeanPooling(2)(x), torch.cat([x[:, 0], x[:, 2:].mean(dim=1)], dim=1))


def test_attention_pooling_equals_torch_attention_of_a_learned_query_and_an_mlp_branch():
    pool = AttentionPooling(8, 2, 12, norm_eps=1e-3).double()
    for parameter in pool.parameters():
        nn.init.normal_(parameter, std=0.5)
    attention = nn.MultiheadAttention(8, 2, batch_first=True).double()
    ours = pool.attention
    attention.load_state_dict(
        {
            "in_proj_weight": torch.cat([ours.query.weight, ours.key_value.weight]),
            "in_proj_bias": torch.cat([ours.query.bias, ours.key_value.bias]),
            "out_proj.weight": ours.output.weight,
            "out_proj.bias": ours.output.bias,
        }
    )
    x = torch.randn(3, 5, 8, dtype=torch.float64)
    y = attention(pool.query.expand(3, -1, -1), x, x)[0][:, 0]
    normed = F.layer_norm(y, (8,), pool.mlp.norm.weight, pool.mlp.norm.bias, 1e-3)
    mlp = pool.mlp.layer
    expected = y + F.linear(F.gelu(F.linear(normed, mlp.expand.weight, mlp.expand.bias)), mlp.contract.weight, mlp.contract.bias)
    torch.testing.assert_close(pool(x), expected)


def test_attention_pooling_starts_with_a_small_query():
    query = AttentionPooling(64, 2, 12).query
    assert 0.01 < query.std() < 0.03


@pytest.mark.parametrize("left_out", [1, 3])
def test_attention_pooling_that_leaves_tokens_out_is_that_of_the_others(left_out):
    torch.manual_seed(0)
    some = AttentionPooling(8, 2, 12, left_out=left_out).double()
    whole = AttentionPooling(8, 2, 12).double()
    whole.load_state_dict(some.state_dict())
    tokens = torch.randn(2, 7, 8, dtype=torch.float64)
    torch.testing.assert_close(some(tokens), whole(tokens[:, left_out:]))
