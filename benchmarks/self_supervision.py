"""Training steps of DINO beside a plain loop with timm's ViT, in turns, and the cost of small crops.

    python benchmarks/self_supervision.py [--quick]

The plain loop is what DINO's authors and others write: crops of one size in one pass, a loss over pairs of views, and a loop over
the weights for the teacher. Both have two large crops of 224×224 and six small ones of 96×96. Needs the peers of the extra dev.
"""

import argparse
import copy
from typing import Any

import side_by_side
import torch
import torch.nn.functional as F
from side_by_side import PRECISIONS, Work
from torch import nn

from vitrail.config.settings import RunSettings
from vitrail.data.images.preparation import Preparation
from vitrail.models.configs.base import ModelConfig
from vitrail.models.registry import build, model_config
from vitrail.tasks.dino.settings import DinoSettings
from vitrail.tasks.dino.task import Dino
from vitrail.training.loop.learner import Learner

BATCH, LARGE, SMALL, OUTPUTS = 4, 224, 96, 4096
SMALL_CROPS = 6


def crops() -> dict[str, torch.Tensor]:
    """Return a batch of crops as a run has it, uint8."""
    return {
        "images": torch.randint(0, 256, (BATCH, 2, 3, LARGE, LARGE), dtype=torch.uint8),
        "small": torch.randint(0, 256, (BATCH, SMALL_CROPS, 3, SMALL, SMALL), dtype=torch.uint8),
    }


def vitrail_learner(precision: str) -> Learner:
    """Return what makes the steps of `vitrail train --task dino`."""
    config: ModelConfig = model_config("ViT-Ti/16").changed(num_classes=0)
    settings = RunSettings.read(
        {
            "data": {"source": "noise"},
            "task": {"name": "dino", "out_dim": OUTPUTS},
            "model": {"name": "ViT-Ti/16", **config.model_dump(mode="json")},
            "optimizer": {"clip_norm": 3.0},
            "training": {"precision": precision, "device": "cpu"},
        }
    )
    assert isinstance(settings.task, DinoSettings)
    task = Dino(build(config).train(), Preparation.standard((LARGE, LARGE)), settings.task, outputs=OUTPUTS)  # type: ignore[arg-type]
    return Learner(settings, task, total=10**6, warmup=0)


def vitrail_step(precision: str, batch: dict[str, torch.Tensor]) -> Work:
    learner = vitrail_learner(precision)
    return lambda: learner.step(batch, done=1, size=BATCH, own=BATCH)


class PlainHead(nn.Module):
    """A projection as the authors write it."""

    def __init__(self, dim: int):
        super().__init__()
        layers = [nn.Linear(dim, 2048), nn.GELU(), nn.Linear(2048, 2048), nn.GELU(), nn.Linear(2048, 256)]
        self.mlp = nn.Sequential(*layers)
        self.last = nn.utils.parametrizations.weight_norm(nn.Linear(256, OUTPUTS, bias=False))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(F.normalize(self.mlp(x), dim=-1))


def plain_step(precision: str, batch: dict[str, torch.Tensor]) -> Work:
    """Return a step of a plain loop; its crops are normalized already."""
    import timm  # after side_by_side has declared the operators that it asks for

    vit: Any = timm.create_model("vit_tiny_patch16_224", num_classes=0, dynamic_img_size=True)
    student = nn.Sequential(vit, PlainHead(vit.num_features)).train()
    teacher = copy.deepcopy(student).requires_grad_(False)
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-4, fused=True)
    centre = torch.zeros(1, OUTPUTS)
    large, small = (batch[name].flatten(0, 1).float() / 127.5 - 1 for name in ("images", "small"))

    def work() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
            with torch.no_grad():
                taught = teacher(large)
            outputs = [*student(large).float().unflatten(0, (BATCH, 2)).unbind(1)]
            outputs += student(small).float().unflatten(0, (BATCH, SMALL_CROPS)).unbind(1)
        targets = ((taught.float() - centre) / 0.04).softmax(dim=-1).unflatten(0, (BATCH, 2)).unbind(1)
        losses = [
            -(target * (output / 0.1).log_softmax(dim=-1)).sum(dim=-1).mean()
            for t, target in enumerate(targets)
            for s, output in enumerate(outputs)
            if s != t
        ]
        loss = torch.stack(losses).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(student.parameters(), 3.0)
        optimizer.step()
        with torch.no_grad():
            centre.mul_(0.9).add_(taught.float().mean(dim=0, keepdim=True), alpha=0.1)
            for own, average in zip(student.parameters(), teacher.parameters(), strict=True):
                average.mul_(0.996).add_(own, alpha=0.004)

    return work


def parts(precision: str, batch: dict[str, torch.Tensor]) -> dict[str, Work]:
    """Return the passes of all crops together, of the large ones, and of the small ones."""
    learner = vitrail_learner(precision)
    task: Any = learner.task

    def passed(crops: dict[str, torch.Tensor]) -> Work:
        def work() -> None:
            with learner.precision():
                loss = task(crops)["loss"]
            loss.backward()

        return work

    def small() -> None:
        with learner.precision():
            outputs = task.project(task.preparation.normalize(batch["small"].flatten(0, 1))).outputs
        outputs.square().mean().backward()

    return {"all": passed(batch), "large": passed({"images": batch["images"]}), "small": small}


def main(*, quick: bool) -> None:
    torch.manual_seed(0)
    rounds, batch = 4 if quick else 14, crops()
    steps = dict[str, Work]()
    for precision in PRECISIONS:
        steps[f"Vitrail {precision}"] = vitrail_step(precision, batch)
        steps[f"timm {precision}"] = plain_step(precision, batch)
    print(side_by_side.beside(f"training step, {BATCH} images", steps, BATCH, "timm", rounds=rounds), flush=True)
    for precision in PRECISIONS:
        measured = side_by_side.measure(
            {f"Vitrail {name}": work for name, work in parts(precision, batch).items()}, rounds=rounds
        )
        whole, large, small = (measured.seconds(f"Vitrail {name}") for name in ("all", "large", "small"))
        ratio = whole / (large + small)
        print(f"{precision}: all crops together take {ratio:.2f} times as long as the large and the small ones alone", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    main(quick=parser.parse_args().quick)
