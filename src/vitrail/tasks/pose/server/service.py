"""The server of a model that finds joints: the people in a picture, and where the queries of their joints look."""

import contextlib
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from fastapi import FastAPI, Query
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from vitrail.data.images.box_preparation import Box
from vitrail.data.images.decode import SERVED, check_head, decode
from vitrail.data.images.plan import Extent
from vitrail.deploy.server.http.limits import Limits
from vitrail.deploy.server.http.problems import ProblemError
from vitrail.deploy.server.images import Look, encoded
from vitrail.deploy.server.picture_service import PictureService, Work
from vitrail.deploy.server.pictures import Picture
from vitrail.deploy.server.queue import Queue
from vitrail.deploy.server.schema import refusals
from vitrail.deploy.server.workers.shared_state import Place
from vitrail.tasks.pose.answer import FoundPerson
from vitrail.tasks.pose.files.detections import require_inside
from vitrail.tasks.pose.metrics import person_score
from vitrail.tasks.pose.people.limbs import drawn_limbs
from vitrail.tasks.pose.predictor import PosePredictor
from vitrail.tasks.pose.server import schema as pose_schema
from vitrail.tasks.pose.server.request import EXAMPLE, boxes_of
from vitrail.tasks.pose.task import turned

BOXES = "boxes"
"""The parameter, and the field of a form."""
Boxes = Annotated[
    str | None,
    Query(
        description="Left, top, width and height of the box around each person, in pixels of the upright picture, as JSON; "
        "without it the picture is one person. A form may have it as a field.",
        examples=[EXAMPLE],
    ),
]


class Cut(NamedTuple):
    """The people of a picture, cut out."""

    size: Extent
    """Width and height of the upright picture."""
    boxes: list[Box]
    pixels: list[np.ndarray]
    """As the model takes them, uint8 (C, H, W) each."""


class Joints(NamedTuple):
    """The joints of one person."""

    places: np.ndarray
    """In the model's input, (K, 2)."""
    scores: np.ndarray
    """(K,)."""


