"""Images per second and accuracy of exported models beside timm's model in Python, in one run, on your images.

python benchmarks/deployed.py --weights vit_tiny_patch16_224.safetensors --data photographs EXPORTED…

The weights are in timm's layout. Exported models are made of them by `vitrail export --calibrate photographs`, which calibrates
on one half of images that have no splits; accuracy is told of the other half, and of all of them.
"""

import argparse
import tempfile
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import shapes
import side_by_side
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from sklearn.datasets import load_sample_images
from torch import Tensor

from vitrail.api import open_answerer
from vitrail.deploy.answering import in_python
from vitrail.deploy.merging import schedule
from vitrail.models.registry import model_config
from vitrail.shipping import BATCH, Samples, certainty, export, samples_of
from vitrail.training.observer import Observer
from vitrail.weights.reference import open_model


def theirs(weights: Path, shape: shapes.Shape) -> torch.nn.Module:
    """timm's model of these weights."""
    model = shapes.timm(shape)
    model.load_state_dict(load_file(weights))
    return model.eval()


@torch.inference_mode()
def beside(weights: Path, data: str, exported: list[Path], *, rounds: int) -> str:
    """The table, in Markdown; without accuracy where there are no labels."""
    trained, silent = open_model(weights), Observer()
    python = in_python(trained)
    ways = {"Vitrail fp32": python, "Vitrail bf16": in_python(trained, "bf16")}
    ways |= {f"Vitrail {path.name}": open_answerer(path) for path in exported}
    chosen, others = samples_of(weights, python, data, silent)
    every = Samples(torch.cat([chosen.pixels, others.pixels]), torch.cat([chosen.labels, others.labels]), chosen.labelled)
    timm, pixels = theirs(weights, shapes.TINY), every.pixels[:BATCH]
    prepared: Tensor = trained.preparation.normalize(pixels)
    works: dict[str, side_by_side.Work] = {"timm fp32": lambda: timm(prepared)}
    works |= {name: partial(way.logits, pixels) for name, way in ways.items()}
    times = side_by_side.seconds(works, rounds=rounds)
    rows = []
    for name, took in times.items():
        row = [name, f"{BATCH / took:.1f}", f"{times['timm fp32'] / took:.2f}"]
        for samples in (others, every) if chosen.labelled and name in ways else ():
            answers = samples.asked(ways[name], silent, name)
            row += [f"{100 * answers.top(1):.1f} %", f"{100 * certainty(answers):.1f} %"]
        rows.append(row + ["–"] * (7 - len(row)) if chosen.labelled else row)
    head = ["ViT-Ti/16", "images/s", "× timm fp32"]
    told = [f"top-1 of {len(others.pixels)} others", "certainty", "top-1 of all", "certainty"]
    return side_by_side.table(head + told if chosen.labelled else head, rows)


def main(*, quick: bool) -> str:
    """Speed alone, of a model that has learned nothing."""
    with tempfile.TemporaryDirectory() as name:
        folder, photographs = Path(name), Path(name) / "photographs"
        photographs.mkdir()
        for number, (pixels, place) in enumerate(product(load_sample_images().images, range(0, 320, 20))):
            Image.fromarray(pixels[:, place : place + 320]).save(photographs / f"{number}.png")
        weights = folder / "vit_tiny_patch16_224.safetensors"
        save_file(shapes.timm(shapes.TINY).state_dict(), weights)
        ways: dict[str, dict[str, Any]] = {"openvino bf16": {"precision": "bf16"}} if not quick else {}
        ways["openvino int8"] = {"precision": "int8"}
        ways["openvino int8, merged"] = {"precision": "int8", "merge": schedule(model_config("ViT-Ti/16"), 0.1)}
        for way, given in ways.items():
            export(weights, folder / way, to="openvino", calibrate=photographs, fold=True, force=True, **given)
        return beside(weights, str(photographs), [folder / way for way in ways], rounds=3 if quick else 5)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("exported", type=Path, nargs="*")
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    print(beside(given.weights, given.data, given.exported, rounds=given.rounds))
