"""Folders of small images, for what becomes of folders."""

import hashlib
from pathlib import Path

from PIL import Image


def fill(folder: Path, count: int = 1, suffix: str = ".png") -> Path:
    """A folder with ``count`` small images, no two of them alike."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        colour = hashlib.blake2b(f"{folder}/{number}".encode(), digest_size=12).digest()
        Image.frombytes("RGB", (2, 2), colour).save(folder / f"{number}{suffix}")
    return folder


def flat(folder: Path, **counts: int) -> Path:
    """A folder of class folders, each with so many."""
    for name, count in counts.items():
        fill(folder / name, count)
    return folder


def run_in(folder: Path, *files: str) -> Path:
    """A folder with the files by which a run is known, or others, and a picture of it."""
    fill(folder / "plots")
    for name in files or ("status.json", "config.yaml"):
        (folder / name).write_text("{}")
    return folder
