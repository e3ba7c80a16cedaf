"""Cross-entropy over a large vocabulary, which stores each logit's gradient once, in the precision of the matrix products."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.parts.cpu.precision import as_autocast

ROWS = 256
"""Tokens whose logits a CPU computes at a time, so that they stay in its cache."""
ROWS_OF_GPU = 2**13
"""Tokens whose logits a GPU computes at a time, so that they need little memory."""


def token_loss(x: Tensor, table: Tensor, bias: Tensor | None, labels: Tensor, *, smoothing: float = 0.0) -> Tensor:
    """Return the mean cross-entropy of ``softmax(x Wᵀ + b)`` with label smoothing (Szegedy et al. 2015).

    Args:
        x: (N, D).
        table: W, (vocabulary, D).
        bias: b, (vocabulary,), or None.
        labels: int64 (N,).
        smoothing: fraction ε of the target probability that is spread over the whole vocabulary.

    Returns:
        A float32 scalar. Under autocast the products use autocast's type.
    """
    loss: Tensor = _TokenLoss.apply(as_autocast(x), as_autocast(table), bias, labels, smoothing)
    return loss


class _TokenLoss(torch.autograd.Function):
    """A loss that computes its gradients in the forward pass, while the probabilities are in the cache.

    With probabilities p, label y and vocabulary size V, the loss of a token is ``logsumexp(z) - (1 - ε) z_y - ε mean(z)``, and
    its gradient with respect to the logits z is ``p - (1 - ε) [y] - ε / V``. The terms with ε are computed from the mean row of
    the table.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, table: Tensor, bias: Tensor | None, labels: Tensor, smoothing: float) -> Tensor:
        count = len(x)
        mean_row, mean_bias = table.mean(dim=0, dtype=torch.float32), 0.0 if bias is None else bias.mean()
        x, labels = (F.pad(t, (0, 0, 0, -count % ROWS)) for t in (x, labels[:, None]))  # few different shapes of products
        d_logits, d_x, sums = x.new_empty(len(x), len(table)), torch.empty_like(x), [mean_row.new_zeros(())]
        at_once = ROWS if x.is_cpu else ROWS_OF_GPU
        for start in range(0, len(x), at_once):
            rows, wanted, d_z = (t[start : start + at_once] for t in (x, labels, d_logits))
            logits = F.linear(rows, table, None if bias is None else bias.to(x.dtype))  # (n, V)
            torch.softmax(logits, dim=1, out=d_z)
            of_label, whole = logits.gather(1, wanted).float(), logits.float().logsumexp(dim=1, keepdim=True)
            mean = (rows.float() @ mean_row)[:, None] + mean_bias
            sums.append((whole - of_label + smoothing * (of_label - mean))[: count - start].sum())
            d_z[torch.arange(len(d_z), device=x.device), wanted[:, 0]] += smoothing - 1
            d_z[count - start :] = 0
            torch.mm(d_z, table, out=d_x[start : start + at_once])
        d_table = (d_logits.T @ x).float().sub_(x.sum(dim=0, dtype=torch.float32), alpha=smoothing / len(table))
        d_x = d_x[:count] - (smoothing * mean_row).to(x.dtype)
        d_bias = None if bias is None else d_logits.sum(dim=0, dtype=torch.float32) - smoothing * count / len(table)
        ctx.save_for_backward(d_x, d_table, d_bias)
        ctx.kinds, ctx.count = (table.dtype, bias.dtype if bias is not None else None), max(1, count)
        return (torch.stack(sums).sum() / ctx.count).float()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_loss: Tensor) -> Any:
        d_x, d_table, d_bias = ctx.saved_tensors
        share = d_loss / ctx.count
        of_bias = None if d_bias is None else (d_bias * share).to(ctx.kinds[1])
        return d_x * share.to(d_x.dtype), (d_table * share).to(ctx.kinds[0]), of_bias, None, None
