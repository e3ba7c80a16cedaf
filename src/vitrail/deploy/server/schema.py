"""The documents that every server answers with, as OpenAPI describes them."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from vitrail.deploy.server.http import problems


class Document(BaseModel):
    """Base of all of them."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class Status(Document):
    """The state of the server."""

    status: str = Field(examples=["ready"])


class ProblemDocument(Document):
    """An error, as RFC 9457 has it."""

    type: str = Field(examples=["about:blank"])
    title: str = Field(examples=["Too Many Requests"])
    status: int = Field(examples=[429])
    detail: str = Field(examples=["the server is busy"])
    """What happened."""
    hint: str | None = None
    """What to do."""
    errors: list[dict[str, Any]] | None = None
    """What is wrong with each image or parameter."""


REASONS = {
    400: "The request is malformed.",
    401: "The token is missing or wrong.",
    404: "There is no such model.",
    403: "A page of another site asks.",
    408: "The body did not come in time.",
    413: "The body is too large, or there is too much in it.",
    415: "The body is not of a type that is read here.",
    421: "The Host is not this server.",
    422: "Something cannot be read, or a parameter is wrong: all that is wrong, and nothing is answered.",
    429: "The queue is full.",
    500: "The model failed.",
    501: "The model's attention cannot be seen.",
    503: "The server is shutting down.",
    504: "There was no answer before the deadline.",
}


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the errors of an operation, beside those that any may have."""
    schema = {"$ref": f"#/components/schemas/{ProblemDocument.__name__}"}
    responses: dict[int | str, dict[str, Any]] = {}
    for status in sorted({400, 401, 421, *statuses}):
        responses[status] = {"description": REASONS[status], "content": {problems.MEDIA_TYPE: {"schema": schema}}}
    if 429 in responses:
        seconds = {"description": "Seconds to wait.", "schema": {"type": "string"}}
        responses[429]["headers"] = {"Retry-After": seconds}
    return responses
