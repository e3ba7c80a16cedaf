"""A model of latents behind a graph, in a server and in a study: its VAE is found by what it says of itself."""

import base64
import io
import json

import numpy as np
import pytest
import torch
from PIL import Image

from tiny_diffusion import model
from tiny_vae import CHANNELS, FACTOR, write_vae
from vitrail.data.images.preparation import Preparation
from vitrail.deploy.export.artefact import Description
from vitrail.deploy.server.http.limits import Limits
from vitrail.deploy.server.operation import Computed
from vitrail.study.sections.request import StudyRequest
from vitrail.tasks.diffusion.sampling.making import sample
from vitrail.tasks.diffusion.schema import ToSample
from vitrail.tasks.diffusion.service import ServedSamples
from vitrail.tasks.diffusion.study.sections import DiffusionStudy, subjects_for
from vitrail.tasks.diffusion.weights import require_diffusion


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    made = model(channels=CHANNELS)
    made.preparation = Preparation.standard((8 * FACTOR, 8 * FACTOR), 3)
    made.latents = str(write_vae(tmp_path_factory.mktemp("vae") / "vae"))
    return require_diffusion(made, "model")


def test_a_graph_names_the_vae_and_makes_the_same_pictures(trained, tmp_path):
    about = Description.of(Description.of_model(trained, "tiny", "fp32").to_json(), where=tmp_path)
    assert about.inputs["images"] == ("float32", (None, CHANNELS, 8, 8))

    def session(*inputs):
        with torch.no_grad():
            return trained.model(*map(torch.from_numpy, inputs)).numpy()

    graph = about.predictor(about.network(session), "onnxruntime fp32")
    for made, expected in zip(*(sample(one, count=2, steps=2) for one in (graph, trained)), strict=True):
        assert made.size == (8 * FACTOR, 8 * FACTOR)
        np.testing.assert_array_equal(np.array(made), np.array(expected))


def test_a_server_decodes_latents(trained):
    served = ServedSamples(trained, Limits())
    fields = ToSample.model_validate_json(json.dumps({"class": "bee", "seed": 4, "steps": 1}))
    prepared = served._begun(b"", fields)
    answer = served._images(fields, [Computed("body", prepared.context, served._advanced(prepared.rows))])
    with Image.open(io.BytesIO(base64.b64decode(answer["images"][0]["png"]))) as picture:
        (expected,) = sample(trained, classes=["bee"], count=1, seed=4, steps=1)
        np.testing.assert_allclose(np.array(picture, float), np.array(expected, float), atol=1)
    assert served.described()["size"] == [8 * FACTOR, 8 * FACTOR]


def test_a_study_sees_the_latents_of_a_picture_and_shows_pictures(trained, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (8 * FACTOR, 8 * FACTOR, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "one.png")
    request = StudyRequest(trained, tmp_path / "one.png")
    study = DiffusionStudy(tmp_path, trained, subjects_for(trained, request)[1], request)
    latents = trained.prepared(tmp_path / "one.png")
    (seen,) = study.seen.values()
    (expected,) = trained.pictures(study.process.noisy(latents, noise(latents), torch.tensor([999.0])))
    np.testing.assert_allclose(np.array(seen[0].noisy, float), np.array(expected, float), atol=1)
    assert seen[0].estimate.size == (8 * FACTOR, 8 * FACTOR)


def noise(latents):
    return torch.randn(latents.shape, generator=torch.Generator().manual_seed(0))
