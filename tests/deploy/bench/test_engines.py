"""Engines run what was exported, and say what they cannot."""

import ctypes
import gc
import sys

import pytest
import torch

from deploy.small import described, pixels_for, small_model
from vitrail.deploy.bench.engines import open_graph, quickest
from vitrail.deploy.bench.measure import Timing
from vitrail.deploy.export.export import export_graph
from vitrail.deploy.export.graph_files import description_in
from vitrail.errors import ConfigError, ModelFileError


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graphs")
    trained = small_model()
    for to in ("onnx", "openvino"):
        export_graph(trained, described(trained), to, folder)
    return {"onnx": folder / "model.onnx", "openvino": folder / "model.xml", "model": trained}


def test_the_quicker_of_the_engines_is_taken_and_told(graphs, capfd):
    chosen = quickest(graphs["onnx"])
    printed = capfd.readouterr().err
    assert printed.startswith(f"engine: {chosen.name} (") and printed.count("images/s") == 2
    torch.testing.assert_close(
        chosen.logits(pixels := pixels_for(graphs["model"])),
        graphs["model"].model(graphs["model"].preparation.normalize(pixels)).detach(),
        atol=1e-4,
        rtol=0,
    )


@pytest.mark.parametrize("quick", ["onnxruntime fp32", "openvino fp32"])
def test_the_engine_of_more_images_per_second_is_the_quicker(quick, graphs, monkeypatch):
    def timed(works, pixels, *, seconds):
        return {name: Timing(8, (0.1 if name == quick else 0.2,)) for name in works}

    monkeypatch.setattr("vitrail.deploy.bench.engines.timed", timed)
    assert quickest(graphs["onnx"]).name == quick


def test_nothing_is_measured_for_a_few_images_or_where_there_is_one_engine(graphs, capfd):
    assert quickest(graphs["onnx"], measure=False).name == "onnxruntime fp32"
    assert quickest(graphs["openvino"]).name == "openvino fp32"
    assert capfd.readouterr().err == ""


def test_an_engine_that_is_not_installed_is_passed_over(graphs, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert quickest(graphs["onnx"]).name == "openvino fp32"
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(ConfigError, match="onnxruntime is not installed"):
        quickest(graphs["onnx"])


def test_an_answer_is_not_overwritten_by_the_next(graphs):
    for engine in ("onnxruntime", "openvino"):
        ask = open_graph(graphs["onnx"], engine).logits
        first = ask(pixels_for(graphs["model"], 2))
        kept = first.clone()
        ask(pixels_for(graphs["model"], 2))
        assert torch.equal(first, kept)


@pytest.mark.parametrize("threads", [1, 2, 3, 9])
def test_a_batch_in_pieces_is_answered_as_each_image_alone(graphs, threads):
    ask, pixels = open_graph(graphs["openvino"], "openvino", threads=threads).logits, pixels_for(graphs["model"], 17)
    alone = torch.cat([ask(image[None]) for image in pixels])
    for count in (2, 3, 4, 5, 8, 17):
        first = ask(pixels[:count])
        kept = first.clone()
        torch.testing.assert_close(first, alone[:count], atol=1e-5, rtol=0)
        ask(pixels.flip(0)[:count])
        assert torch.equal(first, kept)


def test_an_engine_that_does_not_read_a_graph_names_those_that_do(graphs):
    with pytest.raises(ConfigError, match=r"onnxruntime does not read \.xml"):
        open_graph(graphs["openvino"], "onnxruntime")
    with pytest.raises(ConfigError, match="unknown engine"):
        open_graph(graphs["onnx"], "tensorrt")


@pytest.mark.parametrize("name", ["model.onnx", "model.xml"])
@pytest.mark.parametrize("content", [b"", b"\x08\x01", b"<xml>", b"nothing of the kind" * 100])
def test_a_damaged_graph_is_refused(name, content, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ModelFileError):
        quickest(tmp_path / name)


def test_a_graph_of_somebody_else_has_no_labels(tmp_path):
    import onnx

    value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["x"], ["y"])], "g", [value], [
        onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])])  # fmt: skip
    onnx.save(onnx.helper.make_model(graph), tmp_path / "model.onnx")
    with pytest.raises(ModelFileError, match="no labels"):
        description_in(tmp_path / "model.onnx")


def test_a_graph_cut_short_is_refused(graphs, tmp_path):
    whole = graphs["onnx"].read_bytes()
    (tmp_path / "model.onnx").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ModelFileError):
        quickest(tmp_path / "model.onnx")


class _Stack(ctypes.Structure):
    _fields_ = (("place", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))


def signal_stack() -> tuple:
    """Where signals of this thread are handled."""
    stack = _Stack()
    ctypes.CDLL(None).sigaltstack(None, ctypes.byref(stack))
    return stack.place, stack.flags, stack.size


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other calls")
def test_the_stack_of_signals_stays_where_it_is(graphs, tmp_path):
    """Ctrl-C after two models of OpenVINO's that went in the order they came ended in a crash."""
    before = signal_stack()
    export_graph(graphs["model"], described(graphs["model"], "int8"), "openvino", tmp_path, pixels_for(graphs["model"]))
    first, second = (open_graph(graphs["openvino"], "openvino", threads=1) for _ in range(2))
    for one in (first, second):
        one.logits(pixels_for(graphs["model"]))
    assert signal_stack() == before
    del one, first
    gc.collect()
    del second
    gc.collect()
    assert signal_stack() == before
