"""Run by two processes side by side: what they make of a run together, beside what one makes of it alone.

``python together.py FOLDER`` with the environment that torchrun gives; the first process writes FOLDER/results.json.
"""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
from shades import SHADES, shades_data

from vitrail.config.configuration import deep_merge, nested, resolve
from vitrail.config.settings import RunSettings
from vitrail.data.images.preparation import Preparation
from vitrail.errors import DataError
from vitrail.models.registry import build
from vitrail.runtime.observer import Observer
from vitrail.runtime.processes import ALONE, Processes, open_processes
from vitrail.runtime.signals import InterruptedRunError
from vitrail.training.loop import parallel
from vitrail.training.loop.trainer import Trainer
from vitrail.training.run_data import run_data_of
from vitrail.training.runs.checkpoint import checkpoints
from vitrail.training.runs.create_task import create_task
from vitrail.training.runs.run_folder import RunFolder

sys.path.append(str(Path(__file__).parents[1]))
from stick_figures import write_people
from tiny_pose import FIELDS
from words import TINY_TRANSLATOR, write_pairs

SGD = {"optimizer.name": "sgd", "optimizer.lr": 0.1, "schedule.warmup_epochs": 0}
TEN_STEPS = {"training.epochs": 2, "training.batch_size": 4}
"""Many steps in few epochs, each of which ends with a validation and two model folders."""
CASES: dict[str, dict[str, Any]] = {
    "as it is": {},
    "average": {"training.ema": 0.9},
    "mean of two epochs": {"training.average": 2},
    "accumulated": {"training.accumulate": 3},
    "computed again": {"training.recompute": True},
    "a last batch of one image": {"training.batch_size": 3},
    "mixed": {
        "training.epochs": 4,
        "training.batch_size": 8,
        "augmentation.mixup": 0.4,
        "augmentation.cutmix": 1.0,
        "augmentation.repeats": 2,
    },
    "balanced": {"data.balance": "loss"},
    "low rank": {"training.tune": "lora"},
    "head alone": {"training.tune": "head"},
    "workers": {"data.workers": 1},
    "growing images": {"schedule.first_image_size": 4},
    "a frozen part": {"optimizer.layers": {"embedding": {"lr": 0}}},
}
TEXTS: dict[str, Any] = {
    **{name: value for name, value in TINY_TRANSLATOR.items() if name not in ("optimizer.lr", "training.epochs")},
    "optimizer.name": "sgd", "training.batch_size": 70, "training.epochs": 1,
}  # fmt: skip
"""Batches of tokens, of which a process may have fewer than the other."""
POSES: dict[str, Any] = {
    "task.name": "pose", "model.name": "ViTPose-Ti-simple", **{f"model.{name}": value for name, value in FIELDS.items()},
    "task.smaller_sizes": (0.75,), "training.epochs": 2, "training.batch_size": 4, "optimizer.lr": 1e-3,
}  # fmt: skip
DIFFUSION: dict[str, Any] = {
    "task.name": "diffusion", "task.best": "kernel", "data.source": "digits", "model.name": "DiT-S/2", "model.image_size": 8,
    "model.channels": 1, "model.dim": 16, "model.depth": 1, "model.heads": 2, "model.mlp_dim": 32, "model.objective": "flow",
    "model.learned_variance": False, "augmentation.horizontal_flip": 0, "training.epochs": 1, "training.batch_size": 119,
}  # fmt: skip
"""The model makes images at the end of an epoch, beside the passes of a step and of the validation."""
DINO: dict[str, Any] = {
    "task.name": "dino", "data.source": "digits", "model.name": "ViT-Ti/4", "model.image_size": 8, "model.channels": 1,
    "model.dim": 16, "model.depth": 1, "model.heads": 2, "model.mlp_dim": 32, "task.hidden_dim": 32, "task.bottleneck_dim": 16,
    "task.out_dim": 32, "task.small_crops": 1, "task.patches": 0.5, "augmentation.crop": "resized", "training.epochs": 1,
    "training.batch_size": 119,
}  # fmt: skip
"""The teacher and its centres are of all processes."""
READ_ALIKE = ("mixed", "balanced", "workers")
"""Cases of what each process reads, which is the same whichever way they share the parameters."""
KEYS_WITHOUT_BIAS = {"model.qkv_bias": False, "optimizer.lr": 1e-3}
"""The gradient of the keys' bias is 0, a softmax being what it is, and Adam makes whole steps of what rounding leaves of it."""
BATCH_NORM = {"model.embedding": "pooled-stem", "training.batch_size": 5, "training.ema": 0.9}
ALONE_RUNS: dict[str, Trainer] = {}
RANDOM = {"model.dropout": 0.1, "model.patch_dropout": 0.25, "model.stochastic_depth": 0.2, "training.ema": 0.9}


