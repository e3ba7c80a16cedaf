"""What many tests need: a small folder of images, and a tiny run trained on it."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from peers import declare_operators
from vitrail import api

OPERATORS = declare_operators()

TINY = {
    "model.name": "ViT-Ti/4",
    "model.image_size": 8,
    "model.dim": 16,
    "model.depth": 1,
    "model.heads": 2,
    "model.mlp_dim": 32,
    "training.epochs": 2,
    "training.batch_size": 8,
    "augmentation.crop": "none",
}


@pytest.fixture(scope="session")
def tiny() -> dict:
    """Settings, by dotted name, of a run of the ``scratch`` recipe that takes no time."""
    return dict(TINY)


@pytest.fixture(scope="session")
def pictures(tmp_path_factory) -> Path:
    """Three classes, without splits: eight images each, of 10×10 pixels."""
    folder = tmp_path_factory.mktemp("data") / "pictures"
    random = np.random.default_rng(0)
    for channel, name in enumerate(("red", "green", "blue")):
        (folder / name).mkdir(parents=True)
        for number in range(8):
            pixels = random.integers(0, 80, (10, 10, 3), dtype=np.uint8)
            pixels[..., channel] += 150
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    return folder


@pytest.fixture(scope="session")
def run(pictures, tmp_path_factory) -> api.Run:
    """A finished run on ``pictures``; tests must leave it as it is."""
    return api.train(
        pictures, tmp_path_factory.mktemp("runs") / "colours", **{**TINY, "optimizer.lr": 0.01, "training.epochs": 8}
    )
