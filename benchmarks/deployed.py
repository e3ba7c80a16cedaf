"""Accuracy and images per second of exported models beside timm's model in Python, in one run, on your images.

    python benchmarks/deployed.py --model vit_tiny_patch16_224.safetensors --data photographs

MODEL is a plain ViT that timm can hold. Images that have splits keep them. Others are divided at random, always in the
same way: half of them for the figures, a quarter to calibrate int8, a quarter to choose how much is merged; the script makes
20 views of each. Accuracy is measured on all test images, none of which has chosen anything. The difference to timm is
paired, image by image; the 20 views of one photograph count as one observation in its standard error.
"""

import argparse
import csv
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from math import sqrt
from pathlib import Path
from typing import Any

import shapes
import side_by_side
import torch
from PIL import Image, ImageOps
from safetensors.torch import load_file
from sklearn.datasets import load_sample_images
from torch import Tensor

import vitrail
from vitrail.api import export
from vitrail.data.images.decode import decode
from vitrail.data.items import ImageData
from vitrail.data.loading.sampler import shuffled
from vitrail.deploy.export.export_model import quickest_floats
from vitrail.deploy.export.merging import schedule
from vitrail.deploy.predict import open_predictor
from vitrail.deploy.predictor import in_python
from vitrail.models.inference import quickest_precision
from vitrail.tasks.classification.judging.samples import BATCH
from vitrail.tasks.classification.predictor import LabelPredictor
from vitrail.training.runs.data_of_model import open_for

CROPS = (7 / 8, 3 / 4)
"""Sides of the crops, as shares of the photograph's sides."""
VIEWS = 20
"""Of a photograph: for each size of crop the four corners and the centre, and their mirror images."""
MERGED_QUICKLY = 0.1
"""Share of the patches merged at each stage where nothing is searched."""


