"""A trainer for a tiny model on a few images held in memory."""

from pathlib import Path
from typing import Any

import pytest
import torch
from shades import TINY, shades_data

from vitrail.data.preparation import Preparation
from vitrail.data.sources import ImageData
from vitrail.models.vit import ViT
from vitrail.training.loop import Trainer
from vitrail.training.run_folder import RunFolder
from vitrail.training.settings import RunSettings, merge, nested
from vitrail.weights.folder import TrainedModel


@pytest.fixture(scope="session")
def shades() -> ImageData:
    """See `shades_data`."""
    return shades_data()


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
