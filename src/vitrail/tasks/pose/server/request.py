"""The boxes of people in a request."""

from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import from_json

from vitrail.data.images.box_preparation import Box
from vitrail.deploy.server.http.problems import ProblemError, mistaken

EXAMPLE = "[[12, 30, 110, 240]]"
HINT = f"a box is left, top, width and height in pixels: boxes={EXAMPLE}"

_LIST: TypeAdapter[list[list[float]]] = TypeAdapter(
    list[Annotated[list[Annotated[float, Field(allow_inf_nan=False)]], Field(min_length=4, max_length=4)]]
)


def boxes_of(text: str | None, most: int) -> list[Box] | None:
    """The boxes that JSON tells, at ``most`` so many; None for none, where the picture is one person.

    Raises:
        ProblemError: it is no list of boxes, or they are too many.
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
        found = error.errors(include_url=False, include_context=False, include_input=False)
        raise mistaken(found, within=("boxes",), hint=HINT) from None
