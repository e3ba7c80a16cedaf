"""The server of a model that writes about images: a caption, and where the model looked for each word."""

import contextlib
from functools import partial
from typing import Annotated, Any, NamedTuple

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
from vitrail.deploy.server.images import encoded
from vitrail.deploy.server.picture_service import Framed, PictureService, Work
from vitrail.deploy.server.pictures import require_in_query
from vitrail.deploy.server.schema import refusals
from vitrail.deploy.server.workers.shared_state import Place
from vitrail.tasks.captioning import schema as caption_schema
from vitrail.tasks.captioning.predictor import Writer
from vitrail.tasks.captioning.words import Caption

Attention = Annotated[bool, Query(description="Whether to tell where the model looked for each word, too.")]


class Asked(NamedTuple):
    """A picture to write about, as the model takes it."""

    pixels: np.ndarray
    attention: bool


class CaptionService(PictureService[Asked, Caption]):
    """Captions of images.

    Args:
        writer: writes them; used by one thread.
        name: what the model is called.
        limits: what is taken on.
        place: among the workers of the server; alone by default.
    """

    summary, page, items = "Captions of images, and where the model looked for each word.", "captions", "images"
    document = caption_schema.CaptionModel

    def __init__(self, writer: Writer, name: str, limits: Limits, place: Place | None = None):
        check = partial(writer.preparation.check, max_pixels=limits.pixels, formats=SERVED)
        super().__init__(name, limits, writer.preparation, check, place)
        self.writer = writer

    def add_to(self, app: FastAPI) -> None:
        """What is written about pictures."""

        @app.post(
            "/caption",
            response_model=caption_schema.Captions,
            responses=refusals(403, 408, 413, 415, 422, 429, 500, 501, 503, 504),
            openapi_extra=schema.IMAGES,
            summary="Write captions",
        )
        async def caption(request: Request, attention: Attention = False) -> Response:
            """The caption of every image. Either all images have one or, with the reasons, none."""
            with self.admitted():
                return JSONResponse({"captions": await self.caption(request, attention=attention)})

    def described(self) -> dict[str, Any]:
        """What writes, how images are prepared for it, and the limits of a request."""
        writer = self.writer
        return {
            "name": self.name,
            "engine": writer.engine,
            "vocabulary": writer.trained.config.vocabulary,
            "beams": writer.beams,
            "attention": writer.attends,
            "preparation": writer.preparation.model_dump(mode="json"),
            "limits": self._limits(),
        }

    async def caption(self, request: Request, *, attention: bool) -> list[dict[str, Any]]:
        """The captions of a request's pictures, with where the model looked if that is asked for."""
        if attention and not self.writer.attends:
            raise ProblemError(501, "this server cannot tell where the model looked: it has no attention", hint="ask without")
        with contextlib.ExitStack() as held:
            form = await self._received(request, held, self._queue, self.limits.items, ("attention",))
            require_in_query(form, "attention")
            found = form.pictures
            names = [picture.name for picture in found]
            work = Work(self._framed, lambda framed: [Asked(framed.pixels, attention)], len(names))
            framed, captions = await self._answered(request, held, self._queue, found, work)
        looks = [_looks(*each) if attention else None for each in zip(captions, framed, strict=True)]
        told = [caption.to_json(name) for caption, name in zip(captions, names, strict=True)]
        return [{**one, "attention": look} for one, look in zip(told, looks, strict=True)]

    def _answer(self, pixels: Tensor) -> object:
        return self.writer.captions(pixels)

    def _compute(self, values: list[Asked]) -> list[Caption]:
        pixels = torch.from_numpy(np.stack([value.pixels for value in values]))
        return self.writer.captions(pixels, attention=any(value.attention for value in values))


def _looks(caption: Caption, framed: Framed) -> dict[str, Any]:
    """Where the model looked for each word, as the server tells it."""
    maps = [word.look for word in caption.words if word.look is not None]
    if not maps:  # a caption without words
        return {"rows": 0, "columns": 0, "seen": framed.seen, "maps": ""}
    told = encoded(torch.from_numpy(np.stack(maps))[:, None].float())
    return {"seen": framed.seen, **{name: told[name] for name in ("rows", "columns", "maps")}}
