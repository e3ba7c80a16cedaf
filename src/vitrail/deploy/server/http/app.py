"""The ASGI application: the operations, state and page of a server at their paths."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from importlib.metadata import version
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import JSONResponse, Response

from vitrail.deploy.export.triton import repository_name
from vitrail.deploy.server import schema
from vitrail.deploy.server.http.access import Access
from vitrail.deploy.server.http.middleware import Middleware
from vitrail.deploy.server.http.open_inference import HEALTH, add_inference_protocol, infer
from vitrail.deploy.server.http.problems import answer_errors, stuck
from vitrail.deploy.server.operation import Operation
from vitrail.deploy.server.schema import refusals
from vitrail.deploy.server.service import Service

MAY_REFUSE = (403, 408, 413, 415, 422, 429, 500, 503, 504)
"""Error statuses of any request with a body."""
NEED_NO_TOKEN = ("/openapi.json", "/health", "/ready", *HEALTH)
"""Paths without a token, besides the page, which asks for it: the description, and the paths that load balancers check."""


def application(service: Service, access: Access, on_answer: Callable[[str], None] | None = None) -> Middleware:
    """Return the server as an ASGI application; call `Service.start` before the first request.

    ``on_answer`` gets a log line for each request.
    """

    @contextlib.asynccontextmanager
    async def watched(app: FastAPI) -> AsyncIterator[None]:
        watching = asyncio.ensure_future(service.look_after())
        yield
        watching.cancel()

    app = FastAPI(
        lifespan=watched,
        title="Vitrail",
        version=version("vitrail"),
        summary=service.task.summary,
        docs_url=None,  # FastAPI's pages load scripts from another site
        redoc_url=None,
        redirect_slashes=False,
    )
    answer_errors(app)
    operations = list(service.task.operations)
    if (tensors := service.task.tensors) is not None:
        operations.append(infer(repository_name(service.name), tensors, service.limits))
        service.add(operations[-1])
    for operation in operations:
        _add(app, service, operation)
    _state(app, service)
    add_inference_protocol(app, service)
    page = service.task.page.files()
    for path, (content, kind) in page.items():
        app.add_route(path, _file(content, kind), include_in_schema=False)
    _described(app, access)
    paths = frozenset(route.path for route in app.routes if hasattr(route, "path"))
    return Middleware(
        app,
        access=access,
        paths=paths,
        unguarded=frozenset((*page, *NEED_NO_TOKEN)),
        answered=service.metrics.answered,
        leaving=lambda: service.draining,
        on_answer=on_answer,
    )


def _add(app: FastAPI, service: Service, operation: Operation[Any, Any, Any]) -> None:
    """Add an operation to an application."""

    async def respond(request: Request, fields: Any) -> Response:
        return await service.respond(operation, request, fields)

    respond.__annotations__["fields"] = Annotated[operation.fields, Query()]
    looks = operation.looks or operation.may_lack_attention
    app.post(
        operation.path,
        name=operation.path.strip("/"),
        response_model=operation.document,
        responses=refusals(*MAY_REFUSE, *([501] if looks else [])),
        openapi_extra=operation.body.openapi,
        summary=operation.summary,
        description=operation.description,
    )(respond)


def _state(app: FastAPI, service: Service) -> None:
    @app.get("/model", response_model=service.task.document, responses=refusals(), summary="What answers")
    async def model() -> Response:
        """The model, its preparation of inputs, and the limits of a request."""
        return JSONResponse(service.described())

    @app.get("/health", response_model=schema.Status, responses=refusals(503), summary="Whether the server lives")
    async def health() -> Response:
        """Status 200, or 503 if only a restart of the server can help."""
        if service.watch.lost:
            raise stuck(str(service.watch.trouble))
        return JSONResponse({"status": "alive"})

    @app.get("/ready", response_model=schema.Status, responses=refusals(503), summary="Whether it takes requests")
    async def ready() -> Response:
        """Status 200, or 503 while the model takes too long for one batch or while the server shuts down."""
        service.require_ready()
        return JSONResponse({"status": "ready"})

    text: dict[int | str, dict[str, Any]] = {
        200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "The text format of Prometheus."}
    }
    responses: dict[int | str, dict[str, Any]] = {**refusals(), **text}

    @app.get("/metrics", response_class=Response, responses=responses, summary="Counters for Prometheus")
    async def metrics() -> Response:
        """Requests, batches, the queue, and the resources of the process."""
        return Response(service.metrics.text(), media_type=CONTENT_TYPE_LATEST)


def _file(content: bytes, kind: str) -> Any:
    async def file(request: Request) -> Response:
        return Response(content, media_type=kind, headers={"Cache-Control": "no-cache"})

    return file


def _described(app: FastAPI, access: Access) -> None:
    """Complete the OpenAPI description of the application with problem documents and the token."""
    described = app.openapi()
    problem = schema.ProblemDocument.model_json_schema(ref_template="#/components/schemas/{model}")
    described["components"]["schemas"][schema.ProblemDocument.__name__] = problem
    for unused in ("HTTPValidationError", "ValidationError"):
        described["components"]["schemas"].pop(unused, None)
    if access.token is not None:
        described["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        described["security"] = [{"token": []}]
