"""OpenAPI documents of a server of pose models, and the boxes of a request."""

from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import from_json

from vitrail.data.images.box_preparation import Box
from vitrail.deploy.server.http.problems import ProblemError, mistaken
from vitrail.deploy.server.images import FILE, image_request
from vitrail.deploy.server.schema import Document

EXAMPLE = "[[12, 30, 110, 240]]"
HINT = f"a box is left, top, width and height in pixels: boxes={EXAMPLE}"

_LIST: TypeAdapter[list[list[float]]] = TypeAdapter(
    list[Annotated[list[Annotated[float, Field(allow_inf_nan=False)]], Field(min_length=4, max_length=4)]]
)
Sides = Field(min_length=4, max_length=4, examples=[[12.0, 30.0, 110.0, 240.0]])


class BoxFields(Document):
    """The fields of a pose request in addition to its image."""

    boxes: str | None = Field(
        None,
        description="Left, top, width and height of the box around each person, in pixels of the upright picture, as JSON; "
        "without it the picture is one person. A form may have it as a field.",
        examples=[EXAMPLE],
    )


class FoundJoints(Document):
    """A person with predicted joints, as in COCO's results."""

    category_id: int
    """COCO's category id of people."""
    bbox: list[float] = Sides
    """The person's box: left, top, width, height in pixels of the upright image."""
    score: float
    """Confidence in the person: the mean score of the joints above a low threshold."""
    keypoints: list[float]
    """Three numbers per joint: x, y and the model's confidence. The centre of the first pixel is at (0, 0)."""
    joints: dict[str, list[float]] = Field(examples=[{"nose": [61.5, 48.0, 0.93]}])
    """The same numbers by the names of the joints."""


class People(Document):
    """The people in the image of a request, in the order of their boxes."""

    size: list[int] = Field(min_length=2, max_length=2, examples=[[640, 480]])
    """Width and height of the upright image."""
    people: list[FoundJoints]
    limbs: list[list[str]]
    """Pairs of joints that are drawn as connected."""


class JointAttention(Document):
    """Attention of every layer from the patches in which the model finds a person's joints."""

    joints: list[str]
    """Names of the joints, in the order of the maps."""
    layers: int
    rows: int
    columns: int
    seen: list[float] = Field(min_length=4, max_length=4, examples=[[-0.1, 0.0, 0.4, 1.0]])
    """The part of the upright image that the model sees: left, top, right, bottom as fractions of its sides; maybe beyond."""
    largest: list[list[float]]
    """The largest fraction of attention on one patch, by layer and joint."""
    maps: str = Field(json_schema_extra={"contentEncoding": "base64"})
    """A byte per layer, joint, row and column, in this order, averaged over heads; 255 is the maximum of each map."""


class PoseLimits(Document):
    """The limits of a request."""

    body: int
    """Maximum bytes of the body."""
    people: int
    """Maximum number of boxes."""
    pixels: int
    """Maximum pixels of the image."""
    deadline: float
    """Maximum seconds until the response."""


class PoseModel(Document):
    """The served pose model."""

    name: str = Field(examples=["joints"])
    engine: str = Field(examples=["torch fp32"])
    joints: list[str]
    """Names of the joints, in the order of keypoints."""
    limbs: list[list[str]]
    """Pairs of joints that are drawn as connected."""
    pairs: list[list[str]]
    """Pairs of a joint on the left side and its counterpart on the right."""
    attention: bool
    """True if /attention is available."""
    unseen: str
    """The reason why it is not available; empty if it is."""
    preparation: dict[str, Any]
    """Preparation of a person as the model's input."""
    limits: PoseLimits


BOXES = {"type": "string", "examples": [EXAMPLE]}
PICTURE = image_request("one file and perhaps boxes", image=FILE, boxes=BOXES)


def boxes_of(text: str | None, most: int) -> list[Box] | None:
    """Read boxes from JSON, at most ``most``; None without any, when the image is one person.

    Raises:
        ProblemError: the text is not a list of boxes, or there are too many.
    """
    if text is None:
        return None
    try:
        values: Any = from_json(text, allow_inf_nan=False)
    except (ValueError, RecursionError) as error:
        raise ProblemError(422, f"boxes are no JSON: {error}", hint=HINT) from None
    if not isinstance(values, list) or not values:
        what = "the list of boxes is empty" if values == [] else "boxes are no list"
        raise ProblemError(422, what, hint=f"{HINT}; without any the picture is one person")
    if len(values) > most and isinstance(values[0], list):  # else it may be a single box
        what = f"there are {len(values):,} boxes, and the most at a time is {most}"
        raise ProblemError(413, what, hint="send them in several requests")
    try:
        return [Box(*sides) for sides in _LIST.validate_python(values, strict=True)]
    except ValidationError as error:
        mistakes = error.errors(include_url=False, include_context=False, include_input=False)
        raise mistaken(mistakes, within=("boxes",), hint=HINT) from None
