"""Short measurements that decide how attention and linear layers are computed on this machine; they take a few seconds."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.parts.cpu.explicit_attention import Explicit
from vitrail.parts.cpu.kernels import Kernels
from vitrail.parts.cpu.prepacked import PrepackedLinear, packs

LENGTHS = (17, 50, 65, 197, 257, 577, 1024)
"""Sequence lengths to measure: an image of 224 px in patches of 16 has 197 tokens with its class token. Longer sequences always
use the fused kernel, since explicit attention takes memory quadratic in the length."""
HEADS, HEAD_DIM = 12, 64
"""Number of attention heads, and their width, in the measurement."""
ROWS, DIM = 197, 384
"""Tokens and width of the measured linear layer, the first of an MLP in a ViT-S/16."""
TURNS, LEAST = 5, 0.005
"""Repetitions of each measurement, and the least seconds of each. The fastest counts: other load only adds time."""


@dataclass(frozen=True)
class Timed:
    """Milliseconds of several implementations of the same computation."""

    what: str
    tokens: int
    milliseconds: Mapping[str, float]

    @property
    def quickest(self) -> str:
        """The name of the fastest implementation."""
        return min(self.milliseconds, key=self.milliseconds.__getitem__)


def calibrate() -> tuple[Kernels, list[Timed]]:
    """Measure this machine, and return the kernels to use and the measured times.

    bf16 attention is measured only if bf16 linear layers are faster than fp32 ones: without bf16 instructions it would take a
    minute, and torch's fused kernel computes it in fp32 anyway.
    """
    fp32, bf16 = _linear(torch.float32), _linear(torch.bfloat16)
    lengths = LENGTHS if _is_quicker(bf16, fp32) else ()
    learning = [_attention("attention, bf16, with gradients", length, learns=True) for length in lengths]
    answering = [_attention("attention, bf16", length, learns=False) for length in lengths]
    return decided(learning, answering, fp32, bf16), [*learning, *answering, fp32, bf16]


def decided(learning: Sequence[Timed], answering: Sequence[Timed], fp32: Timed, bf16: Timed) -> Kernels:
    """Return the kernels to use, from times of attention at several lengths and of linear layers."""
    both = [row.milliseconds for row in (fp32, bf16) if "prepacked" in row.milliseconds]
    plain, prepacked = (sum(times[way] for times in both) for way in ("plain", "prepacked"))
    return Kernels(
        explicit_learning=longest_explicit(learning),
        explicit_answering=longest_explicit(answering),
        prepacked=bool(both) and prepacked <= plain,
        bf16=_is_quicker(bf16, fp32),
    )


def _is_quicker(one: Timed, other: Timed) -> bool:
    """Return whether the fastest time of ``one`` is below that of ``other``."""
    return one.milliseconds[one.quickest] < other.milliseconds[other.quickest]


def longest_explicit(rows: Sequence[Timed]) -> int:
    """Return up to how many tokens explicit attention is best, by the product of time ratios of all lengths; 0 for never."""
    gains = [math.log(row.milliseconds["fused"] / row.milliseconds["explicit"]) for row in rows]
    sums = [sum(gains[:count]) for count in range(len(rows) + 1)]
    best = max(range(len(sums)), key=sums.__getitem__)
    return rows[best - 1].tokens if best else 0


def _attention(what: str, length: int, *, learns: bool) -> Timed:
    random = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, HEADS, length, HEAD_DIM, generator=random).bfloat16().requires_grad_(learns) for _ in range(3))

    def work(attend: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Callable[[], object]:
        def passes() -> None:
            with torch.set_grad_enabled(learns):
                found = attend(q, k, v)
                if learns:
                    torch.autograd.grad(found, (q, k, v), found.detach())

        return passes

    return Timed(what, length, _times({"explicit": work(Explicit.apply), "fused": work(F.scaled_dot_product_attention)}))


@torch.inference_mode()
def _linear(dtype: torch.dtype) -> Timed:
    layer, x = nn.Linear(DIM, 4 * DIM).to(dtype), torch.ones(ROWS, DIM, dtype=dtype)
    ways: dict[str, nn.Module] = {"plain": layer} | ({"prepacked": PrepackedLinear(layer, dtype)} if packs(dtype) else {})
    name = {torch.float32: "fp32", torch.bfloat16: "bf16"}[dtype]
    return Timed(f"linear layer, {name}", ROWS, _times({way: partial(module, x) for way, module in ways.items()}))


def _times(works: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Return the milliseconds of one call of each function, in its fastest repetition."""
    for work in works.values():
        work()
    found = dict.fromkeys(works, math.inf)
    for _ in range(TURNS):
        for name, work in works.items():
            found[name] = min(found[name], _turn(work))
    return found


def _turn(work: Callable[[], object]) -> float:
    start, calls = time.perf_counter(), 0
    while (took := time.perf_counter() - start) < LEAST or not calls:
        work()
        calls += 1
    return 1000 * took / calls
