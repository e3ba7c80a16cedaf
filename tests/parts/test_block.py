"""Blocks against the equations written out and torch's encoder layer."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.parts import Attention, Block, Branch, DropPath, FeedForward, LayerScale, ParallelBlock

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


def test_a_block_is_equations_2_and_3():
    block, z = make(Block), numbers(2, 5, DIM)
    msa, mlp = block.attention.layer, block.mlp.layer
    z1 = msa(layer_norm(z, block.attention.norm)) + z  # (2)
    z2 = mlp(layer_norm(z1, block.mlp.norm)) + z1  # (3)
    torch.testing.assert_close(block(z), z2)


def test_a_post_norm_block_normalizes_each_sum():
    block, z = make(Block, norm="post"), numbers(2, 5, DIM)
    z1 = layer_norm(z + block.attention.layer(z), block.attention.norm)
    z2 = layer_norm(z1 + block.mlp.layer(z1), block.mlp.norm)
    torch.testing.assert_close(block(z), z2)


def test_a_residual_post_norm_block_normalizes_what_it_adds():
    block, z = make(Block, norm="residual-post", layer_scale=0.5), numbers(2, 5, DIM)
    branches = block.attention, block.mlp
    for branch in branches:
        expected = z + layer_norm(branch.layer(z) * branch.scale.gamma, branch.norm)
        torch.testing.assert_close(branch(z), expected)
    torch.testing.assert_close(block(z), block.mlp(block.attention(z)))


def test_the_first_tokens_alone_are_the_same_wherever_the_norm_stands():
    z = numbers(2, 5, DIM)
    for norm in ("pre", "post", "residual-post"):
        branch = make(Block, norm=norm).attention
        torch.testing.assert_close(branch(z, first=2), branch(z)[:, :2])


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


def test_a_mixer_gets_what_the_block_is_called_with():
    block = randomized(Block(DIM, Attention(DIM, HEADS, context_dim=7), FeedForward(DIM, HIDDEN), norm_eps=EPS))
    x, context = numbers(2, 4, DIM), numbers(2, 6, 7)
    z1 = block.attention.layer(layer_norm(x, block.attention.norm), context) + x
    z2 = block.mlp.layer(layer_norm(z1, block.mlp.norm)) + z1
    torch.testing.assert_close(block(x, context=context), z2)


@pytest.mark.parametrize("kind", [Block, ParallelBlock])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_first_tokens_alone_come_out_as_they_do_with_the_others(kind, norm):
    block, x = make(kind, norm=norm), numbers(2, 5, DIM)
    torch.testing.assert_close(block(x, first=2), block(x)[:, :2])


def test_layer_scale_starts_at_its_initial_value():
    scale = LayerScale(4, 0.25)
    torch.testing.assert_close(scale(torch.ones(2, 3, 4)), torch.full((2, 3, 4), 0.25))
    assert scale.gamma.requires_grad


def test_layer_scale_multiplies_the_branch_and_not_the_residual():
    branch, x = randomized(Branch(DIM, nn.Linear(DIM, DIM), layer_scale=0.1, norm_eps=EPS)), numbers(2, 3, DIM)
    torch.testing.assert_close(branch(x), x + branch.scale.gamma * branch.layer(layer_norm(x, branch.norm)))


def test_layer_scale_stands_inside_the_norm_of_a_post_norm_branch():
    branch = randomized(Branch(DIM, nn.Linear(DIM, DIM), norm="post", layer_scale=0.1, norm_eps=EPS))
    x = numbers(2, 3, DIM)
    torch.testing.assert_close(branch(x), layer_norm(x + branch.scale.gamma * branch.layer(x), branch.norm))


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


def test_drop_path_keeps_the_expected_value():
    result = DropPath(0.25).train()(torch.ones(20_000, 1))
    assert abs(result.mean().item() - 1) < 0.02
    assert abs((result == 0).double().mean().item() - 0.25) < 0.02


def test_drop_path_does_nothing_in_evaluation_or_at_zero():
    x = numbers(8, 3, 2)
    assert torch.equal(DropPath(0.9).eval()(x), x)
    assert torch.equal(DropPath(0.0).train()(x), x)


def test_a_dropped_branch_leaves_its_sample_as_it_was():
    branch, x = randomized(Branch(DIM, nn.Linear(DIM, DIM), drop_path=0.5)).train(), numbers(64, 3, DIM)
    full = branch.eval()(x) - x
    added = branch.train()(x) - x
    dropped = (added == 0).flatten(1).all(dim=1)
    assert 10 < dropped.sum() < 54
    torch.testing.assert_close(added[~dropped], 2 * full[~dropped])


def test_branches_use_gelu_without_approximation():
    mlp, x = randomized(FeedForward(DIM, HIDDEN)), numbers(3, DIM)
    torch.testing.assert_close(mlp(x), mlp.contract(F.gelu(mlp.expand(x), approximate="none")), rtol=1e-9, atol=1e-9)
