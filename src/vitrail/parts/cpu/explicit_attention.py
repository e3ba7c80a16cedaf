"""Attention as explicit matrix products with their derivatives, for CPUs on which torch's fused kernel is slower."""

import math
from typing import Any

import torch
from torch import Tensor

from vitrail.parts.cpu.kernels import kernels


def explicit_is_faster(query: Tensor, key: Tensor, bias: Tensor | None = None) -> bool:
    """Return whether explicit attention is faster than torch's fused kernel, on a CPU up to ten times; see docs/decisions.md.

    In half precision this holds up to a number of tokens in the machine's `kernels`, one with gradients and one without. It
    always holds for a bias that requires gradients: there torch does not use its fused kernel.
    """
    if query.device.type != "cpu":
        return False
    learns = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (query, key, bias))
    if learns and bias is not None and bias.requires_grad:
        return True
    most = kernels().explicit_learning if learns else kernels().explicit_answering
    return query.dtype.itemsize == 2 and max(query.shape[-2], key.shape[-2]) <= most


SHORT = 32
"""Row length (one register) below which torch's softmax is several times slower in half precision than in float32."""


def _is_short(scores: Tensor) -> bool:
    return scores.shape[-1] < SHORT and scores.dtype.itemsize == 2


def _softmax(scores: Tensor) -> Tensor:
    return scores.softmax(-1, dtype=torch.float32).to(scores.dtype) if _is_short(scores) else scores.softmax(-1)


def _softmax_backward(d_weights: Tensor, weights: Tensor) -> Tensor:
    if _is_short(weights):
        return torch._softmax_backward_data(d_weights.float(), weights.float(), -1, torch.float32).to(weights.dtype)
    return torch._softmax_backward_data(d_weights, weights, -1, weights.dtype)


class Explicit(torch.autograd.Function):
    """Equations (6) and (7) and their derivatives, with fewer copies than autograd makes.

    Optional arguments after the values: ``mask``, ``bias`` and ``scale``, as in `vitrail.parts.attention.dot_product.attend`.
    """

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None = None,
        bias: Tensor | None = None,
        scale: float | None = None,
    ) -> Tensor:
        q, k, v = (t.reshape(-1, *t.shape[-2:]) for t in (query, key, value))  # (B·k, N, D_h)
        ctx.scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
        scores = torch.baddbmm(q.new_empty(()), q, k.mT, beta=0, alpha=ctx.scale)
        by_head = scores.view(*query.shape[:-1], key.shape[-2])
        if bias is not None:
            by_head += bias
        if mask is None:
            weights = _softmax(scores)
        else:
            hidden = ~mask
            by_head.masked_fill_(hidden, torch.finfo(scores.dtype).min)
            weights = _softmax(scores)
            weights.view_as(by_head).masked_fill_(hidden, 0.0)  # a fully masked query would otherwise attend to all keys equally
        ctx.save_for_backward(q, k, v, weights)
        ctx.bias = None if bias is None else bias.shape
        return (weights @ v).view(*query.shape[:-1], value.shape[-1])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_result: Tensor) -> Any:
        (q, k, v, weights), batch = ctx.saved_tensors, d_result.shape[:-2]
        d_result, none = d_result.reshape(-1, *d_result.shape[-2:]), q.new_empty(())
        d_weights = d_result @ v.mT
        d_scores = _softmax_backward(d_weights, weights)
        d_bias = None
        if ctx.bias is not None and ctx.needs_input_grad[4]:
            d_bias = d_scores.view(*batch, *d_scores.shape[1:]).sum_to_size(ctx.bias)
        dq = torch.baddbmm(none, d_scores, k, beta=0, alpha=ctx.scale)
        dk = torch.baddbmm(none, d_scores.mT, q, beta=0, alpha=ctx.scale)
        return *(t.view(*batch, *t.shape[1:]) for t in (dq, dk, weights.mT @ d_result)), None, d_bias, None
