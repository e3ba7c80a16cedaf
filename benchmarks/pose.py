"""People in a photograph and their joints: several boxes beside one, and exported models beside transformers.

    python benchmarks/pose.py [--quick] [--only ViTPose-S …] [--photograph FILE]

Every model has random weights, the same in both libraries. A photograph is a file, which is decoded anew each time; without one
it is noise of 640×480 pixels in a JPEG. Needs transformers and the engines, which the extra dev installs.
"""

import argparse
import sys
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import side_by_side
import torch
from PIL import Image

import vitrail
from vitrail.api import export
from vitrail.data.images.box_preparation import BoxPreparation
from vitrail.deploy.predict import open_predictor
from vitrail.tasks.pose.people.skeleton import COCO
from vitrail.tasks.pose.predictor import PosePredictor
from vitrail.tasks.pose.weights import TrainedPose

MODELS = ("ViTPose-Ti", "ViTPose-S", "ViTPose-B")
BATCHES = (1, 16)
BOXES = [[40.0, 60.0, 160.0, 380.0], [220.0, 40.0, 180.0, 400.0], [420.0, 90.0, 150.0, 340.0]]
"""Of three people in a photograph of 640×480 pixels."""
WAYS = {
    "openvino fp32": {"to": "openvino"},
    "onnxruntime fp32": {"to": "onnx"},
    "openvino auto": {"to": "openvino", "precision": "auto"},
}
"""How a model is exported: by engine, and precision."""


def trained_pose(name: str) -> TrainedPose:
    """A model with random weights and COCO's joints."""
    torch.manual_seed(0)
    model = vitrail.create_model(name, num_classes=len(COCO.joints)).eval()
    return TrainedPose(model, COCO.complete, BoxPreparation.of_size(model.config.image_size))


def opened(trained: TrainedPose, folder: Path) -> dict[str, PosePredictor]:
    """The model in Python, in fp32, and behind engines."""
    found = {"torch fp32": open_predictor(trained)}
    for number, (way, arguments) in enumerate(WAYS.items()):
        place, figures = export(trained, folder / str(number), **arguments)
        kept = f" ({figures['precision']})" if "auto" in way else ""
        found[f"{way}{kept}"] = open_predictor(place, engine=way.split()[0])
    return found


def transformers_work(trained: TrainedPose, folder: Path) -> partial:
    """Return the output of transformers for pixels, with the same weights."""
    from transformers import VitPoseForPoseEstimation

    trained.save_pretrained(folder / "theirs")
    model = VitPoseForPoseEstimation.from_pretrained(folder / "theirs").eval()

    @torch.inference_mode()
    def heatmaps(pixels: torch.Tensor) -> torch.Tensor:
        answers: torch.Tensor = model(trained.preparation.normalize(pixels)).heatmaps
        return answers

    return partial(heatmaps)


def photograph(folder: Path) -> Path:
    """Noise that is smooth enough to be compressed as photographs are."""
    noise = np.random.default_rng(0).integers(0, 256, (60, 80, 3), dtype=np.uint8)
    file = folder / "noise.jpg"
    Image.fromarray(noise).resize((640, 480), Image.Resampling.BICUBIC).save(file, quality=92)
    return file


def main(only: list[str], picture: Path | None, *, quick: bool) -> str:
    """Both tables, in Markdown."""
    rounds, at_least = (4, 0.25) if quick else (12, 0.8)
    boxes, peers, others = [], [], []
    for name in MODELS:
        if only and name not in only:
            continue
        with tempfile.TemporaryDirectory() as place:
            folder, trained = Path(place), trained_pose(name)
            ways, file = opened(trained, folder), picture or photograph(folder)
            works = {
                f"{way} {count}": partial(vitrail.predict_poses, predictor, file, BOXES[:count])
                for way, predictor in ways.items()
                for count in (1, 3)
            }
            measured = side_by_side.measure(works, rounds=rounds, at_least=at_least)
            others.append(measured.others)
            for way in ways:
                one, three = (1000 * measured.seconds(f"{way} {count}") for count in (1, 3))
                boxes.append([name, way, f"{one:.1f}", f"{three:.1f}", measured.ratio(f"{way} 1", f"{way} 3")])
                sys.stderr.write(" ".join(boxes[-1]) + "\n")
            theirs = transformers_work(trained, folder)
            for batch in BATCHES:
                pixels = torch.randint(0, 256, (batch, 3, *trained.config.image_size), dtype=torch.uint8)
                given = {way: partial(predictor.heatmaps, pixels) for way, predictor in ways.items()}
                far = {way: (work() - theirs(pixels)).abs().max().item() for way, work in given.items()}
                given["transformers"] = partial(theirs, pixels)
                measured = side_by_side.measure(given, rounds=rounds, at_least=at_least)
                others.append(measured.others)
                for way in ways:
                    rates = [batch / measured.seconds(each) for each in (way, "transformers")]
                    cells = [
                        name,
                        str(batch),
                        way,
                        f"{rates[0]:.1f}",
                        f"{rates[1]:.1f}",
                        measured.ratio(way, "transformers"),
                        f"{far[way]:.0e}",
                    ]
                    peers.append(cells)
                    sys.stderr.write(" ".join(cells) + "\n")
    head = ["model", "Vitrail", "one box, ms", "three boxes, ms", "times"]
    beside = ["model", "boxes at a time", "Vitrail", "boxes/s", "transformers in fp32, boxes/s", "times", "largest difference"]
    tables = [side_by_side.table(head, boxes), side_by_side.table(beside, peers), side_by_side.note(*others)]
    return "\n".join(tables)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--only", nargs="*", default=[], help="these models alone")
    parser.add_argument("--photograph", type=Path, help="a picture of about 640×480 pixels")
    given = parser.parse_args()
    print(main(given.only, given.photograph, quick=given.quick))
