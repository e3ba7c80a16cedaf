"""What the tests of exported models share."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from server_browser import browsing
from server_running import tiny

import vitrail
from deploy.small import small_model
from vitrail import api
from vitrail.deploy import predictor
from vitrail.deploy.export import export_model
from vitrail.deploy.export.export import Verified, Written
from vitrail.study.maps.attention import look_of
from vitrail.tasks.translation.weights import TrainedTranslator
from vitrail.weights.model_folder.folder import TrainedModel


@pytest.fixture(scope="session")
def trained() -> TrainedModel:
    return small_model()


@pytest.fixture(scope="session")
def labelled(tmp_path_factory) -> Path:
    """A folder of labelled images, of classes that the model tells apart as it likes."""
    folder, random = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)
    for label in range(5):
        (folder / f"label {label}").mkdir()
        for number in range(8):
            noise = random.integers(0, 255, (40, 50, 3), dtype=np.uint8)
            Image.fromarray(noise).save(folder / f"label {label}" / f"{number}.png")
    return folder


@pytest.fixture(scope="session")
def saved(tmp_path_factory) -> Path:
    """The folder of a small model."""
    folder = tmp_path_factory.mktemp("model") / "small"
    small_model().save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def exported(saved, labelled, tmp_path_factory):
    """Its folder in int8, and what was measured."""
    folder = tmp_path_factory.mktemp("exported") / "int8"
    return api.export(saved, folder, to="openvino", precision="int8", calibrate=labelled, merge=(4,), fold=True, force=True)


@pytest.fixture
def in_python(monkeypatch):
    """What is exported is the model as it is, where only what becomes of its answers counts: tracing takes seconds."""

    def written(trained, about, to, folder, images=None):
        (folder / "model").touch()
        named = replace(predictor.in_python(trained), name=f"{to} {about.precision}")
        return Written(named, Verified((1,), 0.0, 1.0), floats=None)

    monkeypatch.setattr(export_model, "export_graph", written)


@pytest.fixture(scope="module")
def model() -> TrainedModel:
    """What a server answers with."""
    return tiny()


@pytest.fixture(scope="module")
def look(model):
    """What tells where it looks."""
    found, _ = look_of(model)
    return found


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """A page in a Chromium, for all tests that look at one."""
    with browsing(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="session")
def unseeing(translator) -> TrainedTranslator:
    """A translator without attention, which has learned nothing."""
    torch.manual_seed(0)
    sizes = {"dim": 16, "hidden_dim": 24, "vocabulary": len(translator.preparation)}
    model = vitrail.create_model("LSTM", **sizes).eval()
    return TrainedTranslator(model, translator.preparation, translator.languages)
