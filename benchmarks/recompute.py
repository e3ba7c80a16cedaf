"""Peak memory and rate of a forward and backward pass whose layers are computed again, beside one that keeps what they computed.

    python benchmarks/recompute.py [--models ViT-B/16 ViT-L/16] [--passes 3]

Needs Linux, whose /proc tells the height. Every figure is from a process of its own.
"""

import argparse
import multiprocessing
import statistics
import time
from pathlib import Path

import side_by_side
import torch
import torch.nn.functional as F
from long_sequences import megabytes

import vitrail
from vitrail.training.loop.recompute import recompute_layers

BATCHES = {"ViT-B/16": 16, "ViT-L/16": 8}


def measure(name: str, recompute: bool, passes: int) -> tuple[float, float]:
    """Megabytes at the height, beyond the model, its gradients and the images; and images per second."""
    batch = BATCHES[name]
    model, images, labels = vitrail.create_model(name).train(), torch.randn(batch, 3, 224, 224), torch.zeros(batch).long()
    if recompute:
        recompute_layers(model)
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 0.0)  # written, so that it takes its memory now
    Path("/proc/self/clear_refs").write_text("5")  # the height so far is forgotten
    before, seconds = megabytes("VmRSS"), []
    for _ in range(passes):
        start = time.perf_counter()
        F.cross_entropy(model(images), labels).backward()
        seconds.append(time.perf_counter() - start)
    return megabytes("VmHWM") - before, batch / statistics.median(seconds)


def main(models: list[str], passes: int) -> str:
    """The table, in Markdown."""
    context, rows = multiprocessing.get_context("spawn"), []
    for name in models:
        for recompute in (False, True):
            with context.Pool(1) as pool:
                memory, rate = pool.apply(measure, (name, recompute, passes))
            kept = "computed again" if recompute else "kept"
            rows.append([f"{name}, batch {BATCHES[name]}", kept, f"{memory:,.0f} MB", f"{rate:.2f}"])
    return side_by_side.table(["model", "what layers compute", "peak memory", "images/s"], rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(BATCHES), choices=list(BATCHES))
    parser.add_argument("--passes", type=int, default=3, help="of each, of which the median counts")
    arguments = parser.parse_args()
    print(main(arguments.models, arguments.passes))
