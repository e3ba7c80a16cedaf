"""The documents of a server that finds joints, as OpenAPI describes them."""

from typing import Any

from pydantic import Field

from vitrail.deploy.server.pictures import FORM
from vitrail.deploy.server.schema import FILE, KINDS, Document
from vitrail.tasks.pose.server.request import EXAMPLE

Sides = Field(min_length=4, max_length=4, examples=[[12.0, 30.0, 110.0, 240.0]])


class FoundJoints(Document):
    """A person whose joints were found, as in COCO's results."""

    category_id: int
    """COCO's number of people."""
    bbox: list[float] = Sides
    """The box in which the joints were looked for: left, top, width, height in pixels of the upright picture."""
    score: float
    """How sure the model is of the person: the mean score of the joints that it is at all sure of."""
    keypoints: list[float]
    """Three numbers for each joint: x, y and how sure the model is of it. The centre of the first pixel is at (0, 0)."""
    joints: dict[str, list[float]] = Field(examples=[{"nose": [61.5, 48.0, 0.93]}])
    """The same by the names of the joints."""


class People(Document):
    """The people in the image of a request, in the order of their boxes."""

    size: list[int] = Field(min_length=2, max_length=2, examples=[[640, 480]])
    """Width and height of the upright picture."""
    people: list[FoundJoints]
    limbs: list[list[str]]
    """Pairs of joints that are drawn connected."""


class JointAttention(Document):
    """Where every layer looks from the patches in which the model finds the joints of a person."""

    joints: list[str]
    """Their names, in the order of the maps."""
    layers: int
    rows: int
    columns: int
    seen: list[float] = Field(min_length=4, max_length=4, examples=[[-0.1, 0.0, 0.4, 1.0]])
    """The part of the upright picture that the model sees: left, top, right, bottom as shares of its sides; perhaps beyond."""
    largest: list[list[float]]
    """The largest share of attention on one patch, by layer and joint."""
    maps: str = Field(json_schema_extra={"contentEncoding": "base64"})
    """A byte for every layer, joint, row and column, in this order, the mean of the heads; 255 is the largest of its map."""


class PoseLimits(Document):
    """What a request may ask for."""

    body: int
    """Bytes of its body."""
    people: int
    """Boxes in it."""
    pixels: int
    """Pixels of its image."""
    deadline: float
    """Seconds to its answer."""


class PoseModel(Document):
    """What finds joints."""

    name: str = Field(examples=["joints"])
    engine: str = Field(examples=["torch fp32"])
    joints: list[str]
    """Their names, in the order of keypoints."""
    limbs: list[list[str]]
    """Pairs of joints that are drawn connected."""
    pairs: list[list[str]]
    """Joints of the left side, each with its counterpart of the right side."""
    attention: bool
    """Whether /attention answers."""
    unseen: str
    """Why it does not; empty where it does."""
    preparation: dict[str, Any]
    """How a person becomes what the model takes."""
    limits: PoseLimits


PICTURE = {
    "requestBody": {
        "required": True,
        "description": "An image, or a form with one file and perhaps boxes; compressed no further.",
        "content": {
            **{kind: {"schema": FILE} for kind in KINDS},
            FORM: {
                "schema": {
                    "type": "object",
                    "properties": {"image": FILE, "boxes": {"type": "string", "examples": [EXAMPLE]}},
                    "required": ["image"],
                }
            },
        },
    }
}
