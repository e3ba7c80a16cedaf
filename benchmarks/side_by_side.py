"""Shared parts of benchmarks: contenders that take turns, the spread of their ratios, the machine's own rate of products."""

import contextlib
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from peers import declare_operators
from vitrail.deploy.bench.measure import SETTLE, turn
from vitrail.models.inference import quickest_precision
from vitrail.runtime.memory import kept_memory
from vitrail.runtime.processor import Others

OPERATORS = declare_operators()  # timm and vit-pytorch import torchvision

PRECISION = quickest_precision(torch.device("cpu"))
"""What everybody computes in beside fp32: bf16 where this processor is quicker in it, else fp32 as well."""
PRECISIONS = tuple(dict.fromkeys(("fp32", PRECISION)))
DTYPE = {"fp32": torch.float32, "bf16": torch.bfloat16}[PRECISION]
BUSY = 0.05
"""The share of the cores' time from which on others spoil a measurement."""
Work = Callable[[], object]


@dataclass(frozen=True)
class Measured:
    """The times of contenders, round by round.

    Attributes:
        rounds: the median seconds of each contender's turns, in the order of the rounds.
        others: the share of the cores' time that other programs took meanwhile; None where the system does not say.
    """

    rounds: dict[str, list[float]]
    others: float | None

    def seconds(self, name: str) -> float:
        """The median of a contender's rounds."""
        return statistics.median(self.rounds[name])

    def ratio(self, name: str, reference: str) -> str:
        """Return how many times as fast as another: the median of the ratios within each round, and their middle half.

        Two turns of a round lie seconds apart. A machine that gets slower from round to round changes both, not their ratio.
        """
        ratios = [theirs / ours for ours, theirs in zip(self.rounds[name], self.rounds[reference], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
        return f"{middle:.2f} ({low:.2f}–{high:.2f})"


def measure(contenders: dict[str, Work], *, rounds: int = 14, at_least: float = 0.5) -> Measured:
    """Let the contenders take turns of at least so many seconds each, in the opposite order every second round.

    Vitrail's turns are in memory that stays, as its runs and predictions are.
    """
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for work in contenders.values():
        work()
    others, order = Others(), list(contenders)
    for _ in range(rounds):
        for name in order:
            time.sleep(SETTLE)
            with kept_memory() if "Vitrail" in name else contextlib.nullcontext():
                found[name].append(statistics.median(turn(contenders[name], at_least)))
        order.reverse()
    return Measured(found, others.share())


def note(*shares: float | None) -> str:
    """A sentence on what other programs took during some measurements, which stands out where it was too much."""
    known = [share for share in shares if share is not None]
    if not known:
        return "What other programs took meanwhile is not known.\n"
    said = f"Meanwhile other programs took {max(known):.0%} of the cores' time"
    return f"**{said}: measure again when it is quiet.**\n" if max(known) > BUSY else f"{said}.\n"


def product_rate(dtype: torch.dtype, size: int = 2048) -> float:
    """Multiply-adds per second, counted as two operations each, of large square matrix products."""
    a, b = torch.randn(2, size, size).to(dtype)
    return 2 * size**3 / measure({"product": lambda: a @ b}, rounds=5, at_least=0.2).seconds("product")


def rates(name: str, contenders: dict[str, Work], images: int, operations: int, *, rounds: int, at_least: float) -> str:
    """A table of images per second, the fastest first, beside timm in fp32 and, in the quicker precision, the rate of products.

    Args:
        name: of what is done.
        contenders: their work on a batch.
        images: in a batch.
        operations: of matrix products per image.
        rounds, at_least: see `measure`.
    """
    measured, rate = measure(contenders, rounds=rounds, at_least=at_least), product_rate(DTYPE)
    rows = []
    for contender in sorted(contenders, key=measured.seconds):
        reached = images / measured.seconds(contender)
        share = f"{operations * reached / rate:.0%}" if PRECISION in contender else ""
        rows.append([contender, f"{reached:.2f}", measured.ratio(contender, "timm fp32"), share])
    head = [name, "images/s", "× timm fp32", f"of the {PRECISION} product rate, {rate / 1e9:.0f} GFLOP/s"]
    return table(head, rows) + "\n" + note(measured.others)


def beside(name: str, contenders: dict[str, Work], images: int, peer: str, *, rounds: int) -> str:
    """Return images per second of all, and the ratio of each to the peer in the same precision, in Markdown."""
    measured = measure(contenders, rounds=rounds, at_least=0.5)
    rows = []
    for contender in sorted(contenders, key=measured.seconds):
        same = f"{peer} {contender.partition(' ')[2]}" if contender.startswith("Vitrail") else contender
        rows.append([contender, f"{images / measured.seconds(contender):.1f}", measured.ratio(contender, same)])
    return table([name, "images/s", f"× {peer}"], rows) + "\n" + note(measured.others)


def table(head: list[str], rows: list[list[str]]) -> str:
    """In Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
