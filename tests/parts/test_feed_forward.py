"""The MLP against torch's layers and SwiGLU written out."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.activations import ACT2FN

from random_weights import randomize
from vitrail.parts import ConvFeedForward, ExpertFeedForward, FeedForward, feed_forward
from vitrail.parts.cpu import slices


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def test_it_equals_linear_gelu_linear():
    ours, x = FeedForward(6, 10).double(), numbers(2, 3, 6)
    theirs = nn.Sequential(nn.Linear(6, 10), nn.GELU(), nn.Linear(10, 6)).double()
    theirs[0].load_state_dict(ours.expand.state_dict())
    theirs[2].load_state_dict(ours.contract.state_dict())
    torch.testing.assert_close(ours(x), theirs(x), rtol=1e-10, atol=1e-10)


def test_with_relu_it_is_the_one_of_the_first_transformer_and_its_hidden_dropout_may_differ():
    x = numbers(2, 3, 6)
    mlp = FeedForward(6, 10, activation="relu", dropout=0.5, hidden_dropout=0.0).double()
    expected = mlp.contract(torch.clamp(mlp.expand(x), min=0))
    torch.testing.assert_close(mlp.eval()(x), expected)
    kept = mlp.train()(x) / expected
    assert set(kept.round(decimals=9).unique().tolist()) == {0.0, 2.0}


def test_gated_it_is_swiglu():
    mlp, x = FeedForward(6, 10, activation="swiglu").double(), numbers(2, 3, 6)
    gate_weight, value_weight = mlp.expand.weight.chunk(2)
    gate_bias, value_bias = mlp.expand.bias.chunk(2)
    gate = x @ gate_weight.T + gate_bias
    hidden = gate / (1 + (-gate).exp()) * (x @ value_weight.T + value_bias)
    torch.testing.assert_close(mlp(x), hidden @ mlp.contract.weight.T + mlp.contract.bias)


def test_dropout_acts_on_hidden_and_result_only_in_training():
    mlp, x = FeedForward(6, 10, dropout=0.5).double(), numbers(500, 6)
    hidden = []
    mlp.contract.register_forward_pre_hook(lambda _, inputs: hidden.append(inputs[0]))
    result = mlp.train()(x)
    assert 0.4 < (hidden[0] == 0).double().mean() < 0.6
    assert 0.4 < (result == 0).double().mean() < 0.6
    assert (mlp.eval()(x) != 0).all()


@pytest.mark.parametrize("name", ["gelu-tanh", "quick-gelu", "silu"])
def test_the_approximations_are_those_of_transformers(name):
    mlp, x = FeedForward(6, 10, activation=name).double(), numbers(2, 3, 6)
    theirs = ACT2FN[{"gelu-tanh": "gelu_pytorch_tanh", "quick-gelu": "quick_gelu", "silu": "swish"}[name]]
    expected = mlp.contract(theirs(mlp.expand(x)))
    torch.testing.assert_close(mlp(x), expected, rtol=0, atol=1e-12)
    exact = FeedForward(6, 10).double()
    exact.load_state_dict(mlp.state_dict())
    assert not torch.allclose(mlp(x), exact(x), atol=1e-6)


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_a_norm_stands_on_the_activations(kind):
    mlp, x = FeedForward(6, 10, norm=kind, norm_eps=1e-3, bias=False).double(), numbers(2, 3, 6)
    nn.init.normal_(mlp.norm.weight)
    hidden = torch.nn.functional.gelu(x @ mlp.expand.weight.T)
    if kind == "layer":
        hidden = hidden - hidden.mean(-1, keepdim=True)
    hidden = hidden / (hidden.square().mean(-1, keepdim=True) + 1e-3).sqrt() * mlp.norm.weight
    torch.testing.assert_close(mlp(x), hidden @ mlp.contract.weight.T)


@pytest.mark.parametrize("rectified", [False, True])
def test_neighbours_are_weighed_channel_by_channel_before_the_activation(rectified):
    torch.manual_seed(0)
    layer, x = randomize(ConvFeedForward(4, 6, rectified=rectified), std=0.5), torch.randn(2, 3, 5, 4).double()
    hidden = layer.expand(x).relu() if rectified else layer.expand(x)
    framed = F.pad(hidden, (0, 0, 1, 1, 1, 1))
    kernel = layer.depthwise.weight[:, 0]  # (hidden, 3, 3)
    found = sum(framed[:, i : i + 3, j : j + 5] * kernel[:, i, j] for i in range(3) for j in range(3))
    expected = layer.contract(F.gelu(found + layer.depthwise.bias))
    torch.testing.assert_close(layer(x), expected)


def test_an_expert_gives_the_last_values_of_the_result():
    torch.manual_seed(0)
    mlp, x = ExpertFeedForward(8, 12, experts=3, expert_dim=2, expert=1), torch.randn(2, 5, 8)
    hidden = F.gelu(mlp.expand(x))
    expected = torch.cat([mlp.contract(hidden), mlp.experts[1](hidden)], dim=-1)
    assert expected.shape == (2, 5, 8) and mlp.contract.out_features == 6
    torch.testing.assert_close(mlp(x), expected)


def test_the_other_experts_are_neither_computed_nor_trained():
    mlp = ExpertFeedForward(8, 12, experts=3, expert_dim=2, expert=1, bias=False)
    mlp(torch.randn(2, 5, 8)).sum().backward()
    trained = {name for name, parameter in mlp.named_parameters() if parameter.requires_grad}
    assert trained == {"expand.weight", "contract.weight", "experts.1.weight"}
    assert all((parameter.grad is not None) == (name in trained) for name, parameter in mlp.named_parameters())


@pytest.fixture
def made(monkeypatch) -> list[int]:
    """How many tokens' hidden layers are made at a time, of slices of four."""
    found: list[int] = []

    def activate(hidden, activation):
        found.append(hidden[..., 0].numel())
        return activated(hidden, activation)

    activated = feed_forward.activate
    monkeypatch.setattr(slices, "SLICE", 4)
    monkeypatch.setattr(feed_forward, "activate", activate)
    return found


