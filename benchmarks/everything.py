"""Everything beside everybody, into a page of docs/benchmarks for this processor, which docs/benchmarks.md then links to.

    python benchmarks/everything.py [--quick]

`make bench` installs what it needs and calls it. It takes twenty-five minutes of a machine that does nothing else.
"""

import argparse
import importlib.metadata
import platform
import re
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
from vitrail.runtime.environment import processor

PEERS = ("torch", "timm", "transformers", "torchvision", "vit-pytorch", "onnxruntime", "openvino")
DOCS = Path(__file__).parent.parent / "docs"
INDEX = """\
# Benchmarks

`make bench` measures Vitrail beside its peers, everything in one run, contenders in turns, and writes a page for the processor:

"""


def machine() -> str:
    """Return the name of the machine."""
    return f"{processor()}, {torch.get_num_threads()} threads"


def page_of(machine: str) -> str:
    """The name of a machine's page."""
    return re.sub(r"[^a-z0-9]+", "-", machine.lower()).strip("-") + ".md"


def write(machine: str, text: str, docs: Path = DOCS) -> None:
    """Write a machine's page, and the index of all pages there are."""
    folder = docs / "benchmarks"
    folder.mkdir(exist_ok=True)
    write_text(folder / page_of(machine), f"# {machine}\n\n{text}")
    pages = {file.name: file.read_text(encoding="utf-8").split("\n", 1)[0].lstrip("# ") for file in sorted(folder.glob("*.md"))}
    write_text(docs / "benchmarks.md", INDEX + "".join(f"- [{title}](benchmarks/{name})\n" for name, title in pages.items()))


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer contenders and rounds: seven minutes instead of twenty-five")
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
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in PEERS)
    parts = [
        f"`make bench{' QUICK=1' if quick else ''}` writes this page: everything in one run, contenders in turns, medians of the "
        "rounds. A ratio is taken within each round; beside its median stands, in brackets, where the middle half of the rounds "
        f"lies: where two of these overlap, no difference is shown.\n\nPython {platform.python_version()}; {versions}.\n\n"
        "The share of the product rate counts the operations of the whole model for everybody, "
        "also those that Vitrail leaves out of the last block.\n"
    ]
    for title, module in sections.items():
        print(f"measuring: {title}", file=sys.stderr, flush=True)
        table = module.main(quick=quick)
        print(f"{title}\n\n{table}", flush=True)
        parts.append(f"## {title}\n\n{table}")
    write(machine(), "\n".join(parts))


if __name__ == "__main__":
    main()
