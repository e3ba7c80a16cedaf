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
from vitrail.runtime.memory import kept_memory

OPERATORS = declare_operators()  # timm and vit-pytorch import torchvision

Work = Callable[[], object]


def seconds(contenders: dict[str, Work], *, rounds: int = 5, at_least: float = 1.0) -> dict[str, float]:
    """The median time of each contender's work. They take turns, so that a machine that slows down does so for all.

    Vitrail's turns, of at least so many seconds, are in memory that stays, as its runs and predictions are.
    """
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for work in contenders.values():
        work()
    for _ in range(rounds):
        for name, work in contenders.items():
            end = time.perf_counter() + at_least
            with kept_memory() if "Vitrail" in name else contextlib.nullcontext():
                while time.perf_counter() < end:
                    start = time.perf_counter()
                    work()
                    times[name].append(time.perf_counter() - start)
    return {name: statistics.median(found) for name, found in times.items()}


def product_rate(dtype: torch.dtype, size: int = 2048) -> float:
    """Multiply-adds per second, counted as two operations each, of large square matrix products."""
    a, b = torch.randn(2, size, size).to(dtype)
    return 2 * size**3 / seconds({"product": lambda: a @ b}, rounds=3, at_least=0.3)["product"]


def rates(name: str, contenders: dict[str, Work], images: int, operations: int, *, rounds: int, at_least: float) -> str:
    """A table of images per second, the fastest first, beside timm in fp32 and, in bf16, the machine's rate of products.

    Args:
        name: of what is done.
        contenders: their work on a batch.
        images: in a batch.
        operations: of matrix products per image.
        rounds, at_least: see `seconds`.
    """
    times = seconds(contenders, rounds=rounds, at_least=at_least)
    rate = product_rate(torch.bfloat16)
    rows = []
    for contender, took in sorted(times.items(), key=lambda pair: pair[1]):
        share = f"{operations * images / took / rate:.0%}" if "bf16" in contender else ""
        rows.append([contender, f"{images / took:.2f}", f"{times['timm fp32'] / took:.2f}", share])
    return table([name, "images/s", "× timm fp32", f"of the bf16 product rate, {rate / 1e9:.0f} GFLOP/s"], rows)


def table(head: list[str], rows: list[list[str]]) -> str:
    """In Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
