"""Two processes with one thread each beside one with two threads: images per second in training, median of the epochs.

    python benchmarks/processes.py [--data cifar10-folder] [--rounds 3]

Needs two cores. The digits come with scikit-learn; two more models are trained where images are given.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

ALONE = [sys.executable, "-m", "vitrail"]
TOGETHER = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "vitrail"]


def images_per_second(command: list[str], threads: int, words: list[str]) -> list[float]:
    """Return images per second of every epoch of a run but the first, which reads the images."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        subprocess.run([*command, "train", *words, "--out", str(out)], env=environment, check=True, capture_output=True)
        rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [row["images_per_second"] for row in rows[1:]]


def main() -> None:
    """Interleave the contenders, and print their medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="a folder of images of 32 pixels, for two more models")
    parser.add_argument("--rounds", type=int, default=3, help="runs of every kind, which take turns")
    arguments = parser.parse_args()
    runs = {"digits": ["--data", "digits", "--epochs", "4"]}
    if arguments.data:
        runs["CIFAR-10, ViT-CIFAR10"] = ["--data", arguments.data, "--recipe", "cifar10", "--epochs", "4"]
        size = ["--model", "ViT-Ti/16", "--image-size", "224", "--batch-size", "32", "--epochs", "2"]
        runs["ViT-Ti/16 at 224 pixels"] = ["--data", arguments.data, "--recipe", "scratch", *size]
    for name, words in runs.items():
        found: dict[str, list[float]] = {"one process": [], "two, DDP": [], "two, FSDP2": []}
        for _ in range(arguments.rounds):
            found["one process"] += images_per_second(ALONE, 2, words)
            found["two, DDP"] += images_per_second(TOGETHER, 1, words)
            found["two, FSDP2"] += images_per_second(TOGETHER, 1, [*words, "--parallel", "fsdp"])
        base = median(found["one process"])
        for kind, rates in found.items():
            print(f"{name:26} {kind:12} {median(rates):9,.1f} images/s  {median(rates) / base:.2f} ×", flush=True)


if __name__ == "__main__":
    main()