class PoseService(PictureService[np.ndarray, Joints]):
    """The joints of people in pictures. What waits and is computed together are people.

    Args:
        predictor: finds the joints; used by one thread.
        name: what the model is called.
        limits: what is taken on.
        look: computes where the queries of joints look, in the same thread; None where that cannot be seen.
        unseen: why not, then.
        place: among the workers of the server; alone by default.
    """

    summary, page, items = "The joints of people in images, and where the model looked for them.", "poses", "people"
    document = pose_schema.PoseModel

    def __init__(
        self,
        predictor: PosePredictor,
        name: str,
        limits: Limits,
        look: Look | None = None,
        unseen: str = "",
        place: Place | None = None,
    ):
        check = partial(check_head, max_pixels=limits.pixels, formats=SERVED)
        super().__init__(name, limits, predictor.preparation, check, place)
        self.predictor, self.unseen, self._look = predictor, unseen, look
        self._looks: Queue[np.ndarray, dict[str, Any]] = self._queue_of_looks(self._see)

    def add_to(self, app: FastAPI) -> None:
        """Where joints are, and where their queries look."""

        @app.post(
            "/predict",
            response_model=pose_schema.People,
            responses=refusals(403, 408, 413, 415, 422, 429, 500, 503, 504),
            openapi_extra=pose_schema.PICTURE,
            summary="Find joints",
        )
        async def predict(request: Request, boxes: Boxes = None) -> Response:
            """The joints of every person in one image, in the order of their boxes."""
            with self.admitted():
                return JSONResponse(await self.predict(request, boxes))

        @app.post(
            "/attention",
            response_model=pose_schema.JointAttention,
            responses=refusals(403, 408, 413, 415, 422, 429, 500, 501, 503, 504),
            openapi_extra=pose_schema.PICTURE,
            summary="See where the queries of joints look",
        )
        async def attention(request: Request, boxes: Boxes = None) -> Response:
            """Where every layer looks from the patches in which it finds the joints of one person."""
            with self.admitted():
                return JSONResponse(await self.look(request, boxes))

    def described(self) -> dict[str, Any]:
        """The model's skeleton, how people are prepared for it, and the limits of a request."""
        predictor, skeleton = self.predictor, self.predictor.skeleton.complete
        return {
            "name": self.name,
            "engine": predictor.name,
            "joints": list(skeleton.joints),
            "limbs": [list(limb) for limb in drawn_limbs(skeleton)],
            "pairs": [list(pair) for pair in skeleton.pairs or ()],
            "attention": self._look is not None,
            "unseen": self.unseen,
            "preparation": predictor.preparation.model_dump(mode="json"),
            "limits": self._limits(),
        }

    async def predict(self, request: Request, boxes: str | None) -> dict[str, Any]:
        """The people in the picture of a request."""
        (cut,), joints = await self._people(request, boxes, self._queue, self.limits.items)
        skeleton = self.predictor.skeleton
        found = [
            {"bbox": list(box), **self._found(box, *each).to_json(skeleton)} for box, each in zip(cut.boxes, joints, strict=True)
        ]
        return {"size": list(cut.size), "people": found, "limbs": [list(limb) for limb in drawn_limbs(skeleton)]}

    async def look(self, request: Request, boxes: str | None) -> dict[str, Any]:
        """Where the queries of the joints of the one person look."""
        if self._look is None:
            raise ProblemError(501, f"this server cannot tell where the model looks: {self.unseen}")
        (cut,), (maps,) = await self._people(request, boxes, self._looks, 1)
        (width, height), (left, top, right, bottom) = cut.size, self.predictor.preparation.warp(cut.boxes[0]).seen
        seen = [left / width, top / height, right / width, bottom / height]
        return {"seen": seen, "joints": list(self.predictor.skeleton.joints), **maps}

    async def _people(
        self, request: Request, text: str | None, queue: Queue[np.ndarray, Any], most: int
    ) -> tuple[list[Cut], list[Any]]:
        """The people in the picture of a request, at ``most`` so many, and what the queue makes of each."""
        boxes = boxes_of(text, most)  # before the body is read
        with contextlib.ExitStack() as held:
            form = await self._received(request, held, queue, 1, (BOXES,))
            if text is not None and BOXES in form.fields:
                raise ProblemError(422, "boxes come twice", hint="send them as a parameter or in the form")
            boxes = boxes_of(form.fields.get(BOXES), most) if text is None else boxes
            pictures: list[Picture] = form.pictures
            work = Work(partial(self._cut, boxes=boxes), lambda cut: cut.pixels, len(boxes or [0]))
            return await self._answered(request, held, queue, pictures, work)

    def _cut(self, content: bytes, boxes: list[Box] | None) -> Cut:
        """The people of a picture, by their boxes or from rim to rim; raises `DataError`."""
        preparation = self.predictor.preparation
        picture = decode(content, channels=preparation.channels)
        chosen = [Box.of_picture(picture.size)] if boxes is None else boxes
        require_inside(chosen, picture.size, where="boxes")
        return Cut(picture.size, chosen, [preparation.cut_out(picture, box) for box in chosen])

    def _found(self, box: Box, places: np.ndarray, scores: np.ndarray) -> FoundPerson:
        outside = self.predictor.preparation.warp(box).outside(places)
        return FoundPerson(box, outside, scores, float(person_score(scores[None])[0]))

    def _answer(self, pixels: torch.Tensor) -> object:
        return self.predictor.joints(pixels)

    def _compute(self, values: list[np.ndarray]) -> Sequence[Joints]:
        places, scores = self.predictor.joints(torch.from_numpy(np.stack(values)))
        return [Joints(*each) for each in zip(places.numpy(), scores.numpy(), strict=True)]

    def _see(self, values: list[np.ndarray]) -> list[dict[str, Any]]:
        found = [encoded(self._looked(torch.from_numpy(pixels[None]))) for pixels in values]
        return [{name: value for name, value in maps.items() if name != "heads"} for maps in found]

    def _looked(self, pixels: torch.Tensor) -> torch.Tensor:
        """Maps of one image's pixels (1, C, H, W), as it stands however the model had to turn it: (layers, K, rows, columns)."""
        assert self._look is not None
        turns = self.predictor.turns(pixels)
        maps = self._look(turned(pixels, turns))
        return turned(maps, -turns.expand(len(maps)))