@pytest.mark.parametrize("shape", [(5, 6), (3, 5, 6), (2, 2, 3, 6)])
@pytest.mark.parametrize(
    "mlp",
    [
        FeedForward(6, 10),
        FeedForward(6, 10, activation="swiglu", norm="rms"),
        FeedForward(6, 10, output_dim=4, dropout=0.5),
        ExpertFeedForward(6, 10, experts=2, expert_dim=2),
    ],
    ids=["plain", "gated", "narrow", "expert"],
)
def test_where_nothing_is_learned_some_tokens_at_a_time_give_the_same(mlp, shape, made):
    mlp, x = mlp.double().eval(), numbers(*shape)
    expected = mlp(x)  # with gradients
    assert made == [x[..., 0].numel()]
    with torch.no_grad():
        found = mlp(x)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    assert max(made[1:]) <= 4 and sum(made[1:]) == made[0]


def test_what_is_trained_or_looked_into_is_made_of_all_tokens_at_once(made):
    mlp, x, seen = FeedForward(6, 10, dropout=0.5), torch.randn(2, 9, 6), []
    mlp(x)
    with torch.no_grad():
        mlp.train()(x)
        handle = mlp.eval().contract.register_forward_pre_hook(lambda _, given: seen.append(given[0].shape))
        mlp(x)
        handle.remove()
    assert made == [18, 18, 18] and seen == [(2, 9, 10)]
    with torch.no_grad():
        ConvFeedForward(6, 10).eval()(torch.randn(2, 3, 3, 6))
        assert made[3:] == [18]
        mlp(x)
    assert made[4:] == [4, 4, 4, 3, 3]


def test_a_graph_is_made_of_all_tokens_at_once(made):
    class Answering(nn.Module):
        def __init__(self):
            super().__init__()
            self.mlp = FeedForward(6, 10)

        def forward(self, x):
            return self.mlp(x)

    with torch.no_grad():
        torch.export.export(Answering().eval(), (torch.randn(2, 9, 6),), strict=False)
    assert made == [18]
