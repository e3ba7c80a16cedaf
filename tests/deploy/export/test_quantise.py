"""In int8 a graph answers nearly as before, and faster products are really there."""

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from deploy.small import described, pixels_for, small_model
from vitrail.deploy.bench.engines import open_graph
from vitrail.deploy.bench.libraries import openvino
from vitrail.deploy.export import export
from vitrail.deploy.export.export import Network, Written, export_graph, to_openvino, trace
from vitrail.deploy.export.quantise import _origin, _sums_of_convolutions, last_products, quantise_openvino
from vitrail.deploy.problems import ExportError
from vitrail.weights.model_folder.folder import TrainedModel


@pytest.fixture(scope="module")
def merged() -> TrainedModel:
    """A model that merges tokens."""
    return small_model(dim=64, mlp_dim=128, token_merging="4")


@pytest.fixture(scope="module", params=["onnx", "openvino"])
def quantised(merged, request, tmp_path_factory) -> tuple[str, Path, Written]:
    """It in int8, for an engine: which, its folder, and what was written."""
    folder = tmp_path_factory.mktemp(request.param)
    return request.param, folder, export_graph(merged, described(merged, "int8"), request.param, folder, pixels_for(merged, 16))


def test_int8_answers_nearly_as_the_model_does(merged, quantised):
    to, folder, written = quantised
    engine = {"onnx": "onnxruntime"}.get(to, to)
    pixels = pixels_for(merged, 24)
    assert written.floats is not None and "floats" in written.floats.name
    expected = merged.model(merged.preparation.normalize(pixels)).detach()
    found = open_graph(next(folder.glob("model.[ox]*")), engine).logits(pixels)
    difference = (found - expected).abs().mean() / expected.std()
    assert 0 < difference < 0.3  # of random weights; a trained model loses far less
    assert engine in written.predictor.name and "int8" in written.predictor.name


@pytest.mark.parametrize("quantised", ["onnx"], indirect=True)
def test_products_are_integer_but_those_that_suffer(quantised):
    model = onnx.load(quantised[1] / "model.onnx")
    scaled = {output for node in model.graph.node if node.op_type == "DequantizeLinear" for output in node.output}
    products = [node for node in model.graph.node if node.op_type in ("MatMul", "Gemm")]
    scopes = {n.name: next(e.value for e in n.metadata_props if "scope" in e.key) for n in products}
    integer = {n.name for n in products if n.input[0] in scaled and n.input[1] in scaled}
    floats = [scopes[n.name] for n in products if n.name not in integer]
    assert sum("linear" in scopes[name] for name in integer) == 7  # of two blocks all but one
    assert any("head.linear" in scope for scope in floats)
    assert any("blocks.1.mlp.layer.contract" in scope for scope in floats)
    assert sum("matmul" in scope for scope in floats) == 3  # similarity, tokens, sizes
    assert not any("blocks.0.mlp.layer" in scope for scope in floats)


def test_openvino_keeps_attention_in_floats(tmp_path):
    trained = small_model()
    export_graph(trained, described(trained, "int8"), "openvino", tmp_path, pixels_for(trained, 8))
    graph = openvino().Core().read_model(tmp_path / "model.xml")
    nodes = graph.get_ops()
    kinds = Counter(node.get_type_name() for node in nodes)
    assert kinds["ScaledDotProductAttention"] == 2 and kinds["FakeQuantize"] >= 6
    for node in nodes:
        if node.get_type_name() == "ScaledDotProductAttention":
            assert all(node.input_value(i).get_node().get_type_name() != "FakeQuantize" for i in range(3))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {"blocks.1.mlp.layer.contract", "head.linear"}),
        ({"block": "parallel"}, {"blocks.1.layer.mlp.contract", "head.linear"}),
        ({"head": "mlp"}, {"blocks.1.mlp.layer.contract", "head.hidden", "head.linear"}),
        ({"pool": "attention"}, {"blocks.1.mlp.layer.contract", "head.linear"}),
    ],
)
def test_the_head_and_the_last_product_of_all_tokens_are_found(fields, expected):
    trained = small_model(**fields)
    program = trace(Network(trained.model), trained.model.inputs())
    kept, placed = last_products(program, trained.model), program.graph_signature.inputs_to_parameters
    weights = {placed[node.args[1].name] for node in program.graph.nodes if node.name in kept}
    assert weights == {f"answering.model.{name}.weight" for name in expected}


@pytest.mark.parametrize(
    "fields",
    [
        {"embedding": "pooled-stem", "patch_size": 4},
        *(pytest.param(each, marks=pytest.mark.soak) for each in ({"head": "mlp"}, {})),
    ],
)
def test_a_mean_over_tokens_is_answered_alone_as_among_others(fields, tmp_path):
    trained = small_model(pool="mean", class_token=False, **fields)
    written = export_graph(trained, described(trained, "int8"), "openvino", tmp_path, pixels_for(trained, 16))
    assert written.verified.largest < 1e-3


@pytest.mark.soak
def test_a_large_graph_keeps_no_file_of_the_weights_that_it_had_before(merged, tmp_path, monkeypatch):
    monkeypatch.setattr(export, "LARGEST_FILE", 0)
    written = export_graph(merged, described(merged, "int8"), "onnx", tmp_path, pixels_for(merged, 16))
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]
    pixels = pixels_for(merged, 4)
    torch.testing.assert_close(
        open_graph(tmp_path / "model.onnx", "onnxruntime").logits(pixels), written.predictor.logits(pixels)
    )


def test_without_images_there_are_no_ranges(trained, tmp_path):
    with pytest.raises(ExportError, match="needs images") as error:
        export_graph(trained, described(trained, "int8"), "openvino", tmp_path)
    assert error.value.where == "--calibrate"


def test_convolutions_keep_their_biases(tmp_path):
    trained = small_model(pool="mean", class_token=False, embedding="pooled-stem", patch_size=4)
    for module in trained.model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.normal_(module.bias)
    graph = to_openvino(trace(Network(trained.model), trained.model.inputs()))
    quantised = quantise_openvino(graph, [torch.randn(1, 3, 32, 32).numpy() for _ in range(4)], set())
    found = [_sums_of_convolutions(each) for each in (graph, quantised)]
    before, after = ({name: _origin(node.input_value(1).get_node()).get_data() for name, node in each.items()} for each in found)
    assert len(before) >= 5
    for name, bias in before.items():
        assert np.array_equal(after[name].ravel(), bias.ravel())
