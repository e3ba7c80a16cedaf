"""Images per second of a whole training step (forward, backward, AdamW), beside timm, transformers and vit-pytorch.

    python benchmarks/training_step.py [--quick]

Every model has random weights, the images are noise. Needs the peers that the extra dev installs.
"""

import argparse

import shapes
import side_by_side
import torch
import torch.nn.functional as F
from shapes import Shape
from side_by_side import PRECISION
from torch import nn

from vitrail.config.settings import RunSettings
from vitrail.data.images.preparation import Preparation
from vitrail.tasks.classification.labels.single_label import Classification
from vitrail.training.loop.learner import Learner

SHAPES = {
    "32 px, patch 4, 192/9/3, batch 128": (Shape(image_size=32, patch_size=4, dim=192, depth=9, heads=3, classes=10), 128),
    "ViT-Ti/16, 224 px, batch 16": (shapes.TINY, 16),
}


def vitrail_step(
    shape: Shape, batch: int, precision: str, *, device: str = "cpu", mode: str | None = None, **options: bool
) -> side_by_side.Work:
    """A step as `vitrail train` makes it, the counting of right answers and the check for NaN included.

    ``options`` are settings of `training`; ``mode`` is one of torch.compile, which `vitrail train` has no setting for.
    """
    model = shapes.vitrail(shape)
    settings = RunSettings.read(
        {
            "data": {"source": "noise"},
            "model": {"name": "ViT-Ti/16", **model.config.model_dump(mode="json")},
            "training": {"precision": precision, "device": device, **options},
        }
    )
    preparation = Preparation.standard(model.config.image_size)
    task = Classification(model.train(), preparation, [str(i) for i in range(shape.classes)])
    learner = Learner(settings, task, total=10**6, warmup=0)
    if mode is not None:
        learner.forward = torch.compile(learner.shared, mode=mode)
    images = torch.randint(0, 256, (batch, 3, shape.image_size, shape.image_size), dtype=torch.uint8, device=device)
    labels = torch.randint(0, shape.classes, (batch,), device=device)
    return lambda: learner.step({"images": images, "labels": labels}, done=0, size=batch, own=batch)


def step(
    model: nn.Module, shape: Shape, batch: int, *, precision: str = PRECISION, compiled: bool = False, device: str = "cpu"
) -> side_by_side.Work:
    """A peer's step, without anything that a step does not need."""
    optimizer = torch.optim.AdamW(model.to(device).train().parameters(), lr=1e-4, fused=True)
    forward = torch.compile(model) if compiled else model
    images = torch.randn(batch, 3, shape.image_size, shape.image_size, device=device)
    labels = torch.randint(0, shape.classes, (batch,), device=device)

    def work() -> None:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=precision == "bf16"):
            answers = forward(images)
        loss = F.cross_entropy(getattr(answers, "logits", answers).float(), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return work


def contenders(s: Shape, batch: int, *, quick: bool) -> dict[str, side_by_side.Work]:
    """Everybody's step, those that are to be compiled left out where it must be quick."""
    found = {
        "Vitrail fp32": vitrail_step(s, batch, "fp32"),
        f"Vitrail {PRECISION}": vitrail_step(s, batch, PRECISION),
        "timm fp32": step(shapes.timm(s), s, batch, precision="fp32"),
        f"timm {PRECISION}": step(shapes.timm(s), s, batch),
        f"transformers {PRECISION}": step(shapes.transformers(s), s, batch),
        f"vit-pytorch {PRECISION}": step(shapes.vit_pytorch(s), s, batch),
    }
    if not quick:
        found |= {
            f"Vitrail {PRECISION}, compiled": vitrail_step(s, batch, PRECISION, compile=True),
            f"timm {PRECISION}, compiled": step(shapes.timm(s), s, batch, compiled=True),
            f"vit-pytorch {PRECISION}, compiled": step(shapes.vit_pytorch(s), s, batch, compiled=True),
        }
    return found


def main(*, quick: bool) -> str:
    """The table for every shape, in Markdown."""
    rounds, at_least = (6, 0.7) if quick else (25, 1.0)
    parts = []
    for name, (shape, batch) in SHAPES.items():
        torch.manual_seed(0)
        works = contenders(shape, batch, quick=quick)
        operations = 3 * shape.operations  # a forward pass, and twice as many for the gradients
        parts.append(side_by_side.rates(name, works, batch, operations, rounds=rounds, at_least=at_least))
    return "\n".join(parts)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="nothing compiled, and fewer rounds")
    print(main(quick=parser.parse_args().quick))
