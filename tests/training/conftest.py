"""A trainer for a tiny model on a few images held in memory."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from vitrail.data.preparation import Preparation
from vitrail.data.sources import ImageData, Item
from vitrail.models.vit import ViT
from vitrail.training.loop import Trainer
from vitrail.training.run_folder import RunFolder
from vitrail.training.settings import RunSettings, merge, nested
from vitrail.weights.folder import TrainedModel

TINY = {
    "model": {
        "name": "tiny", "image_size": 8, "patch_size": 4, "channels": 1, "num_classes": 3, "dim": 16, "depth": 2,
        "heads": 2, "mlp_dim": 32,
    },
    "data": {"source": "shades"},
    "augmentation": {"horizontal_flip": 0},
    "optimizer": {"lr": 0.01},
    "schedule": {"warmup_epochs": 0},
    "training": {"epochs": 2, "batch_size": 8, "label_smoothing": 0},
}  # fmt: skip


@pytest.fixture(scope="session")
def shades() -> ImageData:
    """Dark, grey and bright noise: 22 images to learn from, an odd number, and 9 to validate on."""
    random = np.random.default_rng(0)
    items = []
    for index in range(31):
        pixels = random.integers(0, 90, (8, 8), dtype=np.uint8) + 80 * (index % 3)
        items.append(Item(f"shade-{index}", Image.fromarray(pixels.astype(np.uint8)), index % 3))
    return ImageData("shades", ["dark", "grey", "bright"], {"train": items[:22], "val": items[22:], "test": []})


@pytest.fixture
def make_trainer(shades, tmp_path):
    """``make_trainer("name", **{"training.epochs": 3})``: a trainer whose run folder has that name.

    ``teacher`` is a model to learn from. ``make_trainer.finished`` has trained to the end; ``make_trainer.reopen(trainer)``
    is a new one for the same folder.
    Making one seeds torch, so a run must follow before the next is made.
    """

    def make(name: str = "run", teacher: TrainedModel | None = None, **settings: Any) -> Trainer:
        resolved = RunSettings.read(merge(TINY, nested(settings)))
        folder = RunFolder.create(tmp_path / name, resolved, None)
        return reopen(folder, resolved, teacher)

    def reopen(folder: RunFolder, resolved: RunSettings, teacher: TrainedModel | None = None) -> Trainer:
        torch.manual_seed(resolved.training.seed)
        preparation = Preparation.standard(resolved.model.image_size, resolved.model.channels)
        return Trainer(resolved, ViT(resolved.model.config), preparation, shades, folder, teacher=teacher)

    def finished(name: str, **settings: Any) -> Trainer:
        trainer = make(name, **settings)
        trainer.run()
        return trainer

    make.finished = finished
    make.reopen = lambda trainer, teacher=None: reopen(RunFolder(Path(trainer.folder.path)), trainer.settings, teacher)
    return make
