"""Features of every image from a frozen model, computed once for a linear probe."""

import hashlib
import json
import math
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
    """Rows in a memory-mapped file, with the number of finished batches, so that an interrupted pass can continue.

    Args:
        file: path without a suffix; None for rows in memory.
        shape: (N, D), or with more dimensions behind N.
        mark: identifies weights and images; a file with another mark is overwritten.
        dtype: type of the rows.
        writes: False in all but the first of several processes that share one file, which the first has created before.
        hint: advice where the disk has no room for the rows.
    """

    def __init__(
        self,
        file: Path | None,
        shape: tuple[int, ...],
        mark: str,
        *,
        dtype: type = np.float32,
        writes: bool = True,
        hint: str = "free some space, or add --training.probe false",
    ):
        self.file, self.mark, self.writes, self.done, begun = file, mark, writes, 0, False
        if file is None:
            self.rows: np.ndarray = np.zeros(shape, dtype)
            return
        file.parent.mkdir(exist_ok=True)
        data, state = file.with_suffix(".npy"), file.with_suffix(".json")
        with suppress(OSError, ValueError, ModelFileError):  # a damaged file begins anew
            values = read_json(state)
            kept = np.lib.format.open_memmap(data, "r")
            begun = values.get("mark") == mark and kept.shape == shape and kept.dtype == dtype
            self.done = int(values.get("batches", 0)) if begun else 0
        with room_for(0 if begun else math.prod(shape) * np.dtype(dtype).itemsize, file.parent, hint=hint):
            self.rows = np.lib.format.open_memmap(data, "r+" if begun else "w+", dtype, shape)
            if hasattr(os, "posix_fallocate"):  # else a disk that fills up later would end the process without a word
                with data.open("r+b") as room:
                    os.posix_fallocate(room.fileno(), 0, data.stat().st_size)

    def save(self, done: int) -> None:
        """Record that the rows of ``done`` batches are complete."""
        if self.file is not None and isinstance(self.rows, np.memmap):
            self.rows.flush()
            if self.writes:
                write_json(self.file.with_suffix(".json"), {"mark": self.mark, "batches": done})


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

    Args are those of `fill_rows`; each process has a ``kept`` of its own, in memory where there are several.
    """
    fill_rows(read, loader, kept, device=device, view=view, on_batch=on_batch, group=group)
    found = group.all_reduce(torch.from_numpy(np.asarray(kept.rows)))
    if not found.isfinite().all():
        what = "the model's features are not finite (NaN or infinite)"
        raise ModelFileError(what, where="--from", hint="its weights or its preparation are damaged")
    return found


@torch.no_grad()
def fill_rows(
    read: Callable[[Tensor], Tensor],
    loader: EpochLoader,
    kept: FeatureFile,
    *,
    device: torch.device,
    view: int,
    on_batch: Callable[[int], None],
    group: Processes,
) -> None:
    """Write the features of a loader's images to their rows; of several processes each writes its part of every batch.

    Args:
        read: maps pixels, uint8 (B, C, H, W), to features (B, …).
        loader: loader of images, not shuffled.
        kept: file with the rows of an interrupted pass, which receives the rows of this one. The processes may share one file.
        device: device of ``read``.
        view: epoch number of the loader, which decides the augmentation.
        on_batch: receives the size of every batch; if it raises, finished rows stay in ``kept``.
        group: the processes.
    """
    done = common = kept.done
    try:
        for batch in group.in_step(loader.epoch(view, skip=done), len(loader) - done):
            common = done  # every process has come to this batch
            places = loader.places(done)
            start = done * loader.batch_size
            features = read(batch["images"].to(device)).float().cpu().numpy()
            kept.rows[start + places.start : start + places.stop] = features[: len(places)]
            done += 1
            if done % EVERY == 0:
                kept.save(done if group.count == 1 else common)
            on_batch(loader.size(done - 1))
        group.all_reduce_max(0)
        common = done
    finally:
        kept.save(done if group.count == 1 else common)


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
