"""Attention against loops, torch and transformers."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.errors import ConfigError
from vitrail.parts import Attention, RotaryPosition2d, attend, attention_weights, causal_mask
from vitrail.parts.cpu.kernels import likely


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def random_mask(*shape: int) -> Tensor:
    """Random, but every query may look somewhere."""
    mask = torch.rand(*shape) < 0.6
    mask[..., 0] = True
    return mask


def randomized(module: nn.Module) -> nn.Module:
    """In double precision, every parameter (biases and norms too) away from its initial value."""
    for parameter in module.double().parameters():
        nn.init.normal_(parameter, std=0.5)
    return module


def looped(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """Equations (6) and (7) for one head, one query and one key at a time: weights (N_Q, N_X), result (N_Q, D_V)."""
    q, k, v = query.numpy(), key.numpy(), value.numpy()
    weights, result = np.zeros((len(q), len(k))), np.zeros((len(q), v.shape[1]))
    for i in range(len(q)):
        for j in range(len(k)):
            score = sum(q[i, d] * k[j, d] for d in range(q.shape[1])) / math.sqrt(q.shape[1])
            score += 0.0 if bias is None else bias[i, j].item()
            weights[i, j] = math.exp(score) if mask is None or mask[i, j] else 0.0
        weights[i] /= weights[i].sum()
        for j in range(len(k)):
            result[i] += weights[i, j] * v[j]
    return torch.from_numpy(weights), torch.from_numpy(result)


# the functions


@pytest.mark.parametrize("bias", [None, numbers(3, 4, 6)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_scores_are_multiplied_by_another_scale(dtype, bias):
    q, k, v = (numbers(2, 3, n, 5).to(dtype).requires_grad_() for n in (4, 6, 6))
    found, expected = attend(q, k, v, bias=bias, scale=0.1), attend(q * (0.1 * math.sqrt(5)), k, v, bias=bias)
    close = {"rtol": 0, "atol": 1e-9 if dtype == torch.float64 else 0.05}
    torch.testing.assert_close(found, expected, **close)
    for ours, theirs in zip(*(torch.autograd.grad(x.sum(), (q, k, v)) for x in (found, expected)), strict=True):
        torch.testing.assert_close(ours, theirs, **close)


@pytest.mark.parametrize("shape", [(3, 4, 6), (5, 3, 4, 6), (1, 5, 1, 4, 6), (2, 1, 3, 4, 6)])
def test_windows_share_a_bias_or_have_their_own(shape):
    q, k, v = (numbers(2, 5, 3, n, 8) for n in (4, 6, 6))
    bias = numbers(*shape)
    weights = attention_weights(q, k, bias=bias)
    torch.testing.assert_close(attend(q, k, v, bias=bias), weights @ v)
    torch.testing.assert_close(attend(q, k, v), attention_weights(q, k) @ v)


@pytest.mark.parametrize("most", [40, 1024])
def test_answers_in_half_precision_are_the_same_written_out_and_fused(most, monkeypatch):
    monkeypatch.setattr("vitrail.parts.cpu.kernels._used", replace(likely(), explicit_answering=most))
    q, k, v = (numbers(2, 3, n, 8).bfloat16() for n in (40, 50, 50))
    bias = numbers(3, 40, 50).bfloat16()
    expected = attention_weights(q.double(), k.double(), bias=bias.double()) @ v.double()
    torch.testing.assert_close(attend(q, k, v, bias=bias).double(), expected, rtol=0, atol=0.03)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("queries", "keys"), [(5, 7), (3, 1030)])
@pytest.mark.parametrize("with_mask", [False, True])
def test_half_precision_gives_the_same_up_to_its_rounding(dtype, queries, keys, with_mask):
    tensors = [numbers(2, 3, n, 8).requires_grad_() for n in (queries, keys, keys)]
    mask = random_mask(queries, keys) if with_mask else None
    halves = [t.detach().to(dtype).requires_grad_() for t in tensors]
    exact, rounded = attend(*tensors, mask=mask), attend(*halves, mask=mask)
    assert rounded.dtype == dtype
    torch.testing.assert_close(rounded.double(), exact, atol=3e-2, rtol=3e-2)
    exact.square().sum().backward()
    rounded.square().sum().backward()
    for half, tensor in zip(halves, tensors, strict=True):
        torch.testing.assert_close(half.grad.double(), tensor.grad, atol=6e-2, rtol=6e-2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_dropout_of_the_weights_keeps_the_expected_value(dtype):
    query, key = torch.zeros(1, 200, 4, dtype=dtype), torch.zeros(1, 100, 4, dtype=dtype)
    value = torch.ones(1, 100, 2, dtype=dtype)
    result = attend(query, key, value, dropout=0.5).float()
    assert result.std() > 0.05
    assert abs(result.mean() - 1) < 0.05


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("with_mask", [False, True])
def test_weights_and_result_equal_a_loop(with_mask, with_bias):
    q, k, v = numbers(3, 4), numbers(5, 4), numbers(5, 2)
    mask = random_mask(3, 5) if with_mask else None
    bias = numbers(3, 5) if with_bias else None
    weights, result = looped(q, k, v, mask, bias)
    torch.testing.assert_close(attention_weights(q, k, mask=mask, bias=bias), weights)
    torch.testing.assert_close(attend(q, k, v, mask=mask, bias=bias), result)


@pytest.mark.parametrize("shape", [(5,), (4, 1), (3, 4, 5), (2, 1, 1, 5)])
def test_a_mask_or_bias_may_have_any_shape_that_broadcasts(shape):
    q, k, v = numbers(2, 3, 4, 6), numbers(2, 3, 5, 6), numbers(2, 3, 5, 6)
    for options in ({"mask": random_mask(*shape)}, {"bias": numbers(*shape)}):
        full = {name: tensor.expand(2, 3, 4, 5) for name, tensor in options.items()}
        torch.testing.assert_close(attention_weights(q, k, **options), attention_weights(q, k, **full))
        torch.testing.assert_close(attend(q, k, v, **options), attend(q, k, v, **full))


def test_a_query_that_may_look_nowhere_gets_zeros():
    q, k, v = numbers(2, 3), numbers(4, 3), numbers(4, 3)
    mask = torch.tensor([[True] * 4, [False] * 4])
    weights = attention_weights(q, k, mask=mask)
    assert (weights[1] == 0).all()
    torch.testing.assert_close(weights[0], attention_weights(q, k)[0])
    result = attend(q, k, v, mask=mask)
    assert (result[1] == 0).all()
    torch.testing.assert_close(result[0], attend(q, k, v)[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_a_mask_that_is_not_boolean_is_refused(dtype):
    q, mask = numbers(2, 3), torch.ones(2, 2, dtype=dtype)
    with pytest.raises(ConfigError, match="boolean"):
        attend(q, q, q, mask=mask)
    with pytest.raises(ConfigError, match="boolean"):
        attention_weights(q, q, mask=mask)


# the module


@pytest.mark.parametrize("bias", [True, False])
def test_self_attention_equals_torch(bias):
    ours, theirs = randomized(Attention(12, 3, bias=bias)), nn.MultiheadAttention(12, 3, bias=bias, batch_first=True).double()
    with torch.no_grad():
        theirs.in_proj_weight.copy_(ours.qkv.weight)
        theirs.out_proj.weight.copy_(ours.output.weight)
        if bias:
            theirs.in_proj_bias.copy_(ours.qkv.bias)
            theirs.out_proj.bias.copy_(ours.output.bias)
        else:
            ours.output.bias.zero_()  # without it torch leaves this one out as well
    x, mask = numbers(2, 5, 12), random_mask(5, 5)
    for allowed in (None, mask):
        blocked = None if allowed is None else ~allowed
        expected, weights = theirs(x, x, x, attn_mask=blocked, average_attn_weights=False)
        torch.testing.assert_close(ours(x, mask=allowed), expected)
        torch.testing.assert_close(ours.weights(x, mask=allowed), weights)


@pytest.mark.parametrize("context_dim", [12, 7])
def test_cross_attention_equals_torch(context_dim):
    ours = randomized(Attention(12, 3, context_dim=context_dim))
    theirs = nn.MultiheadAttention(12, 3, kdim=context_dim, vdim=context_dim, batch_first=True).double()
    key, value = ours.key_value.weight.split(12)
    with torch.no_grad():
        if context_dim == 12:
            theirs.in_proj_weight.copy_(torch.cat([ours.query.weight, key, value]))
        else:
            theirs.q_proj_weight.copy_(ours.query.weight)
            theirs.k_proj_weight.copy_(key)
            theirs.v_proj_weight.copy_(value)
        theirs.in_proj_bias.copy_(torch.cat([ours.query.bias, ours.key_value.bias]))
        theirs.out_proj.load_state_dict(ours.output.state_dict())
    x, context, padded = numbers(2, 4, 12), numbers(2, 6, context_dim), torch.arange(6).expand(2, -1) > 3
    expected, weights = theirs(x, context, context, key_padding_mask=padded, average_attn_weights=False)
    mask = ~padded[:, None, None]
    torch.testing.assert_close(ours(x, context, mask=mask), expected)
    torch.testing.assert_close(ours.weights(x, context, mask=mask), weights)


def test_queries_keys_and_values_may_differ_in_number_and_width():
    attention = randomized(Attention(5, 2, context_dim=7, query_dim=6, value_dim=8, output_dim=3))
    x, context = numbers(2, 4, 5), numbers(2, 9, 7)
    q, k, v = attention.project(x, context)
    assert (q.shape, k.shape, v.shape) == ((2, 2, 4, 3), (2, 2, 9, 3), (2, 2, 9, 4))
    key, value = attention.key_value.weight.split([6, 8])
    key_bias, value_bias = attention.key_value.bias.split([6, 8])
    heads = []
    for head in range(2):
        d, e = slice(3 * head, 3 * head + 3), slice(4 * head, 4 * head + 4)
        q = x @ attention.query.weight[d].T + attention.query.bias[d]
        k = context @ key[d].T + key_bias[d]
        v = context @ value[e].T + value_bias[e]
        heads.append((q @ k.transpose(1, 2) / math.sqrt(3)).softmax(-1) @ v)
    expected = torch.cat(heads, dim=-1) @ attention.output.weight.T + attention.output.bias
    assert expected.shape == (2, 4, 3)
    torch.testing.assert_close(attention(x, context), expected)


def test_qk_norm_normalizes_each_head_of_queries_and_keys_but_not_values():
    attention, x = randomized(Attention(8, 2, qk_norm=True, norm_eps=1e-3)), numbers(2, 3, 8)
    q, k, v = (t.unflatten(-1, (2, 4)).transpose(1, 2) for t in attention.qkv(x).chunk(3, dim=-1))

    def normalized(t: Tensor, norm: nn.LayerNorm) -> Tensor:
        centred = t - t.mean(-1, keepdim=True)
        return centred / (centred.square().mean(-1, keepdim=True) + 1e-3).sqrt() * norm.weight + norm.bias

    q, k = normalized(q, attention.query_norm), normalized(k, attention.key_norm)
    weights = (q @ k.mT / 2).softmax(-1)
    torch.testing.assert_close(attention.weights(x), weights)
    torch.testing.assert_close(attention(x), attention.output((weights @ v).transpose(1, 2).flatten(2)))


@pytest.mark.parametrize("qk_norm", [False, True])
def test_weights_are_those_that_forward_uses(qk_norm):
    attention, x = randomized(Attention(8, 2, qk_norm=qk_norm)), numbers(2, 6, 8)
    options = {
        "mask": random_mask(6, 6),
        "bias": numbers(2, 6, 6),
        "rotation": RotaryPosition2d((2, 3), 4, prefix=0).double()(),
    }
    *_, v = attention.project(x)
    weights = attention.weights(x, **options)
    assert weights.shape == (2, 2, 6, 6)
    torch.testing.assert_close(attention.output((weights @ v).transpose(1, 2).flatten(2)), attention(x, **options))


def test_rotary_scores_depend_only_on_the_offset_of_two_patches():
    rows, columns = 3, 4
    attention = randomized(Attention(16, 2))
    same = numbers(1, 1, 16).expand(1, rows * columns, 16)
    q, k, _ = attention.project(same, rotation=RotaryPosition2d((rows, columns), 8, prefix=0).double()())
    scores = (q @ k.mT)[0, 0].unflatten(1, (rows, columns)).unflatten(0, (rows, columns))
    torch.testing.assert_close(scores[0, 0, 1, 2], scores[1, 1, 2, 3], atol=1e-5, rtol=0)
    torch.testing.assert_close(scores[2, 3, 0, 1], scores[2, 2, 0, 0], atol=1e-5, rtol=0)
    assert abs(scores[0, 0, 0, 1] - scores[0, 0, 1, 0]) > 1e-3
    assert abs(scores[0, 0, 0, 1] - scores[0, 1, 0, 0]) > 1e-3


def test_attention_dropout_acts_only_in_training():
    attention, x = randomized(Attention(8, 2, attention_dropout=0.5)), numbers(1, 4, 8)
    plain = randomized(Attention(8, 2))
    plain.load_state_dict(attention.state_dict())
    torch.testing.assert_close(attention.eval()(x), plain(x))
    many = attention.train()(x.expand(4000, -1, -1))
    assert many.std(dim=0).min() > 0.01
    torch.testing.assert_close(many.mean(dim=0), plain(x)[0], atol=0.25, rtol=0)


def test_dropout_on_the_result_acts_only_in_training():
    attention, x = randomized(Attention(8, 2, dropout=0.5)), numbers(2, 4, 8)
    expected = attention.eval()(x)
    result = attention.train()(x)
    kept = result != 0
    assert 0 < kept.sum() < kept.numel()
    torch.testing.assert_close(result[kept], 2 * expected[kept])


# refusals


@pytest.mark.parametrize(
    ("options", "named"),
    [({}, "dim 10"), ({"query_dim": 8}, "query_dim 8"), ({"query_dim": 6, "value_dim": 7}, "value_dim 7")],
)
def test_a_width_that_the_heads_do_not_divide_is_refused(options, named):
    with pytest.raises(ConfigError, match=f"{named} is not divisible by heads 3"):
        Attention(10, 3, **options)


def test_self_attention_refuses_a_context():
    with pytest.raises(ConfigError, match="context"):
        Attention(8, 2)(torch.zeros(1, 3, 8), torch.zeros(1, 3, 8))


def test_cross_attention_needs_a_context_and_refuses_a_rotation():
    attention, x = Attention(8, 2, context_dim=8), torch.zeros(1, 4, 8)
    with pytest.raises(ConfigError, match="context"):
        attention(x)
    with pytest.raises(ConfigError, match="rotation"):
        attention(x, x, rotation=RotaryPosition2d((2, 2), 4, prefix=0)())


def test_asking_the_first_queries_alone_gives_what_all_of_them_give():
    attention, x = randomized(Attention(16, 4, qk_norm=True)), numbers(2, 6, 16)
    mask, bias, rotation = random_mask(2, 1, 6, 6), numbers(4, 6, 6), RotaryPosition2d((2, 3), 4, prefix=0).double()()
    for options in (
        {},
        {"mask": mask},
        {"bias": bias},
        {"bias": numbers(1, 6)},
        {"mask": mask, "bias": bias, "rotation": rotation},
    ):
        torch.testing.assert_close(attention(x, **options, first=2), attention(x, **options)[:, :2])


def test_a_norm_of_the_output_is_on_all_heads_side_by_side():
    attention, x = Attention(12, 3, output_norm=True, output_bias=False, norm_eps=1e-3).double(), torch.randn(2, 5, 12).double()
    torch.nn.init.normal_(attention.output_norm.weight)
    q, k, v = attention.project(x)
    heads = attend(q, k, v).transpose(1, 2).flatten(2)
    normed = torch.nn.functional.layer_norm(heads, (12,), attention.output_norm.weight, attention.output_norm.bias, 1e-3)
    torch.testing.assert_close(attention(x), normed @ attention.output.weight.T)


# no look ahead


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("with_mask", [False, True])
@pytest.mark.parametrize("queries", [1, 3, 6])
def test_causal_attention_is_that_of_torch_with_a_triangle_below_the_last_token(dtype, with_mask, queries):
    q, k, v = (torch.randn(2, 3, n, 4).to(dtype) for n in (queries, 6, 6))
    triangle = torch.tensor([[key <= query + 6 - queries for key in range(6)] for query in range(queries)])
    assert torch.equal(causal_mask(queries, 6), triangle)
    mask = random_mask(2, 1, 1, 6) if with_mask else None
    expected = F.scaled_dot_product_attention(
        q.double(), k.double(), v.double(), attn_mask=triangle if mask is None else triangle & mask
    )
    torch.testing.assert_close(
        attend(q, k, v, mask=mask, causal=True).double(), expected, atol=0.03 if dtype.itemsize < 8 else 1e-12, rtol=0
    )


def test_a_later_token_changes_nothing_before_it_and_dropout_is_on_the_weights():
    attention = randomized(Attention(8, 2)).eval()
    x = numbers(2, 5, 8)
    changed = x.clone()
    changed[:, 3] += 1
    before, after = attention(x, causal=True), attention(changed, causal=True)
    assert torch.equal(before[:, :3], after[:, :3]) and not torch.isclose(before[:, 3:], after[:, 3:]).all()
    torch.testing.assert_close(attention.weights(x, causal=True), attention.weights(x, mask=causal_mask(5, 5)))
    torch.testing.assert_close(attention(x, causal=True, first=2), before[:, :2])
    ones = torch.ones(1, 1, 400, 4, dtype=torch.float64)
    assert attend(ones, ones, ones, causal=True, dropout=0.5).std() > 0.01
