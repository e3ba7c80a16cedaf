"""Settings of the distillation of features. Imports no torch."""

from typing import Annotated, Any

from pydantic import Field

from vitrail.errors import ConfigError
from vitrail.tasks.settings import FeatureSettings

Weight = Annotated[float, Field(ge=0)]


class DistillSettings(FeatureSettings):
    """Distillation of features: a student learns to give the vectors and maps of a teacher, for images without labels."""

    name: str = "distill"
    vectors: Weight = 1.0
    """Weight of the loss on the vector of an image."""
    maps: Weight = 0.0
    """Weight of the loss on the map of its patches, which is resized to the student's; 0 for none."""

    def require_consistent(self) -> None:
        if not self.vectors and not self.maps:
            hint = "give one of them a weight above 0"
            raise ConfigError("nothing of the teacher is learned", where="task.vectors, task.maps", hint=hint)

    def require_possible(self, run: Any, *, starts: bool) -> None:
        """Raise `ConfigError` without a teacher, or where its maps are to be computed once."""
        if not run.distillation.has_teacher:
            hint = "add --teacher with a model, such as a file of a ViT"
            raise ConfigError("there is no teacher to learn from", where="--teacher", hint=hint)
        if run.distillation.once and self.maps:
            hint = "add --task.maps 0, or leave distillation.once out"
            raise ConfigError("maps of all images at once take too much memory", where="distillation.once", hint=hint)
        if run.training.batch_size == "auto":
            hint = "give a number of images"
            raise ConfigError("--batch-size auto does not go with features", where="training.batch_size", hint=hint)


SETTINGS = DistillSettings
