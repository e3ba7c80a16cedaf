"""A model as a function of columns, for systems that distribute images over machines, such as Ray Data."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vitrail.checks import require_positive
from vitrail.deploy.embed import Embedder
from vitrail.deploy.predict import open_predictor
from vitrail.deploy.predictor import predict_each
from vitrail.errors import DataError
from vitrail.runtime.device import Precision


class BatchPredictor:
    """A callable that adds predictions to a batch of image files. Each worker creates one, which loads the model once.

    Args:
        model: a run folder, a model folder, an exported model, a weights file or a hub id.
        vectors: whether to return feature vectors instead of predictions.
        batch_size: images that are computed together.
        precision: fp32, the default, or bf16.

    Raises:
        VitrailError: the model cannot be opened, or has no predictions.
    """

    def __init__(self, model: str | Path, *, vectors: bool = False, batch_size: int = 32, precision: Precision | None = None):
        require_positive(batch_size=batch_size)
        self.vectors, self.batch_size = vectors, batch_size
        self.predictor = Embedder(model, precision) if vectors else open_predictor(model, precision)

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, list[Any]]:
        """Return the columns ``path``, ``error``, and ``prediction`` or ``vector`` for a batch with ``path`` and ``bytes``.

        A prediction is the JSON of `vitrail predict --json`, a vector a list of floats. A damaged image has an error,
        and ``null`` or an empty list; other images have an empty error.
        """
        paths, contents = [str(path) for path in batch["path"]], list(batch["bytes"])
        parts = predict_each(self.predictor, contents, batch_size=self.batch_size)
        found: list[Any] = [one for part in parts for one in part]
        errors = [str(one) if isinstance(one, DataError) else "" for one in found]
        if self.vectors:
            vectors = [[] if error else one.tolist() for one, error in zip(found, errors, strict=True)]
            return {"path": paths, "error": errors, "vector": vectors}
        answers = [None if error else one.to_json(path) for path, one, error in zip(paths, found, errors, strict=True)]
        return {"path": paths, "error": errors, "prediction": [json.dumps(answer) for answer in answers]}
