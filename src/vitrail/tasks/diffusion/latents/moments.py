"""Latents of images: encoded once before training, as mean and deviation, and drawn anew from them in every epoch."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitrail.config.run_files import FEATURES
from vitrail.data.checks.duplicates import digest_of
from vitrail.data.images.augment import Augmentation, SampleGenerator
from vitrail.data.images.plan import Plan
from vitrail.data.items import Item
from vitrail.data.loading.dataset import ImageDataset
from vitrail.errors import ModelFileError
from vitrail.files import write_json
from vitrail.tasks.diffusion.latents.autoencoder import drawn_latents, moments_of
from vitrail.tasks.diffusion.latents.vae_folder import WEIGHTS, VaeFolder
from vitrail.training.finetune.features import FeatureFile, fill_rows
from vitrail.training.loop.clock import OutOfTimeError
from vitrail.training.run_data import BeforeSteps
from vitrail.weights.formats.safe_files import read_json

FLIPPED = Augmentation(horizontal_flip=1)
NO_TIME = "there is no time to encode every image once: images are encoded in every step"
ROOM = "free some space, or take fewer or smaller images"


class Latents:
    """A VAE, and moments of images that it has encoded: mean and deviation, float16 (2C, h, w) each.

    Moments take half of the memory in float16, whose error is 1/2,000 of a value: the VAE's own error is far larger.
    """

    def __init__(self, vae: VaeFolder):
        self.vae = vae
        self.stored: dict[bool, _Stored] = {}
        """Moments of images as they are, and of their mirror images."""

    def moments(self, name: str, *, flipped: bool) -> np.ndarray | None:
        """Return the moments of an image or of its mirror image; None where it is not encoded."""
        stored = self.stored.get(flipped)
        return None if stored is None or name not in stored.rows else stored.moments[stored.rows[name]]

    def images(self, values: Tensor, noise: Tensor, preparation: Any) -> Tensor:
        """Return latents (B, C, h, w) of moments, or of pixels, uint8 (B, C, H, W), which are encoded now."""
        moments = moments_of(self.vae, preparation.normalize(values)) if values.dtype == torch.uint8 else values
        return drawn_latents(self.vae, moments, noise)


class _Stored:
    """Moments in a memory-mapped file, opened anew in every process that reads them.

    Args:
        file: float16 (N, 2C, h, w).
        names: of the images.
    """

    def __init__(self, file: Path, names: Sequence[str]):
        self.file, self.rows = file, {name: row for row, name in enumerate(names)}
        self._moments: np.ndarray | None = None

    @property
    def moments(self) -> np.ndarray:
        """The moments, (N, 2C, h, w)."""
        if self._moments is None:
            self._moments = np.load(self.file, mmap_mode="r")
        return self._moments

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_moments": None}


class LatentDataset(ImageDataset):
    """Images of which a batch has the moments, where they are stored, and else the pixels; flips are drawn alike for both."""

    latents: Latents

    def _planned(self, number: int, random: SampleGenerator) -> tuple[np.ndarray, Plan | None]:
        name = self.items[number].name
        if self.latents.moments(name, flipped=False) is None:
            return super()._planned(number, random)
        steps = self.augmentation.steps(self.preparation, random)  # a flip or nothing
        moments = self.latents.moments(name, flipped=bool(steps))
        assert moments is not None
        return moments, None


def encode_once(work: BeforeSteps) -> None:
    """Encode the images to learn from, with their mirror images if they are flipped, and those of the validation.

    Moments stand in the run folder; a run that goes on uses them, where images and VAE are the same.

    Raises:
        ModelFileError: the VAE is another one than the run was begun with.
        OutOfTimeError: encoding takes more than half of the time that is left.
    """
    task, learned, compared, group = work.learner.task, work.samples, work.validation, work.learner.group
    latents, folder = task.latents, work.folder.path / FEATURES
    assert isinstance(latents, Latents) and isinstance(learned, LatentDataset) and isinstance(compared, LatentDataset)
    with group.together():
        digest = _require_same_vae(latents.vae, folder, writes=group.first)
    every = {item.name: item for item in (*learned.items, *compared.items)}  # without validation images these are the same
    passes: dict[bool, tuple[Sequence[Item], Augmentation | None]] = {False: (list(every.values()), None)}
    if learned.augmentation.horizontal_flip:
        passes[True] = learned.items, FLIPPED
    work.observer.begin("encoding images", sum(len(items) for items, _ in passes.values()))
    stored = {}
    try:
        for flipped, (items, augmentation) in passes.items():
            file = folder / ("flipped" if flipped else "latents")
            _encode(work, file, task.dataset(items, augmentation), digest)
            stored[flipped] = _Stored(file.with_suffix(".npy"), [item.name for item in items])
    except OutOfTimeError:
        raise OutOfTimeError(NO_TIME) from None
    latents.stored = stored


def _encode(work: BeforeSteps, file: Path, images: Any, digest: str) -> None:
    """Write the moments of images to a file, those that are missing there; several processes write one file."""
    learner, loader, group = work.learner, work.loader_of(images), work.learner.group
    task: Any = learner.task
    vae, config = task.latents.vae, task.config
    shape = len(images), 2 * config.channels, *config.image_size
    preparation = images.preparation
    about = [digest, preparation.model_dump(mode="json"), loader.batch_size, [item.name for item in images.items]]
    mark = hashlib.sha256(json.dumps([*about, digest_of(item.image for item in images.items)]).encode()).hexdigest()

    def opened() -> FeatureFile:
        return FeatureFile(file, shape, mark, dtype=np.float16, writes=group.first, hint=ROOM)

    with group.together():
        kept = opened() if group.first else None
        if kept is not None:
            kept.save(kept.done)
    with group.together():
        kept = kept or opened()
    work.observer.advance(min(len(images), kept.done * loader.batch_size))
    try:
        fill_rows(
            lambda pixels: moments_of(vae, preparation.normalize(pixels)),
            loader, kept, device=learner.device, view=0, on_batch=work.on_batch, group=group,
        )  # fmt: skip
    finally:
        loader.close()


def _require_same_vae(vae: VaeFolder, folder: Path, *, writes: bool) -> str:
    """Return the digest of the VAE's weights, which the run folder keeps; raises `ModelFileError` where it has another."""
    with (vae.path / WEIGHTS).open("rb") as weights:
        digest = hashlib.file_digest(weights, "sha256").hexdigest()
    file = folder / "vae.json"
    if file.exists():
        if read_json(file).get("sha256") != digest:
            hint = "bring back the one that the run was begun with, or name it: vitrail resume RUN --task.latents FOLDER"
            raise ModelFileError("the weights of the VAE are not those that the run was begun with", where=vae.path, hint=hint)
    elif writes:
        folder.mkdir(exist_ok=True)
        write_json(file, {"vae": str(vae.path), "sha256": digest})
    return digest
