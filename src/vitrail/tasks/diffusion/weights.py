"""A model that makes images, with the names of its classes."""

from collections.abc import Mapping, Sequence
from typing import Any

from vitrail.data.images.preparation import Preparation
from vitrail.errors import ModelFileError
from vitrail.weights.formats.checkpoint import Checkpoint, Source
from vitrail.weights.formats.pipeline import AROUND, PIPELINE, pipeline_files
from vitrail.weights.formats.safe_files import LATENTS
from vitrail.weights.layout import Layout
from vitrail.weights.model_folder.folder import TrainedModel
from vitrail.weights.model_folder.preparation import makes_latents


class TrainedDiffusion(TrainedModel):
    """A model of noisy images, the names of its classes, and the preparation that its images are undone by."""

    preparation: Preparation
    latents: str | None = None
    """Folder or name of the VAE whose latents the model makes; None for a model of pixels."""

    @property
    def rows(self) -> list[tuple[str, str]]:
        config: Any = self.config
        classes = ", ".join(self.labels[:20]) + (" …" if len(self.labels) > 20 else "")
        return [("images", str(self.preparation)), ("output", config.objective), ("classes", classes or "none")]

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
    def uses(self) -> Sequence[str]:
        return ("sample {} --out samples",)


def trained_of(model: Any, source: Source, preparation: Preparation, checkpoint: Checkpoint) -> TrainedDiffusion:
    """Return a model of a checkpoint that is understood, with its classes."""
    trained = TrainedDiffusion(model, source.labels, preparation, card=checkpoint.card)
    trained.latents = {**checkpoint.config, **checkpoint.metadata}.get(LATENTS)
    return trained


def require_diffusion(trained: TrainedModel, where: object) -> TrainedDiffusion:
    """Return a model that makes images; raises `ModelFileError` for any other."""
    if not isinstance(trained, TrainedDiffusion) or trained.config.answer != "noise":
        hint = "give a model that was trained with --task diffusion"
        raise ModelFileError("the model makes no images", where=where, hint=hint)
    if makes_latents(trained.config) and trained.latents is None:
        what = f"the model makes latents of {trained.config.channels} channels, and nothing names the VAE that decodes them"
        raise ModelFileError(what, where=where, hint="vitrail convert MODEL OUT --latents VAE_FOLDER")
    return trained
