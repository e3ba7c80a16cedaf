"""Segmenters in a server: the class of every pixel of an image."""

import base64
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vitrail.data.images.decode import SERVED, check_head
from vitrail.deploy.predict import open_predictor
from vitrail.deploy.server.http.bodies import Images
from vitrail.deploy.server.http.limits import Limits
from vitrail.deploy.server.http.pages import Page
from vitrail.deploy.server.http.problems import ProblemError
from vitrail.deploy.server.images import FILE, black, image_limits, image_request, image_tensors
from vitrail.deploy.server.opening import Model
from vitrail.deploy.server.operation import Computed, NoFields, Operation, Prepared, ServerSettings
from vitrail.deploy.server.queue import UNFINISHED
from vitrail.models.configs.base import Size
from vitrail.runtime.device import Precision
from vitrail.tasks.segmentation import schema
from vitrail.tasks.segmentation.answer import Area, SegmentationAnswer
from vitrail.tasks.segmentation.predictor import ROW_PIXELS, SegmentationOptions, SegmentationPredictor
from vitrail.tasks.segmentation.windows import MOST_WHOLE


class Settings(ServerSettings):
    """Options of a server of segmenters."""

    precision: Precision | None = None
    engine: str = "auto"
    window: Size | None = None
    """Height and width of the windows; by default an image is segmented as a whole, and in windows only if it is too large."""


def open_served(model: Model, settings: Settings) -> "ServedMasks":
    """Open a segmenter for a server."""
    predictor = open_predictor(model, settings.precision, engine=settings.engine)
    return ServedMasks(predictor.configured(SegmentationOptions(window=settings.window)), settings.limits)


class ImageInProgress:
    """An image whose mask is computed from the top; used by the one thread that computes.

    Args:
        pixels: uint8 (C, H, W).
        predictor: segments it, as a whole or in windows.
    """

    def __init__(self, pixels: np.ndarray, predictor: SegmentationPredictor):
        self.pixels, self.predictor = pixels, predictor
        self.size = -(-pixels[0].size // ROW_PIXELS)
        """Number of usual images that it counts as."""
        self.mask: np.ndarray | None = None
        """Class indices (H, W), once all are computed."""
        self._bands: Iterator[np.ndarray] | None = None
        self._computed: list[np.ndarray] = []

    def advance(self) -> None:
        """Compute the next rows of the mask."""
        if self._bands is None:
            self._bands, self._computed = self.predictor.bands(torch.from_numpy(np.stack([self.pixels]))), []
        try:
            with torch.inference_mode():
                self._computed.extend(next(self._bands))
        except Exception:
            self._bands = None  # a generator ends when it fails: start again
            raise
        if sum(map(len, self._computed)) == self.pixels.shape[1]:
            self.mask = np.concatenate(self._computed)


class ServedMasks:
    """A served segmenter. Requests are queued and batched by image; a large image counts as several.

    Args:
        predictor: segments images, as a whole or in windows; used by one thread.
        limits: limits of a request.
    """

    summary, items, document = "The class of every pixel of an image.", "images", schema.SegmentationModel
    page = Page(Path(__file__).parent / "page", "masks", "-F image=@street.jpg ADDRESS/predict")

    def __init__(self, predictor: SegmentationPredictor, limits: Limits):
        self.predictor, self.limits = predictor, limits
        window = predictor.settings.window or predictor.preparation.image_size
        self._in_windows = predictor.configured(SegmentationOptions(window=window))
        self.tensors = image_tensors(predictor, "logits", len(predictor.classes), -1, -1)
        check = partial(check_head, max_pixels=limits.pixels, formats=SERVED)
        self.operations = (
            Operation(
                path="/predict",
                summary="Segment an image",
                description="The areas of the classes in one image, and their mask. A large image is segmented in windows.",
                body=Images(1, check, image_request("one file", image=FILE)),
                document=schema.Segmented,
                prepare=self._decoded,
                rows=None,
                run=self._segmented,
                answer=self._masks,
            ),
        )

    def described(self) -> dict[str, Any]:
        """Return the model's classes with their colours, its windows, and the limits of a request."""
        predictor = self.predictor
        return {
            "engine": predictor.name,
            "classes": list(predictor.classes),
            "colors": [list(color) for color in predictor.colors],
            "window": predictor.view.window,
            "large": {"pixels": MOST_WHOLE, "window": self._in_windows.view.window},
            "preparation": predictor.preparation.model_dump(mode="json"),
            "limits": image_limits(replace(self.limits, items=1), self.items),
        }

    def blank(self) -> ImageInProgress:
        """Return a black image, at most of the usual size."""
        side = math.isqrt(ROW_PIXELS)
        return ImageInProgress(black(self.predictor.preparation)[:, :side, :side], self.predictor)

    def _decoded(self, content: bytes, fields: NoFields) -> Prepared[ImageInProgress]:
        """Return an image at its own size, with the predictor that segments it; raises `ProblemError` if there is never room."""
        (pixels,) = self._in_windows.preprocess(content).rows
        large = self.predictor.view.window is None and pixels[0].size > MOST_WHOLE
        image = ImageInProgress(pixels, self._in_windows if large else self.predictor)
        if image.size > self.limits.waiting:
            what = f"the image is as large as {image.size} of 512×512 pixels; the server's queue holds {self.limits.waiting}"
            raise ProblemError(413, what, hint="send a smaller image")
        return Prepared([image], image, image.size)

    def _segmented(self, images: list[ImageInProgress]) -> list[Any]:
        """Segment about as many pixels as a batch of usual images has; `UNFINISHED` stands for the images that are left.

        Of all larger images, which would keep the others waiting, one gets its next rows.
        """
        left = self.limits.batch
        larger, together = None, defaultdict[Any, list[ImageInProgress]](list)
        for image in images:
            if image.size > self.limits.batch:
                larger = larger or image
            elif left > 0:
                together[image.pixels.shape].append(image)
                left -= image.size
        for group in together.values():
            masks = group[0].predictor.compute([image.pixels for image in group], self.limits.batch)
            for image, mask in zip(group, masks, strict=True):
                image.mask = mask
        if larger is not None:
            larger.advance()
        return [UNFINISHED if image.mask is None else None for image in images]

    def _masks(self, fields: NoFields, images: list[Computed[None]]) -> dict[str, Any]:
        """Return the document of an image, for `schema.Segmented`."""
        ((_, image, _),) = images
        answer = SegmentationAnswer(image.mask, self.predictor.classes, self.predictor.colors)
        file = BytesIO()
        answer.indexed().save(file, "PNG")
        height, width = image.mask.shape
        return {
            "width": width,
            "height": height,
            "window": image.predictor.view.window,
            "areas": [self._area(area) for area in answer.areas],
            "mask": base64.b64encode(file.getvalue()).decode(),
        }

    def _area(self, area: Area) -> dict[str, Any]:
        index = self.predictor.classes.index(area.name)
        color = self.predictor.colors[index]
        return {"index": index, "class": area.name, "pixels": area.pixels, "fraction": area.fraction, "color": list(color)}
