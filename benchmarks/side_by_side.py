"""What the benchmarks share: contenders that take turns, medians, and the machine's own rate of matrix products."""

import contextlib
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from peers import declare_operators

OPERATORS = declare_operators()  # timm and vit-pytorch import torchvision

Work = Callable[[], object]


def seconds(
    contenders: dict[str, Work],
    *,
    rounds: int = 5,
    at_least: float = 1.0,
    around: Callable[[str], contextlib.AbstractContextManager[None]] = lambda name: contextlib.nullcontext(),
) -> dict[str, float]:
    """The median time of each contender's work. They take turns, so that a machine that slows down does so for all.

    ``around`` gives what a contender has around every turn of at least so many seconds.
    """
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for work in contenders.values():
        work()
    for _ in range(rounds):
        for name, work in contenders.items():
            end = time.perf_counter() + at_least
            with around(name):
                while time.perf_counter() < end:
                    start = time.perf_counter()
                    work()
                    times[name].append(time.perf_counter() - start)
    return {name: statistics.median(found) for name, found in times.items()}


def product_rate(dtype: torch.dtype, size: int = 2048) -> float:
    """Multiply-adds per second, counted as two operations each, of large square matrix products."""
    a, b = torch.randn(2, size, size).to(dtype)
    return 2 * size**3 / seconds({"product": lambda: a @ b}, rounds=3, at_least=0.3)["product"]


def table(head: list[str], rows: list[list[str]]) -> str:
    """In Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
