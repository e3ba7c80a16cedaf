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
    """Equations (6) and (7) and their derivatives with a copy the less of almost everything than autograd makes."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        q, k, v = (t.flatten(0, -3) for t in (query, key, value))  # (B·k, N, D_h)
        weights = torch.baddbmm(q.new_empty(()), q, k.mT, beta=0, alpha=1 / math.sqrt(q.shape[-1])).softmax(-1)
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
        return tuple(t.unflatten(0, batch) for t in (dq, dk, weights.mT @ d_result))
