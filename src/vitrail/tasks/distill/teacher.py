"""The teacher of features."""

from typing import Any, Self

import torch
from torch import Tensor, nn

from vitrail.errors import ConfigError
from vitrail.tasks.teachers import AnyTeacher, images_for


class FeatureTeacher:
    """A model that gives vectors and maps of the student's images, with its own size and normalization.

    It is not a submodule of the task: it is not trained, averaged or saved in checkpoints.

    Args:
        given: a model of images, of any task; or a callable that returns vectors.
    """

    def __init__(self, given: AnyTeacher):
        self.preparation = given.preparation
        self.model: Any = given.model.eval() if isinstance(given.model, nn.Module) else given.model
        self.has_maps = hasattr(self.model, "vectors_and_map")

    def __deepcopy__(self, memo: Any) -> Self:
        return self

    def vectors(self, pixels: Tensor) -> Tensor:
        """Return the vectors (B, D) of a student's pixels, uint8 (B, C, H, W)."""
        return self(pixels)[0]

    @torch.no_grad()
    def __call__(self, pixels: Tensor, *, maps: bool = False) -> tuple[Tensor, Tensor | None]:
        """Return the vectors (B, D) of a student's pixels, uint8 (B, C, H, W), and with ``maps`` a map (B, D', h, w).

        Raises:
            ConfigError: the teacher has no maps, or its vectors have another shape or are not finite.
        """
        model: Any = self.model.to(pixels.device) if isinstance(self.model, nn.Module) else self.model
        images = images_for(self.preparation, pixels)
        if maps and not self.has_maps:
            hint = "add --task.maps 0, or give a model that Vitrail opens"
            raise ConfigError("the teacher gives vectors only, and no maps", where="--teacher", hint=hint)
        if maps:
            vectors, found = model.vectors_and_map(images)
        else:
            vectors, found = (model.vectors if self.has_maps else model)(images), None
        if not isinstance(vectors, Tensor) or vectors.ndim != 2 or len(vectors) != len(images) or not vectors.isfinite().all():
            hint = "give a callable that returns vectors (images, D), such as lambda images: network(images).pooler_output"
            raise ConfigError("the teacher returns no finite vectors (images, D)", where="--teacher", hint=hint)
        return vectors.float(), None if found is None else found.float()
