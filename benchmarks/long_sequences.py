"""Peak memory of a forward pass of a ViT-Ti/16 over large images, beside timm, transformers, torchvision and vit-pytorch.

    python benchmarks/long_sequences.py [--quick]

Needs Linux, whose /proc tells the height, and the peers that the extra dev installs.
"""

import argparse
import multiprocessing
import re
from dataclasses import replace
from pathlib import Path

import shapes
import side_by_side
import torch

SIDES = (512, 1024, 2048)
CONTENDERS = {
    "Vitrail fp32": shapes.vitrail,
    f"Vitrail {side_by_side.PRECISION}": shapes.vitrail,
    "timm": shapes.timm,
    "torchvision": shapes.torchvision,
    "transformers": shapes.transformers,
    "vit-pytorch": shapes.vit_pytorch,
}


def megabytes(field: str) -> float:
    """Return a size of this process in megabytes, as the system reports it."""
    found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) / 1024


def peak(contender: str, side: int) -> float:
    """Megabytes that a forward pass of one image takes at its height, beyond the model and the image."""
    model, image = CONTENDERS[contender](replace(shapes.TINY, image_size=side)).eval(), torch.randn(1, 3, side, side)
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16, enabled="bf16" in contender):
        Path("/proc/self/clear_refs").write_text("5")  # the height so far is forgotten
        before = megabytes("VmRSS")
        model(image)
    return megabytes("VmHWM") - before


def main(*, quick: bool) -> str:
    """The table, in Markdown; every figure is from a process of its own."""
    sides = SIDES[:2] if quick else SIDES
    context = multiprocessing.get_context("spawn")
    rows = []
    for contender in CONTENDERS:
        found = []
        for side in sides:
            if contender == "vit-pytorch" and side > 1024:
                found.append("–")  # a matrix of 16,385 by 16,385 for every head: tens of gigabytes
                continue
            with context.Pool(1) as pool:
                found.append(f"{pool.apply(peak, (contender, side)):.0f} MB")
        rows.append([contender, *found])
    return side_by_side.table(
        ["ViT-Ti/16, one image", *(f"{s} px, {replace(shapes.TINY, image_size=s).tokens:,} tokens" for s in sides)], rows
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="images of 512 and 1,024 pixels alone, not of 2,048")
    print(main(quick=parser.parse_args().quick))
