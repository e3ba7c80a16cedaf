"""Features of every image from a frozen model, computed once for a linear probe."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from vitrail.config.run_files import FEATURES
from vitrail.data.images.preparation import Preparation
from vitrail.data.items import ImageData
from vitrail.data.loading.loader import EpochLoader
from vitrail.errors import ModelFileError
from vitrail.files import room_for, write_json
from vitrail.models.base import Model
from vitrail.runtime.processes import Processes
from vitrail.training.runs.resuming import fingerprint
from vitrail.training.runs.run_folder import RunFolder
from vitrail.weights.formats.safe_files import read_json

EVERY = 50
"""Batches between two saves to disk."""


class FeatureFile:
    """float32 rows in a memory-mapped file, with the number of finished batches, so that an interrupted pass can continue.

    Args:
        file: path without a suffix; None for rows in memory.
        shape: (N, D).
        mark: identifies weights and images; a file with another mark is overwritten.
    """

    def __init__(self, file: Path | None, shape: tuple[int, int], mark: str):
        self.file, self.mark, self.done = file, mark, 0
        if file is None:
            self.rows = np.zeros(shape, np.float32)
            return
        file.parent.mkdir(exist_ok=True)
        data, state = file.with_suffix(".npy"), file.with_suffix(".json")
        with suppress(OSError, ValueError, ModelFileError):  # a damaged file is overwritten
            begun = read_json(state)
            kept = np.lib.format.open_memmap(data, "r")
            if begun.get("mark") == mark and kept.shape == shape and kept.dtype == np.float32:
                self.done = int(begun.get("batches", 0))
        with room_for(4 * shape[0] * shape[1], file.parent, hint="free some space, or add --training.probe false"):
            self.rows = np.lib.format.open_memmap(data, "r+" if self.done else "w+", np.float32, shape)
            if hasattr(os, "posix_fallocate"):  # a disk that filled up later would end the process without a message
                with data.open("r+b") as room:
                    os.posix_fallocate(room.fileno(), 0, data.stat().st_size)

    def save(self, done: int) -> None:
        """Record that the rows of ``done`` batches are complete."""
        if self.file is not None and isinstance(self.rows, np.memmap):
            self.rows.flush()
            write_json(self.file.with_suffix(".json"), {"mark": self.mark, "batches": done})


@torch.no_grad()
def read_features(
    read: Callable[[Tensor], Tensor],
    loader: EpochLoader,
    kept: FeatureFile,
    *,
    device: torch.device,
    view: int,
    on_batch: Callable[[int], None],
    group: Processes,
) -> Tensor:
    """Return the features of a loader's images in their order, float32 (N, D); several processes share the work.

    Args:
        read: maps pixels, uint8 (B, C, H, W), to features (B, D).
        loader: loader of images, not shuffled.
        kept: file with the rows of an interrupted pass, which receives the rows of this one.
        device: device of ``read``.
        view: epoch number of the loader, which decides the augmentation.
        on_batch: receives the size of every batch; if it raises, finished rows stay in ``kept``.
        group: the processes.
    """
    done = kept.done
    try:
        for batch in group.in_step(loader.epoch(view, skip=done), len(loader) - done):
            places = loader.places(done)
            start = done * loader.batch_size
            features = read(batch["images"].to(device)).float().cpu().numpy()
            kept.rows[start + places.start : start + places.stop] = features[: len(places)]
            done += 1
            if done % EVERY == 0:
                kept.save(done)
            on_batch(loader.size(done - 1))
    finally:
        kept.save(done)
    found = group.all_reduce(torch.from_numpy(np.asarray(kept.rows)))
    if not found.isfinite().all():
        what = "the model's features are not finite (NaN or infinite)"
        raise ModelFileError(what, where="--from", hint="its weights or its preparation are damaged")
    return found


def remove_features(folder: RunFolder) -> None:
    """Delete the saved features, once a model with the trained head is saved."""
    if folder.writes:
        shutil.rmtree(folder.path / FEATURES, ignore_errors=True)


def mark_of(model: Model, preparation: Preparation, data: ImageData) -> str:
    """Return a digest of the weights, the preparation and the images, which identifies the features."""
    digest = hashlib.sha256(json.dumps([fingerprint(data), preparation.model_dump(mode="json")]).encode())
    for tensor in model.state_dict().values():
        digest.update(tensor.contiguous().numpy())
    return digest.hexdigest()
