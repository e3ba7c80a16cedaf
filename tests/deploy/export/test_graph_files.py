"""The files of an exported model may be a stranger's: they name no other file, and fit what they say of themselves."""

import os
import shutil

import numpy as np
import onnx
import pytest

from deploy.small import described, pixels_for, small_model
from vitrail.deploy.bench.engines import ENGINES, as_predictor, open_graph, quickest
from vitrail.deploy.bench.libraries import openvino
from vitrail.deploy.export.artefact import KEY
from vitrail.deploy.export.export import export_graph
from vitrail.errors import ModelFileError

ABOUT = described(small_model())
WEIGHT = 3 * 32 * 32 * 5 * 4
"""Bytes of the weight in `elsewhere`."""


def elsewhere(folder, nested=False, **told):
    """A graph whose weight lies in another file, as an initializer or deep inside a node."""
    weight = onnx.TensorProto(name="w", data_type=onnx.TensorProto.FLOAT, dims=[3 * 32 * 32, 5], data_location="EXTERNAL")
    for key, value in told.items():
        weight.external_data.add(key=key, value=str(value))
    images = onnx.helper.make_tensor_value_info("images", onnx.TensorProto.FLOAT, [None, 3, 32, 32])
    logits = onnx.helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, [None, 5])
    nodes = [onnx.helper.make_node("Flatten", ["images"], ["flat"]), onnx.helper.make_node("MatMul", ["flat", "w"], ["logits"])]
    if nested:
        inner = onnx.helper.make_graph([onnx.helper.make_node("Constant", [], ["out"], value=weight)], "then", [], [])
        nodes.append(onnx.helper.make_node("If", ["flag"], ["w"], then_branch=inner, else_branch=inner))
    graph = onnx.helper.make_graph(nodes, "graph", [images], [logits], initializer=[] if nested else [weight])
    model = onnx.helper.make_model(graph, ir_version=9, opset_imports=[onnx.helper.make_opsetid("", 18)])
    onnx.helper.set_model_props(model, {KEY: ABOUT.to_json()})
    onnx.save_model(model, folder / "model.onnx")
    (folder / "weights").write_bytes(bytes(WEIGHT))
    return folder / "model.onnx"


def test_weights_in_a_file_of_the_same_folder_are_read(tmp_path):
    for engine in ENGINES:
        ask = open_graph(elsewhere(tmp_path, location="weights", offset=0, length=WEIGHT), engine)
        assert ask.logits(pixels_for(small_model())).abs().max() == 0