class Stopping(Observer):
    """A signal comes to one of the processes, in its fifth step."""

    def __init__(self, trainer: Trainer, rank: int):
        self.trainer, self.rank = trainer, rank

    def step(self, epoch: int, sums: Any) -> None:
        if self.trainer.done == 5 and self.trainer.group.rank == self.rank:
            self.trainer.signals.received = 15


QUICK = ["as it is", "a last batch of one image"]
"""The cases of every run of the tests."""


def cases(kind: str, *, every: bool = True) -> list[str]:
    """The cases that are tried with a way to share the parameters."""
    return [name for name in CASES if kind == "ddp" or name not in READ_ALIKE] if every else QUICK


def make(folder: Path, group: Processes, *, new: bool = True, **settings: Any) -> Trainer:
    given = nested(settings)
    with_task = "task" in given
    resolved = resolve({}, {}, given) if with_task else RunSettings.read(deep_merge(SHADES, given))
    if new and group.first:
        RunFolder.create(folder, resolved, None)
    group.all_reduce_max(0)
    torch.manual_seed(resolved.training.seed)
    run = RunFolder(folder, writes=group.first)
    if with_task:
        kind = run_data_of(resolved)
        data = kind.open_source(resolved)
        resolved = kind.complete(resolved, data, None)
        preparation = kind.preparation_of(resolved, data)
    else:
        data = shades_data()
        preparation = Preparation.standard(resolved.model.image_size, resolved.model.channels)
    task = create_task(resolved, build(resolved.model.config), preparation, data)
    return Trainer(resolved, task, data, run, group=group)


def weights(trainer: Trainer) -> dict[str, torch.Tensor]:
    return parallel.whole(trainer.state()[0]["model"])


