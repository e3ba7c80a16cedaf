"""A model that makes images, with the names of its classes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from vitrail.checks import refuse_given
from vitrail.data.images.preparation import Preparation
from vitrail.errors import ModelFileError
from vitrail.files import path_of
from vitrail.models.base import Model
from vitrail.models.inference import for_inference
from vitrail.runtime.device import Precision
from vitrail.tasks.diffusion.latents.autoencoder import decoded, drawn_latents, moments_of
from vitrail.tasks.diffusion.latents.vae_folder import VaeFolder
from vitrail.weights.formats.checkpoint import Checkpoint, Source
from vitrail.weights.formats.pipeline import AROUND, PIPELINE, pipeline_files
from vitrail.weights.formats.safe_files import LATENTS
from vitrail.weights.layout import Layout
from vitrail.weights.model_folder.folder import TrainedModel
from vitrail.weights.model_folder.preparation import makes_latents

if TYPE_CHECKING:
    from PIL import Image

    from vitrail.data.images.pictures import Picture


class TrainedDiffusion(TrainedModel):
    """A model of noisy images, the names of its classes, and the preparation that its images are undone by."""

    preparation: Preparation
    latents: str | None = None
    """Folder or name of the VAE whose latents the model makes; None for a model of pixels."""

    @property
    def config(self) -> Any:
        """The configuration of the model, or of the one that a graph was made of."""
        return self.model.config

    def for_sampling(self, precision: Precision = "fp32") -> "TrainedDiffusion":
        """Return the same with a copy of the model that computes fastest; an exported model stays as it is.

        Raises:
            ConfigError: bf16 of an exported model, whose precision was chosen when it was exported.
        """
        if not isinstance(self.model, Model):
            refuse_given("an exported model has its own precision", {"--precision": precision != "fp32"})
            return self
        fast = TrainedDiffusion(for_inference(self.model, precision), self.labels, self.preparation)
        fast.latents = self.latents
        return fast

    @property
    def rows(self) -> list[tuple[str, str]]:
        config: Any = self.config
        latents = [] if self.latents is None else [(LATENTS, self.latents)]
        classes = self.first_labels or "none"
        return [("images", str(self.preparation)), *latents, ("output", config.objective), ("classes", classes)]

    def class_name(self, label: int | None) -> str | None:
        """Return the name of a class by its index; None for none."""
        return None if label is None else self.labels[label]

    @property
    def more(self) -> dict[str, Any]:
        """Return the VAE for ``config.json``."""
        return {} if self.latents is None else {LATENTS: self.latents}

    def description(self, layout: Layout | None) -> dict[str, Any]:
        whole = self._in_pipeline(layout)
        return {name: value for name, value in whole.items() if name not in AROUND} or super().description(layout)

    def files(self, layout: Layout | None) -> Mapping[str, Mapping[str, Any] | bytes]:
        whole = self._in_pipeline(layout)
        return {**super().files(layout), **(pipeline_files(whole, self.labels, self.latents) if whole else {})}

    def _in_pipeline(self, layout: Layout | None) -> dict[str, Any]:
        """Return what a layout with pipelines says of the model; nothing in any other."""
        described = layout.describe(self.config) if layout is not None and layout.describe is not None else {}
        return described if PIPELINE in described else {}

    @property
    def vae(self) -> VaeFolder:
        """The VAE of a model of latents.

        Raises:
            ConfigError: its folder is not there, or its latents have other channels than the model's.
            ModelFileError: the folder holds no VAE.
        """
        hint = "bring it back, or say where it is now: --latents FOLDER, in Python model.latents = FOLDER"
        where = f"{LATENTS} in the model's config.json"
        vae = VaeFolder.read(self.latents or "", where=where, hint=hint)
        vae.require_channels(self.config.channels, where=where)
        return vae

    def pictures(self, images: Tensor) -> "list[Image.Image]":
        """Return what the model makes, (B, C, H, W), as pictures; latents are decoded, a few at a time."""
        return self.preparation.pictures(images if self.latents is None else decoded(self.vae, images))

    def prepared(self, picture: "Picture") -> Tensor:
        """Return a picture as the model has images, (1, C, H, W): normalized, or the mean of its latents."""
        return self.encoded(self.preparation(picture))

    def encoded(self, images: Tensor) -> Tensor:
        """Return normalized images (B, C, H, W) as the model has them: themselves, or the mean of their latents."""
        if self.latents is None:
            return images
        vae = self.vae
        return drawn_latents(vae, moments_of(vae, images), torch.zeros(()))

    @property
    def uses(self) -> Sequence[str]:
        return "sample {} --out samples", "study {}", "export {}", "serve {}"


def trained_of(model: Any, source: Source, preparation: Preparation, checkpoint: Checkpoint) -> TrainedDiffusion:
    """Return a model of a checkpoint that is understood, with its classes."""
    trained = TrainedDiffusion(model, source.labels, preparation, card=checkpoint.card)
    trained.latents = {**checkpoint.config, **checkpoint.metadata}.get(LATENTS)
    return trained


def whole_label(labels: Sequence[str], name: str) -> str:
    """Return the label with a name between its commas, as ``tench, Tinca tinca`` has ``tench``; without one the name itself."""
    return next((label for label in labels if name not in labels and name in label.split(", ")), name)


def require_diffusion(trained: TrainedModel, where: object, *, latents: str | Path | None = None) -> TrainedDiffusion:
    """Return a model that makes images, of latents with a VAE that is there, or that of the folder ``latents``.

    Raises:
        ModelFileError: any other model, or no VAE.
        ConfigError: a VAE that is not there, or not the model's.
    """
    if not isinstance(trained, TrainedDiffusion) or trained.config.answer != "noise":
        hint = "give a model that was trained with --task diffusion"
        raise ModelFileError("the model makes no images", where=where, hint=hint)
    if latents is not None:
        refuse_given("the model makes pixels", {"--latents": not makes_latents(trained.config)})
        trained.latents = str(path_of(latents).resolve())
    if makes_latents(trained.config) and trained.latents is None:
        what = f"the model makes latents of {trained.config.channels} channels, and nothing names the VAE that decodes them"
        raise ModelFileError(what, where=where, hint="vitrail convert MODEL OUT --latents VAE_FOLDER")
    if trained.latents is not None:
        vae, size = trained.vae, trained.config.image_size
        images, preparation = (vae.factor * size[0], vae.factor * size[1]), trained.preparation
        fits = preparation.channels == vae.colors  # weights of others do not say how large their images are
        trained.preparation = preparation.at(images) if fits else Preparation.standard(images, vae.colors)
    return trained
