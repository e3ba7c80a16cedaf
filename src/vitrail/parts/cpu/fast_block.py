"""A decoder block for inference on a few rows at a time."""

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.parts.attention.dot_product import attend
from vitrail.parts.feed_forward import activate

Product = Callable[[Tensor], Tensor]
"""A linear layer ``x Wᵀ + b``, (…, in) to (…, out), with fixed W and b."""
Matrix = Callable[[Tensor, Tensor | None], Product]
"""Builds a `Product` from W and b."""


def product_of(matrix: Matrix, weight: Tensor, bias: Tensor | None) -> Product:
    """Build the `Product` of a weight and bias, detached from autograd."""
    return matrix(weight.detach(), None if bias is None else bias.detach())


class FastBlock:
    """A decoder `Block` with cross-attention, for beam search; ``matrix`` builds its linear layers.

    It leaves out LayerScale, drop path and query-key norms, which the Transformer's blocks do not have.
    """

    def __init__(self, block: Any, matrix: Matrix):
        def product(layer: nn.Linear) -> Product:
            return product_of(matrix, layer.weight, layer.bias)

        branches: list[Any] = [block.attention, block.cross, block.mlp]
        own, cross, mlp = (branch.layer for branch in branches)
        self.own, self.cross, self.activation = own, cross, mlp.activation
        self.qkv, self.own_output = product(own.qkv), product(own.output)
        self.query, self.cross_output = product(cross.query), product(cross.output)
        self.expand, self.contract = product(mlp.expand), product(mlp.contract)
        self.pre = block.attention.norm_place == "pre"
        self.norms = [branch.norm for branch in branches]

    def __call__(self, x: Tensor, *, cache: Any, across: dict[str, Any], mask: Tensor | None) -> Tensor:
        """Map (A, W, D) to (A, W, D): equations (2) and (3), with cross-attention to the source between them."""
        q, k, v = map(self.own.split_heads, self.qkv(self._before(x, 0)).split(self.own.widths, dim=-1))
        x = self._after(x, self.own_output(self._joined(q, *cache.extended(k, v), mask=mask)), 0)
        seen = across["cache"]
        k, v = seen.tensors if seen.length else self.cross.project(x, across["context"], cache=seen)[1:]
        q = self.cross.split_heads(self.query(self._before(x, 1)))
        x = self._after(x, self.cross_output(self._joined(q, k, v, mask=across["mask"])), 1)
        return self._after(x, self.contract(activate(self.expand(self._before(x, 2)), self.activation)), 2)

    def _before(self, x: Tensor, branch: int) -> Tensor:
        return self._norm(x, branch) if self.pre else x

    def _after(self, x: Tensor, result: Tensor, branch: int) -> Tensor:
        return x + result if self.pre else self._norm(x + result, branch)

    def _norm(self, x: Tensor, branch: int) -> Tensor:
        norm = self.norms[branch]
        return F.layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps)

    def _joined(self, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        return attend(q, k, v, **options).transpose(1, 2).flatten(2)
