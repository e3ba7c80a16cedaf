"""The Open Inference Protocol, used by clients of Triton and KServe: a model's tensors as JSON.

https://kserve.github.io/website/docs/concepts/architecture/data-plane/v2-protocol
"""

from collections.abc import Awaitable, Callable
from importlib.metadata import version
from math import prod
from typing import Any

import numpy as np
import torch
from fastapi import FastAPI
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse, Response

from vitrail.deploy.export.triton import repository_name
from vitrail.deploy.server.http.bodies import Json
from vitrail.deploy.server.http.limits import Limits
from vitrail.deploy.server.http.problems import ProblemError, stuck
from vitrail.deploy.server.operation import Computed, Operation, Prepared, TensorModel
from vitrail.deploy.server.schema import Document, refusals
from vitrail.deploy.server.service import Service

Handler = Callable[..., Awaitable[Response]]
BASE = "/v2"
HEALTH = (f"{BASE}/health/live", f"{BASE}/health/ready")


class InputTensor(BaseModel):
    """A tensor of a request."""

    name: str
    shape: list[int] = Field(min_length=1, max_length=8)
    datatype: str
    parameters: dict[str, Any] = {}
    data: list[Any]
    """Numbers in row-major order, flat or nested."""


class InferRequest(Document):
    """A request for outputs of the model."""

    id: str = ""
    parameters: dict[str, Any] = Field({})
    inputs: list[InputTensor] = Field(min_length=1, max_length=1)
    outputs: list[dict[str, Any]] = Field([])


class InferResponse(Document):
    """The outputs of the model."""

    id: str
    model_name: str
    outputs: list[dict[str, Any]]


def infer(name: str, model: TensorModel, limits: Limits) -> Operation[Any, Any, Any]:
    """Return the operation that computes a model's output tensor from its input tensor."""

    def prepare(content: bytes, request: InferRequest) -> Prepared[np.ndarray]:
        return Prepared(list(_pixels(request.inputs[0], model, limits.items)))

    def run(rows: list[np.ndarray]) -> list[np.ndarray]:
        return list(model.network(torch.from_numpy(np.stack(rows))).numpy())

    def answer(request: InferRequest, parts: list[Computed[np.ndarray]]) -> dict[str, Any]:
        output = np.stack(parts[0].outputs)
        tensor = {"name": model.output, "datatype": "FP32", "shape": list(output.shape), "data": output.ravel().tolist()}
        return {"id": request.id, "model_name": name, "outputs": [tensor]}

    def understood(request: InferRequest) -> InferRequest:
        for output in request.outputs:
            if output.get("name") != model.output or output.get("parameters", {}).get("binary_data"):
                what = f"found the output {output}; expected {model.output}, in JSON"
                raise ProblemError(400, what, hint="request it without binary_data")
        return request

    return Operation(
        path=f"{BASE}/models/{name}/infer",
        summary="Compute tensors",
        description="The output of the network for images as it takes them, by the Open Inference Protocol.",
        body=Json(InferRequest, '{"inputs": [{"name": "images", "shape": […], "datatype": "UINT8", "data": […]}]}'),
        document=InferResponse,
        understand=understood,
        prepare=prepare,
        rows=None,
        run=run,
        answer=answer,
    )


def _pixels(tensor: InputTensor, model: TensorModel, most: int) -> np.ndarray:
    """Return the images of a request, uint8 (B, C, H, W); raises `ProblemError` for any other tensor."""
    shape = tuple(tensor.shape)
    if (tensor.name, tensor.datatype, shape[1:]) != ("images", "UINT8", model.shape):
        what = f"found the input {tensor.name}, {tensor.datatype} {list(shape)}; expected images, UINT8 {[-1, *model.shape]}"
        raise ProblemError(400, what, hint="see the model's metadata")
    if not 0 < shape[0] <= most:
        raise ProblemError(400, f"found {shape[0]} images; expected 1 to {most}", hint="send them in several requests")
    try:
        values = np.asarray(tensor.data)
        if values.dtype.kind not in "iu" or values.size != prod(shape) or values.min() < 0 or values.max() > 255:
            raise ValueError
    except (ValueError, OverflowError):
        raise ProblemError(400, f"the data are not {prod(shape):,} whole numbers from 0 to 255") from None
    return values.astype(np.uint8).reshape(shape)


def add_inference_protocol(app: FastAPI, service: Service) -> None:
    """Add the protocol's paths for metadata and health to an application; `infer` is added as an operation of the service."""
    name, model = repository_name(service.name), service.task.tensors

    def require(requested: str) -> None:
        if requested != name:
            raise ProblemError(404, f"there is no model {requested}; expected {name}")

    def get(path: str, summary: str) -> Callable[[Handler], Handler]:
        return app.get(path, response_model=dict[str, Any], responses=refusals(404, 503), summary=summary)

    @get(HEALTH[0], "Whether the server lives")
    async def live() -> Response:
        if service.watch.lost:
            raise stuck(str(service.watch.trouble))
        return JSONResponse({"live": True})

    @get(HEALTH[1], "Whether the server takes requests")
    async def server_ready() -> Response:
        service.require_ready()
        return JSONResponse({"ready": True})

    @get(BASE, "The server")
    async def server_metadata() -> Response:
        return JSONResponse({"name": "vitrail", "version": version("vitrail"), "extensions": []})

    @get(BASE + "/models/{requested}", "The model's inputs and outputs")
    async def model_metadata(requested: str) -> Response:
        require(requested)
        inputs = [] if model is None else [{"name": "images", "datatype": "UINT8", "shape": [-1, *model.shape]}]
        outputs = [] if model is None else [{"name": model.output, "datatype": "FP32", "shape": list(model.output_shape)}]
        platform = f"vitrail_{service.described()['engine'].split()[0]}"
        return JSONResponse({"name": name, "versions": ["1"], "platform": platform, "inputs": inputs, "outputs": outputs})

    @get(BASE + "/models/{requested}/ready", "Whether the model takes requests")
    async def model_ready(requested: str) -> Response:
        require(requested)
        service.require_ready()
        return JSONResponse({"name": name, "ready": True})
