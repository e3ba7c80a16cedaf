"""Feature vectors of images, and the search for the most similar images."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitrail.checks import require_positive
from vitrail.data.images.pictures import Picture, pictures_of
from vitrail.data.loading.prefetch import each_answer
from vitrail.deploy.export.artefact import graph_of
from vitrail.deploy.predictor import Predictor, Prepared, predict_each, require_finite
from vitrail.deploy.vector_files import Vectors
from vitrail.errors import ConfigError, DataError
from vitrail.models.inference import for_inference, in_evaluation_mode
from vitrail.runtime.device import Precision, pick_device
from vitrail.weights.model_folder.folder import TrainedModel, require_of_images
from vitrail.weights.reference import open_model


class Embedder(Predictor):
    """A predictor of feature vectors: the input of an image model's head, or the output of a model without labels.

    Args:
        model: a MODEL, or a loaded model.
        precision: fp32, the default, or bf16.

    Raises:
        ConfigError: the model is exported, so it has no feature vectors, or is not one of this library.
    """

    def __init__(self, model: str | Path | TrainedModel, precision: Precision | None):
        if not isinstance(model, TrainedModel) and graph_of(model) is not None:
            hint = "give the model that it was exported from"
            raise ConfigError("an exported model has no feature vectors", where="MODEL", hint=hint)
        trained, self.device = model if isinstance(model, TrainedModel) else open_model(model), pick_device()
        require_of_images(trained.model)
        self.name, self.preparation = f"torch {precision or 'fp32'}", trained.preparation
        model_of_vectors = for_inference(in_evaluation_mode(trained.model, self.device), precision or "fp32")
        self._vectors: Callable[[Tensor], Tensor] = model_of_vectors.vectors if trained.labels else model_of_vectors

    @torch.inference_mode()
    def network(self, pixels: Tensor) -> Tensor:
        """Map prepared pixels, uint8 (B, C, H, W), to vectors, float32 (B, D), on the CPU."""
        return require_finite(self._vectors(self.preparation.normalize(pixels.to(self.device))).cpu())

    def preprocess(self, source: Any) -> Prepared:
        return Prepared([self.preparation.pixels(source)])

    def postprocess(self, outputs: Tensor, prepared: Sequence[Prepared]) -> list[np.ndarray]:
        return list(outputs.numpy())


def embed(
    model: str | Path | TrainedModel,
    images: Picture | Iterable[Picture],
    *,
    batch_size: int = 32,
    precision: Precision | None = None,
) -> np.ndarray:
    """Compute feature vectors of images, float32 (N, D): the input of the head, or the output of a model without labels.

    Args:
        model: a run folder, a model folder, a weights file, a hub id or a loaded model.
        images: as in `vitrail.predict`.
        batch_size: images per batch.
        precision: fp32, the default, or bf16.

    Raises:
        DataError: an image cannot be read.
        ConfigError: the model is exported, so it has no feature vectors.
    """
    require_positive(batch_size=batch_size)
    pictures, embedder = pictures_of(images), Embedder(model, precision)
    found = list(each_answer(predict_each(embedder, pictures, batch_size=batch_size)))
    return np.stack(found) if found else np.zeros((0, 0), np.float32)


def embed_files(
    model: str | Path | TrainedModel,
    files: Sequence[Path],
    vectors: Vectors,
    *,
    batch_size: int,
    precision: Precision | None = None,
    on_batch: Callable[[int], None],
) -> list[DataError]:
    """Add the vectors of the readable files to ``vectors``, and return the errors of the others.

    Raises:
        DataError: no file can be read; it is the first error.
    """
    left = iter(files)
    failures: list[DataError] = []
    for batch in predict_each(Embedder(model, precision), files, batch_size=batch_size):
        for vector, file in zip(batch, left, strict=False):
            if isinstance(vector, DataError):
                failures.append(vector)
            else:
                vectors.add(file, vector)
        on_batch(len(batch))
    if not vectors.images:
        raise failures[0]
    return failures


def nearest(query: np.ndarray, vectors: np.ndarray, count: int) -> list[tuple[int, float]]:
    """Return index and cosine of the ``count`` vectors (N, D) that are nearest to the query (D,), the nearest first."""
    norms = np.linalg.norm(vectors, axis=1) * np.linalg.norm(query)
    cosines = vectors @ query / np.maximum(norms, 1e-12)
    return [(int(place), float(cosines[place])) for place in np.argsort(-cosines, kind="stable")[:count]]
