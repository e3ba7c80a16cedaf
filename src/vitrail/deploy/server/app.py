"""The application: what is at which path."""

from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import JSONResponse, Response

from vitrail.deploy.server import schema
from vitrail.deploy.server.edge import Access, Edge
from vitrail.deploy.server.problems import shutting_down, tell_problems
from vitrail.deploy.server.schema import IMAGES, refusals
from vitrail.deploy.server.service import Service

PAGE = Path(__file__).parent / "page"
FILES = {
    "/": ("page.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
MOST_LABELS = 100
Top = Annotated[int, Query(ge=1, le=MOST_LABELS, description="Labels per image.")]


def application(service: Service, access: Access) -> Edge:
    """The server as an ASGI application; `Service.start` comes before the first request."""
    app = FastAPI(
        title="Vitrail",
        version=version("vitrail"),
        summary="Labels of images, and where the model looked.",
        docs_url=None,  # they would load their scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    tell_problems(app)
    _operations(app, service)
    _state(app, service)
    _page(app)
    _described(app, access)
    paths = frozenset(route.path for route in app.routes if hasattr(route, "path"))
    return Edge(app, access=access, paths=paths, answered=service.metrics.answered, leaving=lambda: service.draining)


def _operations(app: FastAPI, service: Service) -> None:
    @app.post(
        "/predict",
        response_model=schema.Predictions,
        responses=refusals(403, 408, 413, 415, 422, 429, 500, 503, 504),
        openapi_extra=IMAGES,
        summary="Label images",
    )
    async def predict(request: Request, top: Top = 5) -> Response:
        """The best labels of every image. Either all images are answered or, with the reasons, none."""
        with service.admitted():
            found = await service.predict(request, top)
        several = service.predictor.multi_label
        return JSONResponse({"predictions": [answer.to_json(name, several=several) for name, answer in found]})

    @app.post(
        "/attention",
        response_model=schema.Attention,
        responses=refusals(403, 408, 413, 415, 422, 429, 500, 501, 503, 504),
        openapi_extra=IMAGES,
        summary="See where the model looks",
    )
    async def attention(request: Request) -> Response:
        """Where every head of every layer looks in one image."""
        with service.admitted():
            return JSONResponse(await service.look(request))

    @app.get("/model", response_model=schema.Model, responses=refusals(), summary="What answers")
    async def model() -> Response:
        """The model's labels, how images are prepared for it, and the limits of a request."""
        predictor, limits = service.predictor, service.limits
        return JSONResponse(
            {
                "name": service.name,
                "engine": predictor.name,
                "labels": predictor.labels,
                "multi_label": predictor.multi_label,
                "attention": service.sees,
                "unseen": service.unseen,
                "preparation": predictor.preparation.model_dump(mode="json"),
                "limits": {"body": limits.body, "images": limits.images, "deadline": limits.deadline},
            }
        )


def _state(app: FastAPI, service: Service) -> None:
    @app.get("/health", response_model=schema.Status, responses=refusals(), summary="Whether the server lives")
    async def health() -> Response:
        """It answers, so it does."""
        return JSONResponse({"status": "alive"})

    @app.get("/ready", response_model=schema.Status, responses=refusals(503), summary="Whether it takes requests")
    async def ready() -> Response:
        """Not any more once it is shutting down."""
        if service.draining:
            raise shutting_down()
        return JSONResponse({"status": "ready"})

    text: dict[int | str, dict[str, Any]] = {
        200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "The text format of Prometheus."}
    }
    responses: dict[int | str, dict[str, Any]] = {**refusals(), **text}

    @app.get("/metrics", response_class=Response, responses=responses, summary="Counters for Prometheus")
    async def metrics() -> Response:
        """Requests, batches, what waits, and what the process takes."""
        return Response(service.metrics.text(), media_type=CONTENT_TYPE_LATEST)


def _page(app: FastAPI) -> None:
    for path, (name, kind) in FILES.items():
        app.add_route(path, _file((PAGE / name).read_bytes(), kind), include_in_schema=False)


def _file(content: bytes, kind: str) -> Any:
    async def file(request: Request) -> Response:
        return Response(content, media_type=kind, headers={"Cache-Control": "no-cache"})

    return file


def _described(app: FastAPI, access: Access) -> None:
    """Add to the description of the application what FastAPI cannot know."""
    described = app.openapi()
    problem = schema.ProblemDocument.model_json_schema(ref_template="#/components/schemas/{model}")
    described["components"]["schemas"][schema.ProblemDocument.__name__] = problem
    for unused in ("HTTPValidationError", "ValidationError"):
        described["components"]["schemas"].pop(unused, None)
    if access.token is not None:
        described["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        described["security"] = [{"token": []}]
