"""All errors as problem documents of RFC 9457, ``application/problem+json``."""

import math
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response

from vitrail.deploy.server.queue import FailedError, FullError
from vitrail.errors import DataError

MEDIA_TYPE = "application/problem+json"
LATEST = 60.0
"""The longest ``Retry-After``, in seconds: by then all waiting requests are answered, or have exceeded their deadline."""
TOLD = 20
"""Most mistakes of one request that are listed."""
GONE = 499
"""Status that is counted for a request whose client has disconnected."""


class ProblemError(Exception):
    """An error response to a request.

    Args:
        status: HTTP status.
        detail: what happened.
        hint: what to do.
        headers: headers of the response.
        members: further members of the problem document.
    """

    def __init__(
        self, status: int, detail: str, *, hint: str | None = None, headers: dict[str, str] | None = None, **members: Any
    ):
        super().__init__(detail)
        self.headers = headers
        self.content = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail, **members}
        if hint is not None:
            self.content["hint"] = hint

    @property
    def response(self) -> JSONResponse:
        """The response with the problem document."""
        return JSONResponse(self.content, self.content["status"], self.headers, MEDIA_TYPE)


def busy(seconds: float) -> ProblemError:
    """The error for a full queue; ``seconds`` until there may be room."""
    headers = {"Retry-After": str(max(1, math.ceil(min(seconds, LATEST))))}
    return ProblemError(429, "the server is busy", hint="try again after the seconds in Retry-After", headers=headers)


def shutting_down() -> ProblemError:
    """The error while the server shuts down."""
    return ProblemError(503, "the server is shutting down", hint="use another server", headers={"Retry-After": "5"})


def stuck(why: str) -> ProblemError:
    """The error while the model computes nothing."""
    return ProblemError(503, why, hint="use another server, or try again later", headers={"Retry-After": "5"})


def unseen(why: str, *, hint: str | None = None) -> ProblemError:
    """The error for a request for attention maps that this server cannot compute."""
    return ProblemError(501, f"this server cannot show where the model looks: {why}", hint=hint)


def mistaken(found: Sequence[Mapping[str, Any]], *, within: tuple[str, ...] = (), hint: str | None = None) -> ProblemError:
    """The error for an invalid request, from pydantic's errors; ``within`` is prepended to their locations.

    At most `TOLD` errors are listed, with the number of the others: a list of all could be much larger than the request.
    """
    errors = [{"where": ".".join(map(str, (*within, *each["loc"]))), "reason": each["msg"]} for each in found[:TOLD]]
    more = f"; {len(found) - 1:,} more mistakes" if len(found) > TOLD else ""
    return ProblemError(422, f"{errors[0]['where']}: {errors[0]['reason']}{more}", hint=hint, errors=errors)


def _problem_of(request: Request, error: Any) -> ProblemError:
    """Return the problem document's error for any exception."""
    match error:
        case ProblemError():
            return error
        case HTTPException():
            details = {
                404: f"there is nothing at {request.url.path}",
                405: f"{request.method} does not work at {request.url.path}",
            }
            return ProblemError(
                error.status_code, details.get(error.status_code, error.detail), headers=dict(error.headers or {})
            )
        case RequestValidationError():
            return mistaken(error.errors())
        case FullError():
            return busy(error.seconds)
        case DataError():
            return ProblemError(422, error.what, hint=error.hint)
        case TimeoutError():
            hint = "send less at a time, or try again when the server is less busy"
            return ProblemError(504, "the answer was not ready before the deadline", hint=hint)
    return ProblemError(500, str(error) if isinstance(error, FailedError) else "an unforeseen error")


def answer_errors(app: FastAPI) -> None:
    """Make an application answer every error with a problem document; for the Open Inference Protocol it has ``error``, too."""

    async def answered(request: Request, error: Exception) -> Response:
        if isinstance(error, ClientDisconnect):
            return Response(status_code=GONE)
        problem = _problem_of(request, error)
        if request.url.path.startswith("/v2/"):
            problem.content["error"] = problem.content["detail"]
        return problem.response

    kinds = (ClientDisconnect, ProblemError, HTTPException, RequestValidationError, FullError, DataError, TimeoutError)
    for kind in (*kinds, FailedError, Exception):
        app.add_exception_handler(kind, answered)
