"""The server's operation for captioning models: a caption of an image, with attention for each word."""

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from vitrail.checks import refuse_given
from vitrail.data.images.decode import SERVED
from vitrail.deploy.server.http.bodies import Images
from vitrail.deploy.server.http.limits import Limits
from vitrail.deploy.server.http.pages import Page
from vitrail.deploy.server.http.problems import unseen
from vitrail.deploy.server.images import IMAGES, black, encoded, framed, image_limits
from vitrail.deploy.server.operation import Computed, Operation, Prepared, ServerSettings
from vitrail.runtime.device import Precision
from vitrail.tasks.captioning import schema
from vitrail.tasks.captioning.predictor import Writer
from vitrail.tasks.captioning.words import Caption


class Settings(ServerSettings):
    """Options of a server of captions."""

    precision: Precision = "fp32"
    engine: str = "auto"


def open_served(model: str | Path, settings: Settings) -> "ServedCaptions":
    """Open a captioning model for a server."""
    refuse_given("a captioner runs in torch only", {"--engine": settings.engine not in ("auto", "torch")})
    return ServedCaptions(Writer(model, precision=settings.precision), settings.limits)


class Row(NamedTuple):
    """A prepared image to caption."""

    pixels: np.ndarray
    attention: bool


class ServedCaptions:
    """A service that captions images, with the attention for each word.

    Args:
        writer: the captioning model; used by one thread only.
        limits: limits of a request.
    """

    summary, items = "Captions of images, and where the model looked for each word.", "images"
    document, tensors = schema.CaptionModel, None
    page = Page(Path(__file__).parent / "page", "captions", "-F images=@dog.jpg 'ADDRESS/caption?attention=true'")

    def __init__(self, writer: Writer, limits: Limits):
        self.writer, self.limits = writer, limits
        check = partial(writer.preparation.check, max_pixels=limits.pixels, formats=SERVED)
        self.operations = (
            Operation(
                path="/caption",
                summary="Write captions",
                description="The caption of every image. Either all images have one or, with the reasons, none.",
                body=Images(limits.items, check, IMAGES),
                fields=schema.CaptionFields,
                document=schema.Captions,
                understand=self._attention,
                prepare=self._framed,
                run=self._written,
                answer=self._captions,
                may_lack_attention=True,
            ),
        )

    def described(self) -> dict[str, Any]:
        """Return the model's engine and options, its preparation of images, and the limits of a request."""
        writer = self.writer
        return {
            "engine": writer.engine,
            "vocabulary": writer.trained.config.vocabulary,
            "beams": writer.beams,
            "attention": writer.attends,
            "preparation": writer.preparation.model_dump(mode="json"),
            "limits": image_limits(self.limits, self.items),
        }

    def blank(self) -> Row:
        """Return a black image."""
        return Row(black(self.writer.preparation), False)

    def _attention(self, fields: schema.CaptionFields) -> bool:
        if fields.attention and not self.writer.attends:
            raise unseen("the model has no attention", hint="leave out attention")
        return fields.attention

    def _framed(self, content: bytes, attention: bool) -> Prepared[Row]:
        pixels, seen = framed(self.writer.preparation, content)
        return Prepared([Row(pixels, attention)], seen)

    def _written(self, rows: list[Row]) -> list[Caption]:
        pixels = torch.from_numpy(np.stack([row.pixels for row in rows]))
        return self.writer.captions(pixels, attention=any(row.attention for row in rows))

    def _captions(self, attention: bool, images: list[Computed[Caption]]) -> dict[str, Any]:
        captions = []
        for image in images:
            (caption,) = image.outputs
            looks = _looks(caption, image.context) if attention else None
            captions.append({**caption.to_json(image.name), "attention": looks})
        return {"captions": captions}


def _looks(caption: Caption, seen: list[float]) -> dict[str, Any]:
    """Return the attention map of each word, for `schema.Looks`."""
    maps = [word.look for word in caption.words if word.look is not None]
    if not maps:  # a caption without words
        return {"rows": 0, "columns": 0, "seen": seen, "maps": ""}
    sent = encoded(torch.from_numpy(np.stack(maps))[:, None].float())
    return {"seen": seen, **{name: sent[name] for name in ("rows", "columns", "maps")}}
