"""Graphs of models that make images: the same images as the model's, from what the graph itself says."""

import json

import numpy as np
import onnx
import pytest
import torch
from PIL import Image

import vitrail
from tiny_diffusion import model as tiny_diffusion
from vitrail.cli.app import main
from vitrail.deploy.bench.bench import bench
from vitrail.deploy.export.artefact import Description, graph_of
from vitrail.deploy.export.export_model import export
from vitrail.deploy.export.graph_files import description_in
from vitrail.deploy.predict import open_predictor
from vitrail.errors import ConfigError, ModelFileError
from vitrail.tasks.diffusion.sampling.making import open_diffusion, sample_batches
from vitrail.tasks.diffusion.sampling.options import Sampling

KINDS = {
    "onnx": {"objective": "velocity", "learned_variance": True, "time_shift": 1, "betas": "cosine", "steps": 50},
    "openvino": {"objective": "flow", "num_classes": 0, "image_size": (8, 4), "channels": 3},
}
"""Models of different processes, one for each kind of graph."""


@pytest.fixture(scope="module", params=KINDS)
def exported(request, tmp_path_factory):
    """A model, and the folder of its graph."""
    trained, out = tiny_diffusion(**KINDS[request.param]), tmp_path_factory.mktemp("graphs") / "graph"
    return trained, export(trained, out, to=request.param)[0]


@pytest.mark.parametrize("sampler", ["ddim", "dpm++", "heun"])
def test_a_graph_makes_the_models_images(exported, sampler):
    trained, folder = exported
    labels = [0, 1, 2, 1, 0] if trained.labels else [None] * 5
    sampling = Sampling(steps=4, sampler=sampler, guidance=2.0 if trained.labels else 1.0)
    expected, made = (torch.cat([*sample_batches(one, range(5), labels, sampling)]) for one in (trained, open_diffusion(folder)))
    torch.testing.assert_close(made, expected, atol=1e-4, rtol=1e-4)


def test_sample_takes_a_graph_like_a_run(exported, tmp_path, capsys):
    trained, folder = exported
    (picture,) = vitrail.sample(str(graph_of(folder)), count=1, seed=4, steps=3)
    main(["sample", str(folder), "--count", "1", "--seed", "4", "--steps", "3", "--out", str(tmp_path / "s"), "--json"])
    (row,) = json.loads(capsys.readouterr().out)
    assert row["class"] == (trained.labels or [None])[0]
    with Image.open(tmp_path / "s" / row["file"]) as written:
        np.testing.assert_array_equal(np.array(written), np.array(picture))


def test_a_graph_says_all_that_a_sampler_needs(exported):
    trained, folder = exported
    about = description_in(graph_of(folder))
    assert about.config == trained.config and list(about.labels) == trained.labels
    assert about.preparation == trained.preparation
    assert "vitrail sample" in (folder / "README.md").read_text()


def test_inputs_and_output_have_names_and_any_number_of_images(exported):
    trained, folder = exported
    inputs = [*trained.model.inputs()]
    if graph_of(folder).suffix == ".xml":
        assert [*description_in(graph_of(folder)).inputs] == inputs == ["images", "times"]
        return
    graph = onnx.load(folder / "model.onnx").graph
    assert [value.name for value in (*graph.input, *graph.output)] == [*inputs, "noise"] == ["images", "times", "labels", "noise"]
    assert all(value.type.tensor_type.shape.dim[0].dim_param for value in graph.input)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("denoiser", "Dit", "architecture 'Dit'"),
        ("denoiser", "ViT", "damaged"),
        ("fields", {"steps": 1}, "steps"),
        ("labels", ["ant"], "damaged"),
        ("pixels", True, "damaged"),
    ],
)
def test_a_damaged_description_is_refused(field, value, words, tmp_path):
    about = Description.of_model(tiny_diffusion(), "tiny", "fp32")
    values = json.loads(about.to_json())
    with pytest.raises(ModelFileError, match=words):
        Description.of(json.dumps({**values, field: value}), where=tmp_path)


def test_a_graph_of_another_shape_than_it_says_is_refused(exported):
    about = description_in(graph_of(exported[1]))
    for output in (np.zeros((2, 1, 2, 2), np.float32), np.zeros((1, *about.answer_shape[1:]), np.float32)):
        run = about.network(lambda *inputs, output=output: output)
        with pytest.raises(ModelFileError, match="for 2 images"):
            run(torch.zeros(2, *about.answer_shape[1:]), torch.zeros(2))


@pytest.mark.parametrize(
    ("options", "flag"),
    [
        ({"precision": "int8"}, "--precision"),
        ({"calibrate": "digits"}, "--calibrate"),
        ({"image_size": "any"}, "--image-size"),
        ({"fold": True}, "--fold-normalization"),
        ({"to": "triton"}, "--to triton"),
    ],
)
def test_what_a_graph_of_noise_cannot_be_is_refused_by_name(options, flag, tmp_path):
    with pytest.raises(ConfigError, match="makes images is exported in floats") as error:
        export(tiny_diffusion(), tmp_path / "graph", **options)
    assert flag in str(error.value) and not (tmp_path / "graph").exists()


def test_commands_that_predict_refuse_a_graph_that_makes_images(exported):
    _, folder = exported
    for command in (open_predictor, bench):
        with pytest.raises(ModelFileError, match="--task diffusion"):
            command(folder)
