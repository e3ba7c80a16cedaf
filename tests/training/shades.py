"""A tiny model, and a few images to train it on."""

import numpy as np
from PIL import Image

from vitrail.data.readers.sources import ImageData, Item

SHADES = {
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


def shades_data() -> ImageData:
    """Dark, grey and bright noise: 22 images to learn from, an odd number, and 9 to validate on."""
    random = np.random.default_rng(0)
    items = []
    for index in range(31):
        pixels = random.integers(0, 90, (8, 8), dtype=np.uint8) + 80 * (index % 3)
        items.append(Item(f"shade-{index}", Image.fromarray(pixels.astype(np.uint8)), index % 3))
    return ImageData("shades", ["dark", "grey", "bright"], {"train": items[:22], "val": items[22:], "test": []})
