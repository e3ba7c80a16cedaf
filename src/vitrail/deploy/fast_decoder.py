"""A Transformer as it writes on a CPU: the same numbers from fewer and faster steps.

The model itself is written to be read and to learn. Here its decoder is laid out for one purpose, a few rows at a time without
gradients; `vitrail.parts` and `vitrail.models.transformer` stay as they are, and hold what is computed.
"""

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail import parts
from vitrail.deploy.matrices import Product, in_blocks, in_int8
from vitrail.models.text_model import TextModel
from vitrail.models.transformer import Transformer
from vitrail.parts.feed_forward import activate

MOST_DRAFTED = 12
"""Tokens that are drafted at once."""


class FastBlock:
    """A block of the decoder, called as `parts.Block` is in a search; ``matrix`` says how products are made."""

    def __init__(self, block: Any, matrix: Callable[[Tensor, Tensor | None], Product]):
        def product(layer: nn.Linear) -> Product:
            return matrix(layer.weight.detach(), None if layer.bias is None else layer.bias.detach())

        branches: list[Any] = [block.attention, block.cross, block.mlp]
        own, cross, mlp = (branch.layer for branch in branches)
        self.heads, self.widths, self.activation = own.heads, own.widths, mlp.activation
        self.qkv, self.own_output = product(own.qkv), product(own.output)
        self.cross, self.query, self.cross_output = cross, product(cross.query), product(cross.output)
        self.expand, self.contract = product(mlp.expand), product(mlp.contract)
        self.pre = block.attention.norm_place == "pre"
        self.norms = [branch.norm for branch in branches]

    def __call__(self, x: Tensor, *, cache: Any, across: dict[str, Any], mask: Tensor | None, causal: bool = False) -> Tensor:
        """(A, W, D) to (A, W, D): equations (2) and (3), with the attention to the source between the two."""
        q, k, v = map(self._heads, self.qkv(self._before(x, 0)).split(self.widths, dim=-1))
        x = self._after(x, self.own_output(self._joined(q, *cache.extended(k, v), mask=mask, causal=causal)), 0)
        seen = across["cache"]
        k, v = seen.tensors if seen.length else self.cross.project(x, across["context"], cache=seen)[1:]
        q = self._heads(self.query(self._before(x, 1)))
        x = self._after(x, self.cross_output(self._joined(q, k, v, mask=across["mask"])), 1)
        return self._after(x, self.contract(activate(self.expand(self._before(x, 2)), self.activation)), 2)

    def _before(self, x: Tensor, branch: int) -> Tensor:
        return self._norm(x, branch) if self.pre else x

    def _after(self, x: Tensor, result: Tensor, branch: int) -> Tensor:
        return x + result if self.pre else self._norm(x + result, branch)

    def _norm(self, x: Tensor, branch: int) -> Tensor:
        norm = self.norms[branch]
        return F.layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps)

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)  # (A, k, W, D_h)

    def _joined(self, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        return parts.attend(q, k, v, **options).transpose(1, 2).flatten(2)


class FastTransformer(Transformer):
    """The same Transformer with another decoder; parameters, encoder and embeddings are shared."""

    def __init__(self, model: Transformer, matrix: Callable[[Tensor, Tensor | None], Product]):
        nn.Module.__init__(self)
        self.__dict__.update({name: copy.copy(value) for name, value in model.__dict__.items()})
        self.training = False
        weight, bias = model.output_table()
        self.read = matrix(weight.detach(), None if bias is None else bias.detach())
        self.fast = [FastBlock(block, matrix) for block in model.decoder]

    @property
    def blocks(self) -> list[FastBlock]:
        return self.fast

    def logits(self, x: Tensor) -> Tensor:
        return self.read(x)


@dataclass
class Drafts:
    """A search of one text: what is remembered, how many tokens of that are written, and what is known of the next ones."""

    cache: parts.DecoderCache
    written: int = 0
    known: list[tuple[int, Tensor]] = field(default_factory=list)
    """Tokens that may be written next, one behind the other, and the logits (1, 1, vocabulary) behind each."""
    count: int = MOST_DRAFTED // 2

    def select(self, rows: Tensor) -> None:
        """Go on with the one source, or with none."""
        self.cache.select(rows)


class DraftedTransformer(TextModel):
    """A model for `greedy` of one text, for which a faster copy drafts (Leviathan et al. 2023, https://arxiv.org/abs/2211.17192).

    The copy writes a few tokens, the model looks at all of them at once: every logit is the model's own, and the better the
    drafts are, the fewer times its matrices have to be read.
    """

    def __init__(self, model: Transformer, draft: Transformer):
        super().__init__()
        self.model, self.draft, self.config = model, draft, model.config

    def begin(self, source: Tensor) -> Drafts:
        """Of one source (1, S)."""
        return Drafts(self.model.begin(source))

    def step(self, tokens: Tensor, state: Drafts) -> Tensor:
        """As `TextModel.step`, (1, 1) to (1, 1, vocabulary)."""
        state.written += 1
        if state.written == 1:  # what is kept of the source must be the model's own
            return self.model.step(tokens, state.cache)
        if not (state.known and state.known[0][0] == tokens.item()):
            state.known = self._looked_ahead(tokens, state)
        return state.known.pop(0)[1]

    def _looked_ahead(self, tokens: Tensor, state: Drafts) -> list[tuple[int, Tensor]]:
        """The logits behind a token, and behind those that the copy would write after it."""
        state.count = min(MOST_DRAFTED, 2 * state.count) if not state.known else max(2, state.count // 2)
        state.cache.rewind(state.written - 1)
        drafted = [tokens]
        while len(drafted) <= state.count and drafted[-1].item() != self.config.end:
            drafted.append(self.draft.step(drafted[-1], state.cache).argmax(dim=-1))
        state.cache.rewind(state.written - 1)
        row = torch.cat(drafted, dim=1)  # (1, 1 + count)
        return list(zip(row[0].tolist(), self.model.steps(row, state.cache).split(1, dim=1), strict=True))


def fast_copies(model: TextModel) -> tuple[TextModel, TextModel]:
    """What a model on this CPU writes many texts with, and one text without beams: itself where nothing is faster."""
    weight = next(model.parameters())
    if not isinstance(model, Transformer) or weight.device.type != "cpu" or weight.dtype != torch.float32:
        return model, model
    fast = FastTransformer(model, in_blocks)
    try:
        drafted = DraftedTransformer(fast, FastTransformer(model, in_int8))
    except (AttributeError, RuntimeError):  # no such products
        return fast, fast
    return fast, drafted if _is_faster(drafted) else fast


@torch.inference_mode()
def _is_faster(drafted: DraftedTransformer) -> bool:
    """Whether eight drafts and a look at them take less time than eight steps, where one in five is in vain."""
    model, tokens = drafted.model, torch.full((1, 1), drafted.config.start)
    state = model.begin(tokens)
    model.step(tokens, state)

    def seconds(what: Callable[[], Any]) -> float:
        took = []
        for _ in range(4):
            begun = time.perf_counter()
            what()
            took.append(time.perf_counter() - begun)
            state.rewind(1)
        return min(took)

    alone, copied = (seconds(lambda which=which: which.step(tokens, state)) for which in (model, drafted.draft))  # type: ignore[misc]
    looked = seconds(lambda: model.steps(tokens.expand(1, 8), state))
    return 8 * copied + looked < 0.8 * 8 * alone
