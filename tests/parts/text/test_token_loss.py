"""The loss of tokens and its derivatives, against torch's cross-entropy."""

import pytest
import torch
import torch.nn.functional as F

from vitrail.parts import token_loss


@pytest.mark.parametrize(
    ("smoothing", "with_bias", "count"), [(0.0, False, 1), (0.1, True, 255), (0.5, False, 600), (0.1, True, 300)]
)
def test_it_is_torchs_cross_entropy_with_the_same_gradients(smoothing, with_bias, count):
    torch.manual_seed(count)
    x, table = (torch.randn(n, 8, dtype=torch.float64, requires_grad=True) for n in (count, 37))
    bias = torch.randn(37, dtype=torch.float64, requires_grad=True) if with_bias else None
    labels, given = torch.randint(0, 37, (count,)), [x, table] + ([bias] if with_bias else [])
    ours = token_loss(x, table, bias, labels, smoothing=smoothing)
    theirs = F.cross_entropy(F.linear(x, table, bias), labels, label_smoothing=smoothing)
    torch.testing.assert_close(ours.double(), theirs, rtol=1e-5, atol=1e-6)
    pairs = zip(torch.autograd.grad(3 * ours, given), torch.autograd.grad(3 * theirs, given), strict=True)
    for own, other in pairs:
        torch.testing.assert_close(own, other, rtol=1e-5, atol=1e-7)


def test_under_autocast_it_is_near_and_gives_gradients_of_the_parameters_type():
    torch.manual_seed(0)
    x, table = torch.randn(300, 32, requires_grad=True), torch.nn.Parameter(torch.randn(640, 32) / 6)
    labels = torch.randint(0, 640, (300,))
    with torch.autocast("cpu", torch.bfloat16):
        ours = token_loss(x, table, None, labels, smoothing=0.1)
    theirs = F.cross_entropy(F.linear(x, table), labels, label_smoothing=0.1)
    assert ours.item() == pytest.approx(theirs.item(), rel=2e-3)
    for own, other in zip(torch.autograd.grad(ours, [x, table]), torch.autograd.grad(theirs, [x, table]), strict=True):
        assert own.dtype == torch.float32 and F.cosine_similarity(own.flatten(), other.flatten(), dim=0) > 0.999
