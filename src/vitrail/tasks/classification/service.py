"""The service of a classifier: labels and attention for images."""

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from vitrail.data.images.decode import SERVED
from vitrail.deploy.predict import open_predictor
from vitrail.deploy.server.http.bodies import Images
from vitrail.deploy.server.http.limits import Limits
from vitrail.deploy.server.http.pages import Page
from vitrail.deploy.server.images import EXPORTED, IMAGES, Look, black, encoded, framed, image_limits, image_tensors
from vitrail.deploy.server.opening import Model
from vitrail.deploy.server.operation import Computed, Operation, Prepared, ServerSettings
from vitrail.runtime.device import Precision
from vitrail.study.maps.attention import look_of, relevance_map
from vitrail.tasks.classification import schema
from vitrail.tasks.classification.predictor import LabelPredictor, of_classes
from vitrail.weights.model_folder.classifier_output import Answer
from vitrail.weights.model_folder.folder import TrainedModel


class Settings(ServerSettings):
    """Options of a server for classifiers."""

    precision: Precision | None = None
    engine: str = "auto"
    reject: bool = False
    """Give an image no label if its most probable label is below the threshold."""


def open_served(model: Model, settings: Settings) -> "ServedLabels":
    """Open a classifier for a server."""
    predictor = of_classes(open_predictor(model, settings.precision, engine=settings.engine))
    look, unseen = look_of(model) if isinstance(model, TrainedModel) else (None, EXPORTED)
    relevance = look_of(model, relevance_map)[0] if isinstance(model, TrainedModel) else None
    return ServedLabels(predictor.rejecting() if settings.reject else predictor, settings.limits, look, unseen, relevance)


class Row(NamedTuple):
    """An image to label."""

    pixels: np.ndarray
    top: int


class ServedLabels:
    """The service for labels and attention.

    Args:
        predictor: the predictor of labels; used by one thread.
        limits: the limits of a request.
        look: a function that computes attention, in the same thread; None if the model's attention is not available.
        unseen: the reason why attention is not available.
        relevance: a function that computes the relevance of patches for the best label; None if it is not available.
    """

    summary, items, document = "Labels of images, and where the model looked.", "images", schema.Model
    page = Page(Path(__file__).parent / "page", "images", "-F images=@cat.jpg ADDRESS/predict")

    def __init__(
        self,
        predictor: LabelPredictor,
        limits: Limits,
        look: Look | None = None,
        unseen: str = EXPORTED,
        relevance: Look | None = None,
    ):
        self.predictor, self.limits = predictor, limits
        self._look, self._unseen, self._relevance = look, "" if look else unseen, relevance
        self.tensors = image_tensors(predictor, "logits", len(predictor.labels))
        check = partial(predictor.preparation.check, max_pixels=limits.pixels, formats=SERVED)
        self.operations = (
            Operation(
                path="/predict",
                summary="Label images",
                description="The best labels of every image. Either all images are answered or, with the reasons, none.",
                body=Images(limits.items, check, IMAGES),
                fields=schema.LabelFields,
                document=schema.Predictions,
                prepare=self._pixels,
                run=self._labels,
                answer=self._predictions,
            ),
            Operation(
                path="/attention",
                summary="See where the model looks",
                description="Where every head of every layer looks in one image.",
                body=Images(1, check, IMAGES),
                document=schema.Attention,
                prepare=self._framed,
                run=self._maps,
                answer=lambda fields, images: {"seen": images[0].context, **images[0].outputs[0]},
                looks=True,
                unseen=self._unseen,
            ),
        )

    def described(self) -> dict[str, Any]:
        """Return the model's labels, its preparation of images, and the limits of a request."""
        predictor = self.predictor
        return {
            "engine": predictor.name,
            "labels": predictor.labels,
            "multi_label": predictor.multi_label,
            "attention": self._look is not None,
            "unseen": self._unseen,
            "preparation": predictor.preparation.model_dump(mode="json"),
            "limits": image_limits(self.limits, self.items),
        }

    def blank(self) -> Row:
        """Return a row with a black image."""
        return Row(black(self.predictor.preparation), 1)

    def _pixels(self, content: bytes, fields: schema.LabelFields) -> Prepared[Row]:
        return Prepared([Row(self.predictor.preparation.pixels(content), fields.top)])

    def _labels(self, rows: list[Row]) -> list[Answer]:
        """Return the labels of a batch, for each image as many as requested."""
        pixels = torch.from_numpy(np.stack([row.pixels for row in rows]))
        answers = self.predictor.best(pixels, max(row.top for row in rows))
        return [answer._replace(best=answer.best[: row.top]) for answer, row in zip(answers, rows, strict=True)]

    def _predictions(self, fields: schema.LabelFields, images: list[Computed[Answer]]) -> dict[str, Any]:
        several = self.predictor.may_tell_none
        return {"predictions": [image.outputs[0].to_json(image.name, several=several) for image in images]}

    def _framed(self, content: bytes, fields: object) -> Prepared[np.ndarray]:
        pixels, seen = framed(self.predictor.preparation, content)
        return Prepared([pixels], seen)

    def _maps(self, rows: list[np.ndarray]) -> list[dict[str, Any]]:
        return [self._seen(torch.from_numpy(pixels[None])) for pixels in rows]

    def _seen(self, pixels: Tensor) -> dict[str, Any]:
        assert self._look is not None
        relevance = None if self._relevance is None else encoded(self._relevance(pixels)[None, None])["maps"]
        return {**encoded(self._look(pixels)), "relevance": relevance}
