"""Blocks against the equations written out and torch's encoder layer."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.errors import ConfigError
from vitrail.parts import Attention, Block, Branch, DropPath, FeedForward, ParallelBlock

DIM, HEADS, HIDDEN, EPS = 12, 3, 20, 1e-5


def randomized(module: nn.Module) -> nn.Module:
    """In double precision, every parameter (biases and norms too) away from its initial value."""
    for parameter in module.double().parameters():
        nn.init.normal_(parameter, std=0.5)
    return module


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def make(kind: type[nn.Module], **options) -> nn.Module:
    return randomized(kind(DIM, Attention(DIM, HEADS), FeedForward(DIM, HIDDEN), norm_eps=EPS, **options))


def layer_norm(x: Tensor, norm: nn.LayerNorm) -> Tensor:
    """LN written out."""
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + EPS).sqrt() * norm.weight + norm.bias


def test_a_residual_post_norm_block_normalizes_what_it_adds():
    block, z = make(Block, norm="residual-post", layer_scale=0.5), numbers(2, 5, DIM)
    branches = block.attention, block.mlp
    for branch in branches:
        expected = z + layer_norm(branch.layer(z) * branch.scale.gamma, branch.norm)
        torch.testing.assert_close(branch(z), expected)
    torch.testing.assert_close(block(z), block.mlp(block.attention(z)))


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_block_equals_torch_encoder_layer(norm):
    ours = make(Block, norm=norm)
    theirs = nn.TransformerEncoderLayer(
        DIM, HEADS, HIDDEN, dropout=0.0, activation="gelu", layer_norm_eps=EPS, batch_first=True, norm_first=norm == "pre"
    ).double()
    attention, mlp = ours.attention.layer, ours.mlp.layer
    theirs.load_state_dict(
        {
            "self_attn.in_proj_weight": attention.qkv.weight,
            "self_attn.in_proj_bias": attention.qkv.bias,
            "self_attn.out_proj.weight": attention.output.weight,
            "self_attn.out_proj.bias": attention.output.bias,
            "linear1.weight": mlp.expand.weight,
            "linear1.bias": mlp.expand.bias,
            "linear2.weight": mlp.contract.weight,
            "linear2.bias": mlp.contract.bias,
            "norm1.weight": ours.attention.norm.weight,
            "norm1.bias": ours.attention.norm.bias,
            "norm2.weight": ours.mlp.norm.weight,
            "norm2.bias": ours.mlp.norm.bias,
        }
    )
    x, causal = numbers(2, 5, DIM), torch.ones(5, 5, dtype=torch.bool).tril()
    torch.testing.assert_close(ours(x), theirs(x))
    torch.testing.assert_close(ours(x, mask=causal), theirs(x, src_mask=~causal))


def test_a_parallel_block_adds_both_branches_of_one_norm():
    block, x = make(ParallelBlock), numbers(2, 5, DIM)
    normed = layer_norm(x, block.norm)
    torch.testing.assert_close(block(x), x + block.layer.attention(normed) + block.layer.mlp(normed))
    causal = torch.ones(5, 5, dtype=torch.bool).tril()
    expected = x + block.layer.attention(normed, mask=causal) + block.layer.mlp(normed)
    torch.testing.assert_close(block(x, mask=causal), expected)


@pytest.mark.parametrize("kind", [Block, ParallelBlock])
@pytest.mark.parametrize("norm", ["pre", "post", "residual-post"])
def test_the_first_tokens_alone_come_out_as_they_do_with_the_others(kind, norm):
    block, x = make(kind, norm=norm), numbers(2, 5, DIM)
    torch.testing.assert_close(block(x, first=2), block(x)[:, :2])


def test_layer_scale_multiplies_the_branch_and_not_the_residual():
    branch, x = randomized(Branch(DIM, nn.Linear(DIM, DIM), layer_scale=0.1, norm_eps=EPS)), numbers(2, 3, DIM)
    torch.testing.assert_close(branch(x), x + branch.scale.gamma * branch.layer(layer_norm(x, branch.norm)))


@pytest.mark.parametrize("kind", [Block, ParallelBlock])
def test_every_branch_of_a_block_gets_the_options(kind):
    block = kind(DIM, Attention(DIM, HEADS), FeedForward(DIM, HIDDEN), layer_scale=0.5, drop_path=0.3, norm_eps=1e-3)
    branches = [m for m in block.modules() if isinstance(m, Branch)]
    assert len(branches) == (2 if kind is Block else 1)
    for branch in branches:
        assert branch.drop_path.probability == 0.3
        assert branch.norm.eps == 1e-3
        assert (branch.scale.gamma == 0.5).all()


def test_drop_path_drops_whole_samples_and_scales_the_others():
    result = DropPath(0.25).train()(torch.ones(4000, 3, 2))
    samples = result.flatten(1)
    assert (samples == samples[:, :1]).all()
    torch.testing.assert_close(samples[:, 0].unique(), torch.tensor([0.0, 1 / 0.75]))
    assert abs((samples == 0).double().mean() - 0.25) < 0.03


def test_a_dropped_branch_leaves_its_sample_as_it_was():
    branch, x = randomized(Branch(DIM, nn.Linear(DIM, DIM), drop_path=0.5)).train(), numbers(64, 3, DIM)
    full = branch.eval()(x) - x
    added = branch.train()(x) - x
    dropped = (added == 0).flatten(1).all(dim=1)
    assert 10 < dropped.sum() < 54
    torch.testing.assert_close(added[~dropped], 2 * full[~dropped])


# a condition

WIDTH = 7
"""Numbers of the vector that shifts, scales and gates a branch."""


def plain_norm(x: Tensor, kind: str) -> Tensor:
    """A norm without parameters, written out."""
    centred = x - x.mean(-1, keepdim=True) if kind == "layer" else x
    return centred / (centred.square().mean(-1, keepdim=True) + EPS).sqrt()


def conditioned_by_hand(x: Tensor, layer, branch: Branch, condition: Tensor) -> Tensor:
    """Equation of Peebles and Xie's adaLN-Zero, and the same for norms that stand elsewhere."""
    numbers_of = F.silu(condition) @ branch.modulation.weight.T + branch.modulation.bias
    shift, scale, gate = numbers_of[:, None].split(DIM, dim=-1)

    def norm(values: Tensor) -> Tensor:
        return plain_norm(values, "rms" if isinstance(branch.norm, nn.RMSNorm) else "layer") * (1 + scale) + shift

    if branch.norm_place == "pre":
        return x + gate * layer(norm(x))
    return norm(x + gate * layer(x)) if branch.norm_place == "post" else x + gate * norm(layer(x))


