"""Training and prediction of Swin-T with UPerNet beside transformers' model of the same weights, in turns.

    python benchmarks/segmentation.py [--quick]

Needs the peers that the extra dev installs.
"""

import argparse
import copy
import tempfile
from collections.abc import Iterator
from typing import Any

import side_by_side
import torch
import transformers
from side_by_side import PRECISIONS, Work

from vitrail import from_pretrained
from vitrail.config.settings import RunSettings
from vitrail.runtime.device import TYPES
from vitrail.tasks.segmentation.files.coding import Coding, Row
from vitrail.tasks.segmentation.predictor import in_python
from vitrail.tasks.segmentation.settings import SegmentationSettings
from vitrail.tasks.segmentation.task import Segmentation
from vitrail.tasks.segmentation.weights import TrainedSegmenter
from vitrail.training.loop.learner import Learner

CLASSES = 11
CROP, BATCH = 256, 4
PICTURE = 360, 480
"""Height and width of a picture that is predicted."""


def same_models() -> tuple[TrainedSegmenter, Any]:
    """Return Vitrail's Swin-T with UPerNet and transformers' with the same weights."""
    names = {str(number): f"class {number}" for number in range(CLASSES)}
    swin = transformers.SwinConfig(out_features=["stage1", "stage2", "stage3", "stage4"])
    theirs = transformers.UperNetForSemanticSegmentation(
        transformers.UperNetConfig(backbone_config=swin, id2label=names, auxiliary_in_channels=384)
    )
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        processor = transformers.SegformerImageProcessor(size={"height": CROP, "width": CROP})
        processor.save_pretrained(folder)
        ours = from_pretrained(folder)
    assert isinstance(ours, TrainedSegmenter)
    return ours, theirs.eval()


def vitrail_step(trained: TrainedSegmenter, images: torch.Tensor, masks: torch.Tensor, precision: str) -> Work:
    """Return a training step as `vitrail train` makes it."""
    model = copy.deepcopy(trained.model).train()
    settings = RunSettings.read(
        {
            "data": {"source": "masks"},
            "task": {"name": "segment"},
            "model": {"name": "UPerNet-Swin-T", "num_classes": CLASSES},
            "training": {"precision": precision, "device": "cpu"},
        }
    )
    coding = Coding.of(Row(name, number) for number, name in enumerate(trained.labels))
    task = Segmentation(model, trained.preparation, coding, SegmentationSettings())
    learner = Learner(settings, task, total=10**6, warmup=0)
    return lambda: learner.step({"images": images, "masks": masks}, done=0, size=BATCH, own=BATCH)


def transformers_step(model: Any, images: torch.Tensor, masks: torch.Tensor, precision: str) -> Work:
    """Return a training step of transformers' model, whose loss has the auxiliary head's in it."""
    model = copy.deepcopy(model).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    pixels = images.float() / 127.5 - 1

    def work() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
            loss = model(pixels, labels=masks).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return work


def predictions(trained: TrainedSegmenter, theirs: Any) -> dict[str, Work]:
    """Return the prediction of one picture's mask by both, in each precision."""
    picture = torch.randint(0, 256, (1, 3, *PICTURE), dtype=torch.uint8)
    works = dict[str, Work]()
    for precision in PRECISIONS:
        predictor = in_python(trained, precision)
        works[f"Vitrail {precision}"] = lambda predictor=predictor: predictor.compute([picture[0].numpy()], 1)
        works[f"transformers {precision}"] = _predicted(theirs, picture, precision)
    return works


def _predicted(model: Any, picture: torch.Tensor, precision: str) -> Work:
    model = copy.deepcopy(model).to(TYPES[precision])

    @torch.inference_mode()
    def work() -> torch.Tensor:
        pixels = (picture.float() / 127.5 - 1).to(TYPES[precision])
        return model(pixels).logits.argmax(dim=1)  # at the size of the picture

    return work


def tables(*, quick: bool) -> Iterator[str]:
    """Yield the tables of training and of prediction, in Markdown."""
    torch.manual_seed(0)
    ours, theirs = same_models()
    images = torch.randint(0, 256, (BATCH, 3, CROP, CROP), dtype=torch.uint8)
    masks = torch.randint(0, CLASSES, (BATCH, CROP, CROP))
    steps = dict[str, Work]()
    for precision in PRECISIONS:
        steps[f"Vitrail {precision}"] = vitrail_step(ours, images, masks, precision)
        steps[f"transformers {precision}"] = transformers_step(theirs, images, masks, precision)
    rounds = 4 if quick else 14
    for name, works, count in (
        (f"training step, {BATCH} crops of {CROP}×{CROP}", steps, BATCH),
        (f"prediction of a picture of {PICTURE[1]}×{PICTURE[0]}", predictions(ours, theirs), 1),
    ):
        yield side_by_side.beside(name, works, count, "transformers", rounds=rounds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    for text in tables(quick=parser.parse_args().quick):
        print(text, flush=True)
