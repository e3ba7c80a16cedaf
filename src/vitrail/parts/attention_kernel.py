"""Attention written out with its derivatives, for processors on which torch's fused kernel is the slower way."""

import math
from typing import Any

import torch
from torch import Tensor


def explicit_is_faster(query: Tensor, key: Tensor) -> bool:
    """On a CPU in half precision the fused kernel takes up to six times as long, unless A is large (docs/decisions.md)."""
    half = query.dtype in (torch.bfloat16, torch.float16)
    return half and query.device.type == "cpu" and max(query.shape[-2], key.shape[-2]) <= 1024


class Explicit(torch.autograd.Function):
    """Equations (6) and (7) and their derivatives, with fewer copies than autograd makes of almost everything.

    A ``mask`` as in `vitrail.parts.attention.attend` may stand behind the values, or None.
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = (t.flatten(0, -3) for t in (query, key, value))  # (B·k, N, D_h)
        scores = torch.baddbmm(q.new_empty(()), q, k.mT, beta=0, alpha=1 / math.sqrt(q.shape[-1]))
        if mask is None:
            weights = scores.softmax(-1)
        else:
            hidden = ~mask
            by_head = scores.view(*query.shape[:-1], -1)
            by_head.masked_fill_(hidden, torch.finfo(scores.dtype).min)
            weights = scores.softmax(-1)
            weights.view_as(by_head).masked_fill_(hidden, 0.0)  # a query that sees nothing would see everything alike
        ctx.save_for_backward(q, k, v, weights)
        return (weights @ v).view(*query.shape[:-1], -1)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_result: Tensor) -> Any:
        (q, k, v, weights), batch = ctx.saved_tensors, d_result.shape[:-2]
        d_result, scale, none = d_result.flatten(0, -3), 1 / math.sqrt(q.shape[-1]), q.new_empty(())
        d_weights = d_result @ v.mT
        d_scores = torch._softmax_backward_data(d_weights, weights, -1, weights.dtype)
        dq = torch.baddbmm(none, d_scores, k, beta=0, alpha=scale)
        dk = torch.baddbmm(none, d_scores.mT, q, beta=0, alpha=scale)
        return *(t.unflatten(0, batch) for t in (dq, dk, weights.mT @ d_result)), None
