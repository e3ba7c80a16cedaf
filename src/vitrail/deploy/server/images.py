"""The server of a model of images: labels, and where the model looked."""

import base64
import contextlib
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import numpy as np
import torch
from fastapi import FastAPI, Query
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from torch import Tensor

from vitrail.data.images.decode import SERVED
from vitrail.deploy.server import schema
from vitrail.deploy.server.http.limits import Limits
from vitrail.deploy.server.http.problems import ProblemError
from vitrail.deploy.server.picture_service import PictureService, Work
from vitrail.deploy.server.pictures import require_in_query
from vitrail.deploy.server.queue import Queue
from vitrail.deploy.server.schema import refusals
from vitrail.deploy.server.workers.shared_state import Place
from vitrail.weights.model_folder.classifier_output import Answer

MOST_LABELS = 100
Top = Annotated[int, Query(ge=1, le=MOST_LABELS, description="Labels per image.")]

Asked = tuple[np.ndarray, int]
"""Pixels, and how many labels are asked for."""
Look = Callable[[Tensor], Tensor]
"""Prepared pixels, uint8 (1, C, H, W), to what each head of each layer looks at, (layers, heads, rows, columns); or to the
relevance of each patch, (rows, columns)."""


class ImageService(PictureService[Asked, Answer]):
    """Labels of images.

    Args:
        predictor: computes the answers; used by one thread.
        name: what the model is called.
        limits: what is taken on.
        look: computes attention, in the same thread; None where the model's cannot be seen.
        unseen: why not, then.
        relevance: computes what speaks for the best label, beside attention; None where that cannot be told.
        place: among the workers of the server; alone by default.
    """

    summary, page, items = "Labels of images, and where the model looked.", "images", "images"
    document = schema.Model

    def __init__(
        self,
        predictor: Any,
        name: str,
        limits: Limits,
        look: Look | None = None,
        unseen: str = "",
        relevance: Look | None = None,
        place: Place | None = None,
    ):
        check = partial(predictor.preparation.check, max_pixels=limits.pixels, formats=SERVED)
        super().__init__(name, limits, predictor.preparation, check, place)
        self.predictor, self.unseen = predictor, unseen
        self._look, self._relevance = look, relevance
        self._looks: Queue[np.ndarray, dict[str, Any]] = self._queue_of_looks(self._see)

    def add_to(self, app: FastAPI) -> None:
        """What is said of pictures, and where the model looks."""

        @app.post(
            "/predict",
            response_model=schema.Predictions,
            responses=refusals(403, 408, 413, 415, 422, 429, 500, 503, 504),
            openapi_extra=schema.IMAGES,
            summary="Label images",
        )
        async def predict(request: Request, top: Top = 5) -> Response:
            """The best labels of every image. Either all images are answered or, with the reasons, none."""
            with self.admitted():
                found = await self.predict(request, top)
            several = self.predictor.may_tell_none
            return JSONResponse({"predictions": [answer.to_json(name, several=several) for name, answer in found]})

        @app.post(
            "/attention",
            response_model=schema.Attention,
            responses=refusals(403, 408, 413, 415, 422, 429, 500, 501, 503, 504),
            openapi_extra=schema.IMAGES,
            summary="See where the model looks",
        )
        async def attention(request: Request) -> Response:
            """Where every head of every layer looks in one image."""
            with self.admitted():
                return JSONResponse(await self.look(request))

    def described(self) -> dict[str, Any]:
        """The model's labels, how images are prepared for it, and the limits of a request."""
        predictor = self.predictor
        return {
            "name": self.name,
            "engine": predictor.name,
            "labels": predictor.labels,
            "multi_label": predictor.multi_label,
            "attention": self._look is not None,
            "unseen": self.unseen,
            "preparation": predictor.preparation.model_dump(mode="json"),
            "limits": self._limits(),
        }

    def _answer(self, pixels: Tensor) -> object:
        return self.predictor.best(pixels, 1)

    async def predict(self, request: Request, top: int) -> list[tuple[str, Answer]]:
        """The names of a request's pictures, and the answers with their ``top`` labels."""
        with contextlib.ExitStack() as held:
            form = await self._received(request, held, self._queue, self.limits.items, ("top",))
            require_in_query(form, "top")
            found = form.pictures
            names = [picture.name for picture in found]
            work = Work(self.predictor.preparation.pixels, lambda pixels: [(pixels, top)], len(names))
            _, labels = await self._answered(request, held, self._queue, found, work)
        return list(zip(names, labels, strict=True))

    async def look(self, request: Request) -> dict[str, Any]:
        """Where the model looks in the one picture of a request."""
        if self._look is None:
            raise ProblemError(501, f"this server cannot tell where the model looks: {self.unseen}")
        with contextlib.ExitStack() as held:
            found = (await self._received(request, held, self._looks, 1)).pictures
            work = Work(self._framed, lambda framed: [framed.pixels], 1)
            (framed,), (maps,) = await self._answered(request, held, self._looks, found, work)
        return {"seen": framed.seen, **maps}

    def _compute(self, values: list[Asked]) -> list[Answer]:
        """Labels of a batch, as many for each as it asks for."""
        pixels = torch.from_numpy(np.stack([each for each, _ in values]))
        found = self.predictor.best(pixels, max(top for _, top in values))
        return [answer._replace(best=answer.best[:top]) for answer, (_, top) in zip(found, values, strict=True)]

    def _see(self, images: list[np.ndarray]) -> list[dict[str, Any]]:
        assert self._look is not None
        return [self._seen(torch.from_numpy(pixels[None]), self._look) for pixels in images]

    def _seen(self, pixels: Tensor, look: Look) -> dict[str, Any]:
        relevance = None if self._relevance is None else encoded(self._relevance(pixels)[None, None])["maps"]
        return {**encoded(look(pixels)), "relevance": relevance}


def encoded(maps: Tensor) -> dict[str, Any]:
    """Maps (layers, heads, rows, columns) with one byte for each patch; 255 stands for the largest value of its map."""
    largest = maps.amax(dim=(2, 3))
    scaled = maps / largest[..., None, None].clamp(min=torch.finfo(torch.float32).tiny)
    content = (255 * scaled).round().to(torch.uint8).numpy().tobytes()
    sides = dict(zip(("layers", "heads", "rows", "columns"), maps.shape, strict=True))
    return {**sides, "largest": largest.tolist(), "maps": base64.b64encode(content).decode()}
