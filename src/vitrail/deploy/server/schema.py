"""JSON documents that every server returns, for OpenAPI."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from vitrail.deploy.server.http import problems


class Document(BaseModel):
    """Base of all documents."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class Status(Document):
    """The state of the server."""

    status: str = Field(examples=["ready"])


class ProblemDocument(Document):
    """An error, in the format of RFC 9457."""

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
    403: "The request comes from a page of another site.",
    408: "The body did not arrive in time.",
    413: "The body is too large, or has too many items.",
    415: "The type of the body is not supported.",
    421: "The Host is not this server.",
    422: "An image or text cannot be read, or a parameter is wrong. All mistakes are listed, and there is no result.",
    429: "The queue is full.",
    500: "The model failed.",
    501: "The model's attention is not available.",
    503: "The server is shutting down.",
    504: "The answer was not ready before the deadline.",
}


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return OpenAPI's description of an operation's errors: those with ``statuses``, and those of every operation."""
    schema = {"$ref": f"#/components/schemas/{ProblemDocument.__name__}"}
    responses: dict[int | str, dict[str, Any]] = {}
    for status in sorted({400, 401, 421, *statuses}):
        responses[status] = {"description": REASONS[status], "content": {problems.MEDIA_TYPE: {"schema": schema}}}
    if 429 in responses:
        seconds = {"description": "Seconds to wait.", "schema": {"type": "string"}}
        responses[429]["headers"] = {"Retry-After": seconds}
    return responses
