"""Measure the accuracy of `make demo` with the seeds 0 to 9.

    python benchmarks/digits_seeds.py

Prints the accuracy on the 360 test images and the time of training for each seed, then mean and spread.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

import side_by_side
import torch

import vitrail
from vitrail.runtime.environment import processor_name
from vitrail.training.runs.run_folder import RunFolder

SEEDS = range(10)


def trained(seed: int, folder: Path) -> tuple[float, float]:
    """Per cent of the test images that are answered correctly, and the seconds of training."""
    run = vitrail.train(recipe="digits", out=folder / str(seed), seed=seed)
    assert run.split == "test"
    return 100 * run.scores["top1"], sum(row["seconds"] for row in RunFolder(run.folder).rows)


def main() -> None:
    """Train with one seed after another, and print them."""
    found: dict[int, tuple[float, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for seed in SEEDS:
            found[seed] = trained(seed, Path(folder))
            print(f"seed {seed}: {found[seed][0]:.2f} %, {found[seed][1]:.0f} s", file=sys.stderr, flush=True)
    accuracies = [accuracy for accuracy, _ in found.values()]
    rows = [[str(seed), f"{accuracy:.2f} %", f"{took:.0f} s"] for seed, (accuracy, took) in found.items()]
    print(side_by_side.table(["seed", "top-1 on the test images", "training"], rows))
    spread = f"standard deviation {statistics.stdev(accuracies):.2f}, {min(accuracies):.2f} to {max(accuracies):.2f} %"
    print(f"Mean {statistics.mean(accuracies):.2f} %, {spread}; {processor_name()}, {torch.get_num_threads()} threads.")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    main()
