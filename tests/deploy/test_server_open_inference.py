"""The Open Inference Protocol, asked by Triton's own client."""

import numpy as np
import pytest
import torch
import tritonclient.http as triton
from server_running import Shades, client, serving
from tritonclient.utils import InferenceServerException

from vitrail.deploy.export.triton import repository_name
from vitrail.deploy.predictor import in_python
from vitrail.deploy.server.http.limits import Limits


@pytest.fixture(scope="module")
def predictor(model):
    return in_python(model)


@pytest.fixture(scope="module")
def server(predictor):
    with serving(predictor, Limits(items=4)) as found:
        yield found


@pytest.fixture(scope="module")
def asker(server):
    with triton.InferenceServerClient(server.url.removeprefix("http://")) as found:
        yield found


def tensor(values, kind="UINT8"):
    found = triton.InferInput("images", list(values.shape), kind)
    return found.set_data_from_numpy(values, binary_data=False)


def test_a_published_client_finds_the_model_its_tensors_and_its_health(asker, server):
    assert asker.is_server_live() and asker.is_server_ready() and asker.is_model_ready("tiny")
    assert not asker.is_model_ready("other")
    assert server.client.get("/v2/models/tiny/ready").json() == {"name": "tiny", "ready": True}
    assert asker.get_server_metadata()["name"] == "vitrail"
    metadata = asker.get_model_metadata("tiny")
    assert metadata["inputs"] == [{"name": "images", "datatype": "UINT8", "shape": [-1, 3, 32, 32]}]
    assert metadata["outputs"] == [{"name": "logits", "datatype": "FP32", "shape": [-1, 5]}]


def test_a_published_client_gets_the_networks_own_output(asker, predictor):
    pixels = np.random.default_rng(0).integers(0, 256, (3, 3, 32, 32), dtype=np.uint8)
    wanted = [triton.InferRequestedOutput("logits", binary_data=False)]
    found = asker.infer("tiny", [tensor(pixels)], outputs=wanted, request_id="7")
    assert found.get_response()["id"] == "7"
    expected = predictor.network(torch.from_numpy(pixels)).numpy()
    assert np.abs(found.as_numpy("logits") - expected).max() < 1e-4


@pytest.mark.parametrize(
    ("values", "kind", "reason"),
    [
        (np.zeros((1, 3, 8, 8), np.uint8), "UINT8", "expected images, UINT8"),
        (np.zeros((1, 3, 32, 32), np.float32), "FP32", "found the input images, FP32"),
        (np.zeros((5, 3, 32, 32), np.uint8), "UINT8", "expected 1 to 4"),
    ],
)
def test_tensors_that_do_not_fit_are_refused_with_the_reason(asker, values, kind, reason):
    with pytest.raises(InferenceServerException, match=reason):
        asker.infer("tiny", [tensor(values, kind)], outputs=[triton.InferRequestedOutput("logits", binary_data=False)])


@pytest.mark.parametrize("data", [[0.5] * 3072, [256] * 3072, [0], [[1], [2, 3]]])
def test_data_that_are_no_pixels_are_refused(server, data):
    sent = {"inputs": [{"name": "images", "datatype": "UINT8", "shape": [1, 3, 32, 32], "data": data}]}
    answer = server.client.post("/v2/models/tiny/infer", json=sent)
    assert answer.status_code == 400 and "whole numbers from 0 to 255" in answer.json()["error"]


def test_with_a_token_only_health_is_told_without_it():
    with serving(Shades().predictor, token="secret") as server, client(server.url) as stranger:
        answers = [stranger.get(f"/v2{path}").status_code for path in ("/health/live", "/health/ready", "", "/models/tiny")]
        assert answers == [200, 200, 401, 401]


def test_a_models_name_fits_in_a_path():
    assert [repository_name(name) for name in ("runs/photos", "hf:a/b c", "x")] == ["photos", "b-c", "x"]