def difference(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    assert one.keys() == other.keys()
    return max((one[name] - other[name]).abs().max().item() for name in one)


def rows(trainer: Trainer) -> list[dict[str, float]]:
    """The metrics of every epoch, and of the best model, which may be a mean of several."""
    clock, found = ("seconds", "images_per_second", "tokens_per_second"), [*trainer.rows, trainer.best or {}]
    return [{k: v for k, v in row.items() if k not in clock} for row in found]


def trained_alone(folder: Path, settings: dict[str, Any]) -> Trainer:
    """The run of one process alone, which is the same whichever way several would share its work."""
    known = repr({**settings, "training.parallel": None})
    if known not in ALONE_RUNS:
        ALONE_RUNS[known] = make(folder, ALONE, **settings)
        ALONE_RUNS[known].run()
    return ALONE_RUNS[known]


def beside_one(folder: Path, group: Processes, settings: dict[str, Any]) -> dict[str, float]:
    """Largest difference of a parameter and of a metric after ten steps."""
    together = make(folder / "together", group, **settings)
    together.run()
    found = weights(together)
    if not group.first:
        return {}
    alone = trained_alone(folder / "alone", settings)
    metrics = max(abs(a[k] - b[k]) for a, b in zip(rows(alone), rows(together), strict=True) for k in a)
    return {"weights": difference(weights(alone), found), "metrics": metrics, "steps": together.done}


def with_batch_norm(folder: Path, group: Processes, kind: str) -> dict[str, Any]:
    """How far the processes are from each other, and from one alone, after two epochs of batches of five images.

    One process has two images of every batch. One alone is comparable where nothing learns: then the first BatchNorm sees the
    same in both.
    """
    settings = {**TEN_STEPS, **BATCH_NORM, "training.parallel": kind}
    trainer = make(folder / "learning", group, **settings)
    trainer.run()
    state = {name: tensor for part in ("model", "average") for name, tensor in parallel.whole(trainer.state()[0][part]).items()}
    trainer.learner.evaluated.eval()
    images = torch.randint(0, 256, (9, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    state["logits"] = trainer.learner.evaluated.answer({"images": images})["logits"].detach()
    states = group.all_gather(state)

    unmoved = {**settings, "optimizer.lr": 1e-30}
    still = make(folder / "still", group, **unmoved)
    still.run()
    alone = trained_alone(folder / f"alone-{group.rank}", unmoved)
    means = [weights(each)["embedding.first.1.running_mean"] for each in (still, alone)]
    batches = weights(trainer)["embedding.first.1.num_batches_tracked"].item()
    return {
        "processes": difference(*states),
        "one": (means[0] - means[1]).abs().max().item(),
        "moved": means[0].abs().max().item(),
        "batches": [batches, trainer.done],
    }


def interrupted(folder: Path, group: Processes, kind: str) -> dict[int, Any]:
    """A run whose second process gets a signal, resumed by two processes and by one, beside one that went on."""
    settings = {**RANDOM, "training.parallel": kind}
    unbroken = make(folder / "unbroken", group, **settings)
    unbroken.run()
    broken, code = make(folder / "broken", group, **settings), 0
    try:
        broken.run(Stopping(broken, rank=1))
    except InterruptedRunError as error:
        code = error.exit_code
    expected = weights(unbroken)
    if group.first:
        shutil.copytree(folder / "broken", folder / "copy")
    together = resumed(folder / "broken", group, expected, settings)
    alone = resumed(folder / "copy", ALONE, expected, settings) if group.first else {}
    return {2: {"code": code, **together}, 1: alone}


def resumed(folder: Path, group: Processes, expected: dict[str, torch.Tensor], settings: dict[str, Any]) -> dict[str, Any]:
    """What becomes of a run that goes on."""
    trainer = make(folder, group, new=False, **settings)
    trainer.restore()
    at = trainer.done
    trainer.run()
    kept = [path.name for path in checkpoints(folder)]
    return {"at": at, "weights": difference(expected, weights(trainer)), "done": trainer.done, "kept": kept}


def unreadable(folder: Path, group: Processes) -> str:
    """What both processes say of an image that only the second one meets."""
    trainer = make(folder / "unreadable", group)
    loader = trainer.train_loader
    read = loader.dataset.batch

    def batch(keys: Any, own: Any) -> Any:
        if trainer.done == 2 and group.rank == 1:
            raise DataError("cannot read the image", where="a.png")
        return read(keys, own)

    loader.dataset.batch = batch
    try:
        trainer.run()
    except DataError as error:
        return f"{error.where} {trainer.done} {[p.name for p in checkpoints(folder / 'unreadable')]}"
    return "nothing"


def main(folder: Path, *, every: bool) -> None:
    torch.set_num_threads(1)
    os.fsync = lambda file: None  # type: ignore[assignment]  # no power is lost here
    results: dict[str, Any] = {}
    with open_processes() as group:
        pairs = folder / f"{group.rank}/pairs.tsv"
        pairs.parent.mkdir()
        write_pairs(pairs)
        keypoints = write_people(pairs.parent, 30)
        for kind in ("ddp", "fsdp"):
            for name in cases(kind, every=every):
                settings = {**SGD, **TEN_STEPS, **CASES[name], "training.parallel": kind}
                results[f"{kind} {name}"] = beside_one(folder / f"{kind} {name}", group, settings)
            for name in ("adamw", "muon") if every else ("adamw",):
                settings = {**TEN_STEPS, **KEYS_WITHOUT_BIAS, "optimizer.name": name, "training.parallel": kind}
                results[f"{kind} {name}"] = beside_one(folder / f"{kind} {name}", group, settings)
            features = {**SGD, **DINO, "training.parallel": kind}
            results[f"{kind} dino"] = beside_one(folder / f"{kind} dino", group, features)
            if every or kind == "ddp":
                texts = {**SGD, **TEXTS, "data.source": str(pairs), "training.parallel": kind}
                results[f"{kind} texts"] = beside_one(folder / f"{kind} texts", group, texts)
                noise = {**SGD, **DIFFUSION, "training.parallel": kind}
                results[f"{kind} diffusion"] = beside_one(folder / f"{kind} diffusion", group, noise)
            if every:
                poses = {**SGD, **POSES, "data.source": str(keypoints), "training.parallel": kind}
                results[f"{kind} poses"] = beside_one(folder / f"{kind} poses", group, poses)
            if every or kind == "ddp":
                results[f"{kind} batch norm"] = with_batch_norm(folder / f"{kind} batch norm", group, kind)
            found = interrupted(folder / f"{kind} interrupted", group, kind)
            for count in (2, 1):
                results[f"{kind} resumed by {count}"] = found[count]
        said = group.all_gather(unreadable(folder, group))
    if group.first:
        (folder / "results.json").write_text(json.dumps({**results, "unreadable": said}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), every="all" in sys.argv)
