"""Dropout: as torch's in all that can be said of chance."""

import pytest
import torch
from torch import nn

from vitrail.parts import Dropout


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_a_share_p_is_zero_and_the_rest_is_divided_by_the_share_that_is_kept(dtype, p):
    torch.manual_seed(0)
    dropped = Dropout(p)(torch.ones(500, 400, dtype=dtype))
    assert dropped.unique().tolist() == [0, torch.tensor(1 / (1 - p), dtype=dtype).item()]
    assert (dropped == 0).double().mean() == pytest.approx(p, abs=0.01)
    rows, columns = (dropped == 0).double().mean(dim=1), (dropped == 0).double().mean(dim=0)
    expected = (p * (1 - p) / 400) ** 0.5
    assert rows.std() == pytest.approx(expected, rel=0.2) and columns.std() == pytest.approx((p * (1 - p) / 500) ** 0.5, rel=0.2)


def test_masks_are_new_each_time_and_follow_from_torchs_seed():
    x, dropout = torch.ones(50, 60, dtype=torch.bfloat16), Dropout(0.3)
    torch.manual_seed(1)
    first, second = dropout(x), dropout(x)
    assert 0.3 < (first == second).double().mean() < 0.8
    torch.manual_seed(1)
    assert torch.equal(dropout(x), first) and torch.equal(dropout(x), second)


def test_the_gradient_is_dropped_like_the_value_and_evaluation_changes_nothing():
    x = torch.randn(20, 30, dtype=torch.bfloat16, requires_grad=True)
    dropped = Dropout(0.4)(x)
    (gradient,) = torch.autograd.grad(dropped.sum(), x)
    torch.testing.assert_close(gradient * x, dropped)
    assert torch.equal(Dropout(0.4).eval()(x), x) and torch.equal(Dropout(0.0)(x), x)
    assert not Dropout(1.0)(x).any() and isinstance(Dropout(0.1), nn.Dropout)
