"""Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/), in the precision that is fastest on this machine."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from vitrail.parts.cpu.kernels import kernels

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""a, b and c of the polynomial a X + b X Xᵀ X + c (X Xᵀ)² X, which brings singular values near 1."""
ITERATIONS = 5
EPSILON = 1e-7


class Muon(Optimizer):
    """SGD with Nesterov momentum that orthogonalizes the update of each matrix and scales it to the length of AdamW's.

    A convolution's weights (out, in, kh, kw) are treated as a matrix (out, in·kh·kw). Updates equal those of torch.optim.Muon
    with ``adjust_lr_fn="match_rms_adamw"`` (Liu et al. 2025, https://arxiv.org/abs/2502.16982). That class takes only matrices
    and always computes in bf16, which is thirty times slower than fp32 on a processor without bf16 instructions.
    """

    def __init__(self, groups: list[dict[str, Any]], *, momentum: float):
        super().__init__(groups, {"momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Make one step, and return the result of ``closure``, or None without one."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._step_of(parameter, group["lr"], group["weight_decay"], group["momentum"])
        return loss

    def _step_of(self, parameter: Tensor, lr: float, weight_decay: float, momentum: float) -> None:
        state, gradient = self.state[parameter], parameter.grad
        assert gradient is not None
        if not state:
            state["momentum_buffer"] = torch.zeros_like(gradient)
        average = state["momentum_buffer"].lerp_(gradient, 1 - momentum)
        update = orthogonal(gradient.lerp(average, momentum).flatten(1))
        parameter.mul_(1 - lr * weight_decay)
        parameter.add_(update.reshape(parameter.shape), alpha=-lr * 0.2 * math.sqrt(max(update.shape)))


def orthogonal(matrix: Tensor) -> Tensor:
    """Return an approximately orthogonal matrix near ``matrix``, with singular values of 0.7 to 1.2, by Newton-Schulz iterations.

    It computes in bf16 where that is faster, else in the type of the matrix.
    """
    a, b, c = COEFFICIENTS
    x = matrix.bfloat16() if matrix.device.type != "cpu" or kernels().bf16 else matrix
    x = x.T if x.shape[0] > x.shape[1] else x  # makes x @ x.T the smaller of the two products
    x = x / x.norm().clamp(min=EPSILON)
    for _ in range(ITERATIONS):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if matrix.shape[0] > matrix.shape[1] else x
