"""Errors as RFC 9457 has them: ``application/problem+json``, whatever went wrong."""

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
"""Seconds of the longest `Retry-After`: what waits is done by then, or beyond its deadline."""
TOLD = 20
"""Number of mistakes of one request that are listed."""
GONE = 499
"""What counts as the status of a request whose client has gone."""


class ProblemError(Exception):
    """A request that is not answered, and why.

    Args:
        status: of HTTP.
        detail: what happened.
        hint: what to do.
        headers: of the response.
        members: further members of the document.
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
        """The response that describes it."""
        return JSONResponse(self.content, self.content["status"], self.headers, MEDIA_TYPE)


def busy(seconds: float) -> ProblemError:
    """No place in the queue, and when there may be one."""
    headers = {"Retry-After": str(max(1, math.ceil(min(seconds, LATEST))))}
    return ProblemError(429, "the server is busy", hint="try again after the seconds of Retry-After", headers=headers)


def shutting_down() -> ProblemError:
    """Nothing is taken any more."""
    return ProblemError(503, "the server is shutting down", hint="ask another one", headers={"Retry-After": "5"})


def stuck(why: str) -> ProblemError:
    """Nothing is computed."""
    return ProblemError(503, why, hint="ask another server, or this one later", headers={"Retry-After": "5"})


def unseen(why: str, *, hint: str | None = None) -> ProblemError:
    """The refusal to tell where the model looks."""
    return ProblemError(501, f"this server cannot tell where the model looks: {why}", hint=hint)


def mistaken(found: Sequence[Mapping[str, Any]], *, within: tuple[str, ...] = (), hint: str | None = None) -> ProblemError:
    """A request that is not as it should be, by pydantic's errors; ``within`` is where their places begin.

    An answer with all of them could be many times as large as its request: it says how many more there are.
    """
    errors = [{"where": ".".join(map(str, (*within, *each["loc"]))), "reason": each["msg"]} for each in found[:TOLD]]
    more = f"; {len(found) - 1:,} more mistakes" if len(found) > TOLD else ""
    return ProblemError(422, f"{errors[0]['where']}: {errors[0]['reason']}{more}", hint=hint, errors=errors)


def _problem_of(request: Request, error: Any) -> ProblemError:
    """Return the problem that an error is."""
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
            hint = "send less at a time, or when the server is less busy"
            return ProblemError(504, "there was no answer before the deadline", hint=hint)
    return ProblemError(500, str(error) if isinstance(error, FailedError) else "an unforeseen error")


def answer_errors(app: FastAPI) -> None:
    """Have an application answer every error with a problem; the Open Inference Protocol reads it under ``error``."""

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
