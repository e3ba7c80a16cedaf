"""Pose models in a server: joints of the people in an image, and attention maps of the joints."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vitrail.data.images.box_preparation import Box
from vitrail.data.images.decode import SERVED, check_head, decode
from vitrail.deploy.predict import open_predictor
from vitrail.deploy.server.http.bodies import Images
from vitrail.deploy.server.http.limits import Limits
from vitrail.deploy.server.http.pages import Page
from vitrail.deploy.server.images import EXPORTED, Look, black, encoded, image_limits, image_tensors
from vitrail.deploy.server.opening import Model
from vitrail.deploy.server.operation import Computed, Operation, Prepared, ServerSettings
from vitrail.runtime.device import Precision
from vitrail.tasks.pose import schema
from vitrail.tasks.pose.answer import FoundPerson
from vitrail.tasks.pose.files.detections import require_inside
from vitrail.tasks.pose.heatmaps import turned
from vitrail.tasks.pose.metrics import person_score
from vitrail.tasks.pose.people.limbs import drawn_limbs
from vitrail.tasks.pose.predictor import PosePredictor
from vitrail.tasks.pose.study.joints import look_of_joints
from vitrail.weights.model_folder.folder import TrainedModel


class Settings(ServerSettings):
    """Options of a server of pose models."""

    precision: Precision | None = None
    engine: str = "auto"


def open_served(model: Model, settings: Settings) -> "ServedPoses":
    """Open a model of poses for a server."""
    predictor = open_predictor(model, settings.precision, engine=settings.engine)
    look, unseen = look_of_joints(model) if isinstance(model, TrainedModel) else (None, EXPORTED)
    return ServedPoses(predictor, settings.limits, look, unseen)


Boxes = list[Box] | None
"""Boxes of people; None if the image is one person."""
Joints = tuple[np.ndarray, np.ndarray]
"""Positions of one person's joints in the model's input, (K, 2), and scores, (K,)."""


class ServedPoses:
    """A served pose model. Requests are queued and batched by person, uint8 (C, H, W) each.

    Args:
        predictor: predicts the joints; used by one thread.
        limits: limits of a request.
        look: computes attention maps of the joints, in the same thread; None if there are none.
        unseen: the reason why there are no maps.
    """

    summary, items = "The joints of people in images, and where the model looked for them.", "people"
    document = schema.PoseModel
    page = Page(Path(__file__).parent / "page", "poses", "-F image=@team.jpg -F boxes='[[12, 30, 110, 240]]' ADDRESS/predict")

    def __init__(self, predictor: PosePredictor, limits: Limits, look: Look | None = None, unseen: str = EXPORTED):
        self.predictor, self.limits, self._look, self._unseen = predictor, limits, look, "" if look else unseen
        self.tensors = image_tensors(predictor, "heatmaps", len(predictor.skeleton.joints), -1, -1)
        check = partial(check_head, max_pixels=limits.pixels, formats=SERVED)
        of_people: dict[str, Any] = {
            "body": Images(1, check, schema.PICTURE, form_fields=("boxes",)),
            "fields": schema.BoxFields,
            "prepare": self._cut,
            "rows": lambda boxes: len(boxes or [0]),
        }
        self.operations = (
            Operation(
                path="/predict",
                summary="Find joints",
                description="The joints of every person in one image, in the order of their boxes.",
                document=schema.People,
                understand=lambda fields: schema.boxes_of(fields.boxes, limits.items),
                run=self._joints,
                answer=self._people,
                **of_people,
            ),
            Operation(
                path="/attention",
                summary="See where the queries of joints look",
                description="Where every layer looks from the patches in which it finds the joints of one person.",
                document=schema.JointAttention,
                understand=lambda fields: schema.boxes_of(fields.boxes, 1),
                run=self._maps,
                answer=self._looks,
                looks=True,
                unseen=self._unseen,
                **of_people,
            ),
        )

    def described(self) -> dict[str, Any]:
        """Return the model's skeleton, its preparation, and the limits of a request."""
        predictor, skeleton = self.predictor, self.predictor.skeleton.complete
        return {
            "engine": predictor.name,
            "joints": list(skeleton.joints),
            "limbs": [list(limb) for limb in drawn_limbs(skeleton)],
            "pairs": [list(pair) for pair in skeleton.pairs or ()],
            "attention": self._look is not None,
            "unseen": self._unseen,
            "preparation": predictor.preparation.model_dump(mode="json"),
            "limits": image_limits(self.limits, self.items),
        }

    def blank(self) -> np.ndarray:
        """Return a black image."""
        return black(self.predictor.preparation)

    def _cut(self, content: bytes, boxes: Boxes) -> Prepared[np.ndarray]:
        """Return crops of the people in an image, by boxes or the full image, with its size and boxes; raises `DataError`."""
        preparation = self.predictor.preparation
        image = decode(content, channels=preparation.channels)
        boxes = [Box.of_picture(image.size)] if boxes is None else boxes
        require_inside(boxes, image.size, where="boxes")
        return Prepared([preparation.cut_out(image, box) for box in boxes], (image.size, boxes))

    def _joints(self, rows: list[np.ndarray]) -> list[Joints]:
        places, scores = self.predictor.joints(torch.from_numpy(np.stack(rows)))
        return list(zip(places.numpy(), scores.numpy(), strict=True))

    def _people(self, boxes: Boxes, images: list[Computed[Joints]]) -> dict[str, Any]:
        ((_, (size, cut_out), joints),) = images
        people = [self._person(*each) for each in zip(cut_out, joints, strict=True)]
        limbs = [list(limb) for limb in drawn_limbs(self.predictor.skeleton)]
        return {"size": list(size), "people": people, "limbs": limbs}

    def _person(self, box: Box, joints: Joints) -> dict[str, Any]:
        places, scores = joints
        outside = self.predictor.preparation.warp(box).outside(places)
        person = FoundPerson(box, outside, scores, float(person_score(scores[None])[0]))
        return {"bbox": list(box), **person.to_json(self.predictor.skeleton)}

    def _maps(self, rows: list[np.ndarray]) -> list[dict[str, Any]]:
        maps = [encoded(self.looked(torch.from_numpy(pixels[None]))) for pixels in rows]
        return [{name: value for name, value in each.items() if name != "heads"} for each in maps]

    def looked(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return maps (layers, K, rows, columns) of pixels (1, C, H, W), turned back if the model turned the person."""
        assert self._look is not None
        turns = self.predictor.turns(pixels)
        maps = self._look(turned(pixels, turns))
        return turned(maps, -turns.expand(len(maps)))

    def _looks(self, boxes: Boxes, images: list[Computed[dict[str, Any]]]) -> dict[str, Any]:
        ((_, ((width, height), (box,)), (maps,)),) = images
        left, top, right, bottom = self.predictor.preparation.warp(box).seen
        seen = [left / width, top / height, right / width, bottom / height]
        return {"seen": seen, "joints": list(self.predictor.skeleton.joints), **maps}