@pytest.mark.parametrize("norm", ["pre", "post", "residual-post"])
@pytest.mark.parametrize("norm_kind", ["layer", "rms"])
def test_a_condition_shifts_scales_and_gates_every_branch(norm, norm_kind):
    cross = Attention(DIM, HEADS, context_dim=5)
    block = make(Block, cross=cross, norm=norm, norm_kind=norm_kind, condition=WIDTH)
    x, condition, context = (numbers(*shape).requires_grad_() for shape in ((2, 4, DIM), (2, WIDTH), (2, 3, 5)))
    given = (x, condition, context, *block.parameters())

    expected = conditioned_by_hand(x, block.attention.layer, block.attention, condition)
    expected = conditioned_by_hand(expected, lambda z: cross(z, context), block.cross, condition)
    expected = conditioned_by_hand(expected, block.mlp.layer, block.mlp, condition)
    result, weights = block(x, across={"context": context}, condition=condition), numbers(2, 4, DIM)
    torch.testing.assert_close(result, expected)
    found, wanted = (torch.autograd.grad((y * weights).sum(), given) for y in (result, expected))
    torch.testing.assert_close(found, wanted)


def test_a_parallel_block_is_conditioned_once_and_the_first_tokens_alone_come_out_as_with_the_others():
    block, x, condition = make(ParallelBlock, condition=WIDTH), numbers(2, 5, DIM), numbers(2, WIDTH)
    expected = conditioned_by_hand(x, block.layer, block, condition)
    torch.testing.assert_close(block(x, condition=condition), expected)
    torch.testing.assert_close(block(x, condition=condition, first=2), expected[:, :2])


@pytest.mark.parametrize("kind", [Block, ParallelBlock])
def test_a_fresh_conditioned_block_is_the_identity_and_learns(kind):
    block = kind(DIM, Attention(DIM, HEADS), FeedForward(DIM, HIDDEN), condition=WIDTH)
    x, condition = torch.randn(2, 5, DIM), torch.randn(2, WIDTH)
    assert torch.equal(block(x, condition=condition), x)
    (block(x, condition=condition) * torch.randn(2, 5, DIM)).sum().backward()
    gates = [m.modulation.weight.grad[2 * DIM :] for m in block.modules() if isinstance(m, Branch)]
    assert all(gate.any(dim=1).all() for gate in gates)


def test_a_block_without_a_condition_has_the_parameters_it_had():
    keys = [
        *(f"attention.{name}" for name in ("norm.weight", "norm.bias", "layer.qkv.weight", "layer.qkv.bias")),
        *("attention.layer.output.weight", "attention.layer.output.bias", "mlp.norm.weight", "mlp.norm.bias"),
        *(f"mlp.layer.{name}" for name in ("expand.weight", "expand.bias", "contract.weight", "contract.bias")),
    ]
    assert list(make(Block).state_dict()) == keys
    conditioned = make(Block, condition=WIDTH).state_dict()
    assert {key for key in keys if "norm" in key} == set(keys) - set(conditioned)
    assert set(conditioned) - set(keys) == {f"{b}.modulation.{n}" for b in ("attention", "mlp") for n in ("weight", "bias")}


def test_a_condition_that_a_block_does_not_have_or_lacks_is_refused():
    x, condition = numbers(2, 5, DIM), numbers(2, WIDTH)
    with pytest.raises(ConfigError, match="without a condition"):
        make(Block)(x, condition=condition)
    for norm in ("pre", "post"):
        with pytest.raises(ConfigError, match="needs a condition"):
            make(Block, condition=WIDTH, norm=norm)(x)
