"""Images per second and accuracy of exported models beside timm's model in Python, in one run, on your images.

python benchmarks/deployed.py --weights vit_tiny_patch16_224.safetensors --data photographs EXPORTED…

The weights are in timm's layout. Exported models are made of them by `vitrail export --calibrate photographs`, which calibrates
on one half of images that have no splits; accuracy is told of the other half, and of all of them.
"""

import argparse
from functools import partial
from pathlib import Path

import shapes
import side_by_side
import torch
from safetensors.torch import load_file
from torch import Tensor

from vitrail.api import open_answerer
from vitrail.deploy.answering import in_python
from vitrail.shipping import BATCH, Samples, certainty, samples_of
from vitrail.training.observer import Observer
from vitrail.weights.reference import open_model


def theirs(weights: Path, shape: shapes.Shape) -> torch.nn.Module:
    """timm's model of these weights."""
    model = shapes.timm(shape)
    model.load_state_dict(load_file(weights))
    return model.eval()


@torch.inference_mode()
def main(weights: Path, data: str, exported: list[Path], *, rounds: int) -> str:
    """The table, in Markdown."""
    trained, silent = open_model(weights), Observer()
    python = in_python(trained)
    chosen, others = samples_of(weights, python, data, silent)
    every = Samples(torch.cat([chosen.pixels, others.pixels]), torch.cat([chosen.labels, others.labels]), chosen.labelled)
    ways = {"Vitrail fp32": python, "Vitrail bf16": in_python(trained, "bf16")}
    ways |= {f"Vitrail {path.name}": open_answerer(path) for path in exported}
    timm, pixels = theirs(weights, shapes.TINY), every.pixels[:BATCH]
    prepared: Tensor = trained.preparation.normalize(pixels)
    works: dict[str, side_by_side.Work] = {"timm fp32": lambda: timm(prepared)}
    works |= {name: partial(way.logits, pixels) for name, way in ways.items()}
    times = side_by_side.seconds(works, rounds=rounds)
    rows = []
    for name, took in times.items():
        row = [name, f"{BATCH / took:.1f}", f"{times['timm fp32'] / took:.2f}"]
        for samples in (others, every) if name in ways else ():
            answers = samples.asked(ways[name], silent, name)
            row += [f"{100 * answers.top(1):.1f} %", f"{100 * certainty(answers):.1f} %"]
        rows.append(row + ["–"] * (7 - len(row)))
    head = ["ViT-Ti/16", "images/s", "× timm fp32"]
    head += [f"top-1 of {len(others.pixels)} others", "certainty", "top-1 of all", "certainty"]
    return side_by_side.table(head, rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("exported", type=Path, nargs="*")
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    print(main(given.weights, given.data, given.exported, rounds=given.rounds))
