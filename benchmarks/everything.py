"""Everything beside everybody, into docs/benchmarks.md.

    python benchmarks/everything.py [--quick]

`make bench` installs what it needs and calls it. It takes twenty minutes of a machine that does nothing else.
"""

import argparse
import importlib.metadata
import platform
import sys
from pathlib import Path

import deployed
import inference
import long_sequences
import packing
import serving
import start
import torch
import training_step

from vitrail.files import write_text
from vitrail.runtime.environment import processor_name

PEERS = ("torch", "timm", "transformers", "torchvision", "vit-pytorch", "onnxruntime", "openvino")
FILE = Path(__file__).parent.parent / "docs" / "benchmarks.md"


def machine() -> str:
    """What was measured on, and what."""
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in PEERS)
    return f"{processor_name()}, {torch.get_num_threads()} threads, Python {platform.python_version()}; {versions}."


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer contenders and rounds: five minutes instead of twenty")
    quick = parser.parse_args().quick
    sections = {
        "A training step: forward, backward, AdamW": training_step,
        "Inference": inference,
        "Images of 32 sizes in one sequence, ViT-Ti/16": packing,
        "Peak memory of a forward pass": long_sequences,
        "Deployed, batch 16": deployed,
        "Served": serving,
        "Start": start,
    }
    parts = [
        "# Benchmarks\n\n`make bench` writes this page: everything in one run, contenders in turns, medians.\n"
        f"{'The quick version, `make bench QUICK=1`. ' if quick else ''}Measured on {machine()}\n\n"
        "The share of the product rate counts the operations of the whole model for everybody, "
        "also those that Vitrail leaves out of the last block.\n"
    ]
    for title, module in sections.items():
        print(f"measuring: {title}", file=sys.stderr, flush=True)
        table = module.main(quick=quick)
        print(f"{title}\n\n{table}", flush=True)
        parts.append(f"## {title}\n\n{table}")
    write_text(FILE, "\n".join(parts))


if __name__ == "__main__":
    main()
