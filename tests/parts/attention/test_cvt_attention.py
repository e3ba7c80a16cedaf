"""Convolved attention by hand, and the stage that tells it the grid."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from vitrail import parts
from vitrail.errors import ConfigError


def attention(dim: int = 8, heads: int = 2) -> parts.ConvolvedAttention:
    torch.manual_seed(0)
    made = parts.ConvolvedAttention(dim, heads)
    for tensor in (*made.parameters(), *(b for name, b in made.named_buffers() if "running" in name)):
        nn.init.uniform_(tensor, 0.2, 1.0)
    return made.eval()


def by_hand(made: parts.ConvolvedAttention, x: torch.Tensor, grid: tuple[int, int]) -> torch.Tensor:
    """Section 3.2, pixel by pixel: every token is the sum of its neighbours, each channel by itself."""
    first, patches = x[0, : -grid[0] * grid[1]], x[0, -grid[0] * grid[1] :].unflatten(0, grid)

    def convolved(kind: str, stride: int) -> torch.Tensor:
        weight, norm = made.convolved[kind].convolution.weight, made.convolved[kind].norm
        padded = F.pad(patches, (0, 0, 1, 1, 1, 1))
        rows = []
        for row in range(0, grid[0], stride):
            for column in range(0, grid[1], stride):
                near = padded[row : row + 3, column : column + 3]  # (3, 3, D)
                rows.append((near * weight[:, 0].permute(1, 2, 0)).sum(dim=(0, 1)))
        found = (torch.stack(rows) - norm.running_mean) / (norm.running_var + norm.eps).sqrt() * norm.weight + norm.bias
        return made.get_submodule(kind)(torch.cat([first, found]))

    q, k, v = (convolved(kind, stride) for kind, stride in (("query", 1), ("key", 2), ("value", 2)))
    width, results = x.shape[-1] // made.heads, []
    for head in range(made.heads):
        part = slice(head * width, (head + 1) * width)
        results.append((q[:, part] @ k[:, part].T / x.shape[-1] ** 0.5).softmax(dim=-1) @ v[:, part])
    return made.output(torch.cat(results, dim=-1))[None]


@pytest.mark.parametrize("prefix", [0, 1, 2])
@torch.no_grad()
def test_it_is_the_formula_and_tokens_before_the_patches_go_round_the_convolutions(prefix):
    made, grid = attention(), (3, 5)
    x = torch.randn(1, prefix + 15, 8)
    torch.testing.assert_close(made(x, grid=grid), by_hand(made, x, grid))
    assert made.weights(x, grid=grid).shape == (1, 2, prefix + 15, prefix + 6)
    torch.testing.assert_close(made(x, grid=grid, first=1), made(x, grid=grid)[:, :1])


@pytest.mark.parametrize("given", [{}, {"grid": (3, 5), "context": torch.zeros(1, 4, 8)}])
def test_without_a_grid_or_with_another_sequence_it_says_so(given):
    with pytest.raises(ConfigError, match="takes only tokens and their grid"):
        attention()(torch.zeros(1, 15, 8), **given)


def test_in_half_precision_derivatives_are_those_of_single_precision():
    """Of strided convolutions they are computed there, which is ten times as fast."""
    made, x = parts.DepthwiseConv(8, 2).train(), torch.randn(2, 8, 6, 6)
    exact, rounded = x.clone().requires_grad_(), x.bfloat16().requires_grad_()
    made(exact).square().sum().backward()
    with torch.autocast("cpu", torch.bfloat16):
        result = made(rounded)
    result.float().square().sum().backward()
    assert result.dtype == torch.bfloat16
    torch.testing.assert_close(rounded.grad.float(), exact.grad, rtol=0.05, atol=0.05)


def test_a_stage_keeps_its_class_token_to_itself():
    torch.manual_seed(0)
    embedding = parts.GridEmbedding(3, 8, 3, stride=2, padding=1)
    blocks = [parts.Block(8, attention(), parts.FeedForward(8, 16)) for _ in range(2)]
    stage, x = parts.SequenceStage(embedding, blocks, class_token=8), torch.randn(2, 7, 9, 3)
    tokens, grid = stage.eval().sequence(x)
    assert grid == (4, 5) and tokens.shape == (2, 1 + 20, 8)
    torch.testing.assert_close(stage(x), tokens[:, 1:].unflatten(1, grid))
    torch.testing.assert_close(stage.sequence(x, first=1)[0], tokens[:, :1])
    assert not torch.allclose(tokens[0, 0], tokens[1, 0]), "the class token has looked at the image"
