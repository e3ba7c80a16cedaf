"""Drawn shapes on a ground, with a mask of each image."""

from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = ("ground", "disc", "square")
COLORS = ((40, 90, 40), (220, 60, 60), (60, 90, 220))
TABLE = "index,name,red,green,blue\n" + "".join(
    f"{index},{name},{','.join(map(str, color))}\n" for index, (name, color) in enumerate(zip(CLASSES, COLORS, strict=True))
)


def drawn(number: int, size: tuple[int, int] = (48, 36)) -> np.ndarray:
    """The classes (H, W) of image ``number``: a disc and a square on the ground, with a border of void on the left."""
    width, height = size
    random = np.random.default_rng(number)
    y, x = np.mgrid[:height, :width] + 0.5
    mask = np.zeros((height, width), np.uint8)
    left, top = random.uniform(0.1, 0.6) * width, random.uniform(0.1, 0.6) * height
    mask[(np.abs(x - left) < height / 5) & (np.abs(y - top) < height / 5)] = 2
    mask[np.hypot(x - random.uniform(0.3, 0.9) * width, y - random.uniform(0.3, 0.9) * height) < height / 4] = 1
    mask[:, :2] = 255
    return mask


def picture_of(mask: np.ndarray) -> Image.Image:
    """An image whose colours show the classes; void is grey."""
    table = np.full((256, 3), 128, np.uint8)
    table[: len(COLORS)] = COLORS
    return Image.fromarray(table[mask])


def indexed(mask: np.ndarray) -> Image.Image:
    """A mask as an indexed image with the colours of the classes; Pillow cuts values off where the palette is shorter."""
    image = Image.fromarray(mask)
    image.putpalette([value for color in [*COLORS, *[(0, 0, 0)] * 253] for value in color])
    return image


def write_masks(root: Path, train: int = 4, val: int = 2, *, size: tuple[int, int] = (48, 36), inside: bool = False) -> Path:
    """Write ``train/images``, ``train/masks`` and so on, or with ``inside`` ``images/train``, and classes.csv; gives ``root``."""
    for split, count in (("train", train), ("val", val)):
        for number in range(count):
            mask = drawn(number + 100 * (split == "val"), size)
            for kind, image in (("images", picture_of(mask)), ("masks", indexed(mask))):
                folder = root / kind / split if inside else root / split / kind
                folder.mkdir(parents=True, exist_ok=True)
                image.save(folder / f"{number:02}.png")
    (root / "classes.csv").write_text(TABLE)
    return root
