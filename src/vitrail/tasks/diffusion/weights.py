"""A model that makes images, with the names of its classes."""

from collections.abc import Sequence
from typing import Any

from vitrail.data.images.preparation import Preparation
from vitrail.errors import ModelFileError
from vitrail.weights.formats.checkpoint import Checkpoint, Source
from vitrail.weights.model_folder.folder import TrainedModel


class TrainedDiffusion(TrainedModel):
    """A model of noisy images, the names of its classes, and the preparation that its images are undone by."""

    preparation: Preparation

    @property
    def config(self) -> Any:
        """The configuration of the model, or of the one that a graph was made of."""
        return self.model.config

    @property
    def rows(self) -> list[tuple[str, str]]:
        config: Any = self.config
        classes = ", ".join(self.labels[:20]) + (" …" if len(self.labels) > 20 else "")
        return [("images", str(self.preparation)), ("output", config.objective), ("classes", classes or "none")]

    @property
    def uses(self) -> Sequence[str]:
        return "sample {} --out samples", "study {}", "export {}", "serve {}"


def trained_of(model: Any, source: Source, preparation: Preparation, checkpoint: Checkpoint) -> TrainedDiffusion:
    """Return a model of a checkpoint that is understood, with its classes."""
    return TrainedDiffusion(model, source.labels, preparation, card=checkpoint.card)


def require_diffusion(trained: TrainedModel, where: object) -> TrainedDiffusion:
    """Return a model that makes images; raises `ModelFileError` for any other."""
    if not isinstance(trained, TrainedDiffusion) or trained.config.answer != "noise":
        hint = "give a model that was trained with --task diffusion"
        raise ModelFileError("the model makes no images", where=where, hint=hint)
    return trained