def views(picture: Image.Image) -> Iterator[Image.Image]:
    """The `VIEWS` of a photograph, in a fixed order."""
    for share in CROPS:
        width, height = (round(share * side) for side in picture.size)
        right, below = picture.width - width, picture.height - height
        for left, top in ((0, 0), (right, 0), (0, below), (right, below), (right // 2, below // 2)):
            crop = picture.crop((left, top, left + width, top + height))
            yield crop
            yield ImageOps.mirror(crop)


def write_views(data: ImageData, folder: Path) -> Path:
    """A table of views with splits by photograph: half of the photographs for testing, a quarter each for the other two."""
    items, rows = data.split("all"), [("image", "label", "split")]
    for place, index in enumerate(shuffled(len(items), 0, 0)):
        split = ("test", "train", "test", "val")[place % 4]
        (folder / str(index)).mkdir(parents=True)
        for number, view in enumerate(views(decode(items[index].image))):
            name = f"{index}/{number}.png"
            view.save(folder / name, compress_level=1)
            rows.append((name, data.classes[items[index].labels[0]], split))
    table = folder / "labels.csv"
    with table.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)
    return table


def timms(trained: vitrail.TrainedModel, folder: Path) -> LabelPredictor:
    """timm's model with the same weights, which takes the same pixels."""
    file, c = folder / "timm.safetensors", trained.config
    vitrail.convert(trained, file, layout="timm")
    model = shapes.timm(shapes.Shape(c.image_size[0], c.patch_size[0], c.dim, c.depth, c.heads, c.num_classes))
    model.load_state_dict(load_file(file))
    model.eval()

    @torch.inference_mode()
    def logits(pixels: Tensor) -> Tensor:
        answers: Tensor = model(trained.preparation.normalize(pixels))
        return answers

    return replace(in_python(trained), name="timm fp32", logits=logits)


def contenders(model: str | Path, data: Path | str, folder: Path, given: dict[str, dict[str, Any]]) -> dict[str, LabelPredictor]:
    """timm's model, ours in Python, and what is exported of it by the arguments ``given``."""
    trained, quick = vitrail.open_model(model), quickest_precision(torch.device("cpu"))
    found = {"timm fp32": timms(trained, folder)}
    found |= {f"Vitrail {precision}": in_python(trained, precision) for precision in dict.fromkeys(("fp32", quick))}
    for name, arguments in given.items():
        place, figures = export(model, folder / name, calibrate=data, fold=True, force=True, **arguments)
        merged = max(figures["token_merging"]) if figures["token_merging"] else 0
        found[f"Vitrail {name}" + (f", {merged} patches merged at a time" if merged else "")] = open_predictor(place)
    return found


def speeds(ways: dict[str, LabelPredictor], pixels: Tensor, *, rounds: int) -> tuple[dict[str, list[str]], str]:
    """Cells, images per second of each, and beside timm, which gets its pixels normalised; and what others took meanwhile."""
    measured = side_by_side.measure({name: partial(way.logits, pixels) for name, way in ways.items()}, rounds=rounds)
    cells = {name: [f"{len(pixels) / measured.seconds(name):.1f}", measured.ratio(name, "timm fp32")] for name in ways}
    return cells, side_by_side.note(measured.others)


def accuracies(ways: dict[str, LabelPredictor], data: Path | str, views_of_each: int) -> dict[str, list[str]]:
    """Cells: top-1 accuracy on the test images, and what it differs from timm's by, in points, with its standard error."""
    found, first = {}, None
    for name, way in ways.items():
        evaluation, _ = vitrail.api.evaluate(way, data, split="test", keep=True)
        correct = (evaluation.logits.argmax(dim=1) == evaluation.labels).double()
        first = correct if first is None else first
        difference = 100 * (correct - first).reshape(-1, views_of_each).mean(dim=1)
        error = difference.std() / sqrt(len(difference))
        found[name] = [f"{100 * correct.mean():.2f} %", f"{difference.mean():+.2f} ± {error:.2f}"]
    return found


def on_images(model: str, source: str, *, rounds: int, onnx: bool) -> str:
    """The table of a model on some images, in Markdown, and which images its accuracy was measured on."""
    given: dict[str, dict[str, Any]] = {"openvino int8": {"to": "openvino", "precision": "int8"}}
    for precision in ("int8", quickest_floats("openvino")):
        given[f"openvino {precision}, merged"] = {"to": "openvino", "precision": precision, "merge": None}
    given |= {"onnx int8": {"to": "onnx", "precision": "int8"}} if onnx else {}
    with tempfile.TemporaryDirectory() as name:
        folder, views_of_each = Path(name), 1
        data, own_splits = open_for(model, source)
        if own_splits and not data.has_splits:
            raise SystemExit("the run has split these images itself: give them as folders train, val and test")
        if not own_splits:
            source, views_of_each = str(write_views(data, folder / "views")), VIEWS
        ways = contenders(model, source, folder, given)
        accuracy = accuracies(ways, source, views_of_each)
        items = vitrail.open_data(source).split("test")
        images = ways["timm fp32"].dataset([replace(item, label=0) for item in items[:BATCH]])
        speed, others = speeds(ways, torch.cat([images[0, i][0] for i in range(BATCH)]), rounds=rounds)
    rows = [[name, *accuracy[name], *speed[name]] for name in ways]
    count = f"{len(items):,} test images" if views_of_each == 1 else f"{len(items):,} views of {len(items) // VIEWS} photographs"
    head = ["model", "top-1", "points beside timm, standard error", f"images/s, batches of {BATCH}", "× timm fp32"]
    return side_by_side.table(head, rows) + f"\n{count}, which chose neither ranges nor merging. {others}"


def main(*, quick: bool) -> str:
    """Speed alone, of a model that has learned nothing."""
    with tempfile.TemporaryDirectory() as name:
        folder, photographs = Path(name), Path(name) / "photographs"
        photographs.mkdir()
        for number, (pixels, place) in enumerate(product(load_sample_images().images, range(0, 320, 20))):
            Image.fromarray(pixels[:, place : place + 320]).save(photographs / f"{number}.png")
        model = vitrail.create_model("ViT-Ti/16")
        trained = vitrail.TrainedModel(model, [str(i) for i in range(1000)], vitrail.Preparation.standard((224, 224)))
        trained.save_pretrained(folder / "model")
        plain = quickest_floats("openvino")
        merged = {"merge": schedule(model.config, MERGED_QUICKLY)}
        given: dict[str, dict[str, Any]] = {}
        for precision in ("int8",) if quick else (plain, "int8"):
            given[f"openvino {precision}"] = {"precision": precision}
            given[f"openvino {precision}, merged"] = {"precision": precision, **merged}
        ways = contenders(
            folder / "model", str(photographs), folder, {way: {"to": "openvino", **words} for way, words in given.items()}
        )
        pixels = torch.randint(0, 256, (BATCH, 3, 224, 224), dtype=torch.uint8)
        speed, others = speeds(ways, pixels, rounds=6 if quick else 14)
    rows = [[way, *cells] for way, cells in speed.items()]
    return side_by_side.table(["ViT-Ti/16", f"images/s, batches of {BATCH}", "× timm fp32"], rows) + "\n" + others


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a run, model folder or file of weights; without it the speed of an untrained ViT-Ti/16")
    parser.add_argument("--data", help="labelled images, as vitrail train takes them; with --model")
    parser.add_argument("--rounds", type=int, default=14, help="turns of every contender, of half a second each")
    parser.add_argument("--onnx", action="store_true", help="ONNX Runtime's int8 as well")
    parser.add_argument("--quick", action="store_true", help="without --model: fewer contenders and rounds")
    arguments = parser.parse_args()
    if bool(arguments.model) != bool(arguments.data):
        parser.error("--model and --data go together")
    if arguments.model:
        print(on_images(arguments.model, arguments.data, rounds=arguments.rounds, onnx=arguments.onnx))
    else:
        print(main(quick=arguments.quick))
