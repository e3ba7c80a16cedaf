"""The attention that is written out, against torch's and against differences."""

import torch
import torch.nn.functional as F

from vitrail.parts.cpu.explicit_attention import Explicit


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def test_the_written_out_attention_and_its_derivatives_are_right():
    q, k, v = (numbers(2, 3, n, d).requires_grad_() for n, d in ((4, 5), (6, 5), (6, 7)))
    torch.testing.assert_close(Explicit.apply(q, k, v), F.scaled_dot_product_attention(q, k, v))
    assert torch.autograd.gradcheck(Explicit.apply, (q, k, v))


def test_with_a_mask_it_is_torchs_attention_of_what_may_be_seen_and_of_nothing_it_is_zero():
    q, k, v = (numbers(2, 3, n, d).requires_grad_() for n, d in ((4, 5), (6, 5), (6, 7)))
    mask = torch.rand(2, 1, 4, 6) < 0.6
    mask[..., 0] = True
    torch.testing.assert_close(Explicit.apply(q, k, v, mask), F.scaled_dot_product_attention(q, k, v, attn_mask=mask))
    mask[1, 0, 2] = False
    assert not Explicit.apply(q, k, v, mask)[1, :, 2].any()
    assert torch.autograd.gradcheck(lambda *given: Explicit.apply(*given, mask), (q, k, v))


def test_with_a_bias_that_all_share_and_a_scale_it_is_torchs_attention():
    q, k, v = (numbers(2, 5, 3, n, d).requires_grad_() for n, d in ((4, 5), (6, 5), (6, 7)))
    bias, mask = numbers(3, 4, 6).requires_grad_(), torch.rand(5, 1, 4, 6) < 0.6
    mask[..., 0] = True
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=torch.where(mask, bias, -torch.inf), scale=0.3)
    torch.testing.assert_close(Explicit.apply(q, k, v, mask, bias, 0.3), expected)
    small = [t[:, :1].detach().requires_grad_() for t in (q, k, v)]
    assert torch.autograd.gradcheck(lambda *given: Explicit.apply(*given[:3], mask[:1], given[3], 0.3), (*small, bias))