@pytest.mark.parametrize(
    "told",
    [
        {"location": "*/_ORT_MEM_ADDR_/*", "offset": 4096},
        {"location": "../outside"},
        {"location": "/etc/passwd"},
        {"location": "folder/weights"},
        {"location": ".."},
        {"location": ""},
        {},
        {"location": "missing"},
        {"location": "folder"},
        {"location": "fifo"},
        {"location": "link"},
        {"location": "weights", "offset": WEIGHT},
        {"location": "weights", "length": WEIGHT + 1},
        {"location": "weights", "offset": 2**64 - 8},
        {"location": "weights", "offset": -8},
        {"location": "weights", "offset": "x"},
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_weights_anywhere_else_are_refused_before_an_engine_sees_them(told, nested, tmp_path, monkeypatch):
    inside = tmp_path / "model"
    (inside / "folder").mkdir(parents=True)
    for place in (inside / "folder/weights", tmp_path / "outside"):
        place.write_bytes(bytes(WEIGHT))
    (inside / "link").symlink_to(tmp_path / "outside")
    os.mkfifo(inside / "fifo")
    graph = elsewhere(inside, nested, **{"length": WEIGHT, **told})
    for engine in ENGINES:
        monkeypatch.setitem(ENGINES, engine, lambda *words: pytest.fail("an engine has seen it"))
    with pytest.raises(ModelFileError) as error:
        quickest(graph)
    assert str(inside) in str(error.value.where)


def test_a_graph_that_one_engine_refuses_is_given_to_no_other(tmp_path, monkeypatch):
    def refuses(graph, precision, threads):
        raise RuntimeError("no")

    monkeypatch.setitem(ENGINES, "onnxruntime", refuses)
    monkeypatch.setitem(ENGINES, "openvino", lambda *words: pytest.fail("it was given to another"))
    with pytest.raises(ModelFileError, match="onnxruntime cannot run"):
        quickest(elsewhere(tmp_path, location="weights"))


@pytest.mark.parametrize("version", [0, 10**6])
def test_operators_of_a_version_that_does_not_exist_are_refused(version, tmp_path):
    """ONNX Runtime would count up to it."""
    graph = elsewhere(tmp_path, location="weights")
    model = onnx.load(graph, load_external_data=False)
    model.opset_import[0].version = version
    onnx.save_model(model, graph)
    with pytest.raises(ModelFileError, match="not one of the versions 1 to"):
        quickest(graph)


def test_an_operator_without_its_inputs_is_refused_before_an_engine_sees_it(tmp_path, monkeypatch):
    """ONNX Runtime would crash at some of them, with the whole process."""
    graph = elsewhere(tmp_path, location="weights")
    model = onnx.load(graph, load_external_data=False)
    model.graph.node.append(onnx.helper.make_node("Conv", [], ["more"]))
    onnx.save_model(model, graph)
    for engine in ENGINES:
        monkeypatch.setitem(ENGINES, engine, lambda *words: pytest.fail("an engine has seen it"))
    with pytest.raises(ModelFileError, match=r"model\.onnx cannot be read.*Conv"):
        quickest(graph)


def test_what_an_engine_finds_out_at_the_first_answer_is_an_error_of_the_graph(tmp_path, monkeypatch):
    def session(graph, precision, threads):
        def fails(images):
            raise RuntimeError("no such input")

        return fails

    monkeypatch.setitem(ENGINES, "onnxruntime", session)
    ask = open_graph(elsewhere(tmp_path, location="weights"), "onnxruntime")
    with pytest.raises(ModelFileError, match=r"onnxruntime cannot run .*no such input"):
        ask.logits(pixels_for(small_model()))


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A model of OpenVINO's."""
    folder = tmp_path_factory.mktemp("openvino")
    export_graph(small_model(), ABOUT, "openvino", folder)
    return folder


def test_files_of_the_cache_of_the_hub_are_links(written, tmp_path):
    for file in (written / "model.xml", written / "model.bin"):
        (tmp_path / file.name).symlink_to(file)
    assert open_graph(tmp_path / "model.xml", "openvino").labels == list(ABOUT.labels)


@pytest.mark.parametrize("kind", ["missing", "fifo", "link", "short", "beyond"])
def test_weights_of_openvino_lie_beside_the_graph_too(kind, written, tmp_path):
    shutil.copytree(written, tmp_path / "model")
    graph, weights = tmp_path / "model/model.xml", tmp_path / "model/model.bin"
    if kind == "short":
        weights.write_bytes(weights.read_bytes()[:100])
    elif kind == "beyond":
        graph.write_text(graph.read_text().replace('offset="0"', f'offset="{2**62}"'))
    else:
        weights.rename(tmp_path / "outside")
    if kind == "fifo":
        os.mkfifo(weights)
    elif kind == "link":
        weights.symlink_to(tmp_path / "outside")
    with pytest.raises(ModelFileError) as error:
        quickest(graph)
    assert "Exception" not in error.value.what and ".cpp" not in error.value.what
    assert "model.bin" in error.value.what or "Incorrect weights" in error.value.what


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"labels": ("one", "two")}, "2 labels"),
        ({"pixels": True}, "takes float32, not uint8"),
        ({"preparation": ABOUT.preparation.changed(image_size=(24, 32))}, "images of the shape"),
    ],
)
@pytest.mark.parametrize("to", ["onnx", "openvino"])
def test_a_graph_that_does_not_fit_its_description_is_refused(change, problem, to, written, tmp_path):
    if to == "onnx":
        model = onnx.load(elsewhere(tmp_path, location="weights"), load_external_data=False)
        onnx.helper.set_model_props(model, {KEY: ABOUT.changed(**change).to_json()})
        onnx.save_model(model, tmp_path / "model.onnx")
        graph = tmp_path / "model.onnx"
    else:
        graph, model = tmp_path / "model.xml", openvino().Core().read_model(written / "model.xml")
        model.set_rt_info(ABOUT.changed(**change).to_json(), KEY)
        openvino().save_model(model, graph)
    with pytest.raises(ModelFileError, match=problem):
        quickest(graph)


def test_an_answer_of_another_shape_is_refused():
    """A graph need not tell its shapes."""
    ask = as_predictor(lambda images: np.zeros((len(images), 4), np.float32), ABOUT, "graph")
    with pytest.raises(ModelFileError, match=r"\(5, 4\); expected \(5, 5\)"):
        ask.logits(pixels_for(small_model()))


def test_a_graph_of_forty_gigabytes_is_not_read(tmp_path):
    for name in ("model.onnx", "model.xml"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(40 * 2**30)
        with pytest.raises(ModelFileError, match="too large"):
            quickest(tmp_path / name)
