"""A graph answers as the model does, for any number of images, or it is not kept."""

import sys
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
import torch.fx.config

from deploy.small import described, pixels_for, small_model
from vitrail.deploy.bench.engines import open_graph
from vitrail.deploy.export import export as exporting
from vitrail.deploy.export.artefact import Description, graph_of
from vitrail.deploy.export.export import export_graph, require_possible, session_of, verify
from vitrail.deploy.export.graph_files import description_in
from vitrail.deploy.export.merging import merging
from vitrail.deploy.problems import ExportError
from vitrail.errors import ConfigError
from vitrail.models.any_size import AnySize
from vitrail.weights.model_folder.folder import TrainedModel

MODELS = [
    {"position": "relative", "registers": 2, "layer_scale": 0.5, "qk_norm": True, "pool": "attention"},
    {"position": "rotary", "mlp": "swiglu", "block": "parallel", "pool": "mean", "qkv_bias": False},
    {"embedding": "pooled-stem", "position": "sincos-2d", "pool": "class+mean", "channels": 1, "mlp": "quick-gelu"},
    {"embedding": "stem", "position": "learned-2d", "distillation_token": True, "token_merging": "5,0", "depth": 2},
    {"embedding": "resnet", "resnet_depths": (1, 1), "resnet_width": 32, "resnet_root": "cifar", "patch_size": (8, 4)},
    {"embedding": "resnet", "resnet_depths": (1, 1), "resnet_root": "whitened", "resnet_block": "pooled", "patch_size": 4},
    {
        "embedding": "resnet",
        "resnet_depths": (1, 1),
        "resnet_root": "whitened-valid",
        "resnet_block": "pooled",
        "patch_size": 4,
        "position": "none",
    },
    {"image_size": (16, 24), "position": "sincos-1d", "head": "lecture", "final_norm": "pooled", "embedding": "linear"},
]


@pytest.fixture(scope="module")
def odd() -> TrainedModel:
    """A small model with labels that are hard to write down."""
    model = small_model()
    model.labels = ['<b>"quoted" & ünïcode\n</b>', "猫", "", "d", "e"]
    return model


@pytest.fixture(scope="module")
def written(odd, tmp_path_factory) -> dict[str, Path]:
    """The folders of its graphs, for which torch looked up where in the source each node comes from, as it does for everybody."""
    folders = {to: tmp_path_factory.mktemp(to) for to in ("onnx", "openvino", "torch")}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(torch.fx.config, "do_not_emit_stack_traces", False)
        for to, folder in folders.items():
            export_graph(odd, described(odd), to, folder)
    return folders


@pytest.mark.parametrize("to", ["onnx", pytest.param("openvino", marks=pytest.mark.soak)])
@pytest.mark.parametrize("fields", MODELS, ids=lambda fields: fields.get("embedding", fields.get("position")))
def test_every_kind_of_model_answers_from_its_graph_as_in_python(fields, to, tmp_path):
    trained = small_model(**{"depth": 1, **fields})
    written = export_graph(trained, described(trained), to, tmp_path)
    assert written.verified.batches == (1, 2, 3, 7, 16)
    assert written.verified.largest < 1e-4 or any(trained.config.merged)
    pixels = pixels_for(trained, 4)
    again = open_graph(graph_of(tmp_path), {"onnx": "onnxruntime"}.get(to, to), threads=1)
    expected = trained.model(trained.preparation.normalize(pixels))
    difference = (again.logits(pixels) - expected).abs().amax(dim=1)
    assert difference.median() < 1e-4
    assert (again.labels, again.preparation, again.multi_label) == (trained.labels, trained.preparation, False)


@pytest.mark.parametrize("to", ["onnx", "openvino"])
def test_normalisation_may_be_part_of_the_graph(trained, to, tmp_path):
    export_graph(trained, described(trained, pixels=True), to, tmp_path)
    pixels = pixels_for(trained)
    folded = open_graph(graph_of(tmp_path), {"onnx": "onnxruntime"}.get(to, to), threads=1)
    torch.testing.assert_close(
        folded.logits(pixels), trained.model(trained.preparation.normalize(pixels)).detach(), atol=1e-4, rtol=0
    )


@pytest.mark.parametrize(
    ("position", "to"),
    [
        ("learned-1d", "onnx"),
        ("learned-2d", "openvino"),
        *(pytest.param(*case, marks=pytest.mark.soak) for case in [("learned-1d", "openvino"), ("learned-2d", "onnx")]),
        pytest.param("none", "openvino", marks=pytest.mark.soak),
    ],
)
def test_a_graph_may_take_images_of_any_size(position, to, tmp_path):
    trained = small_model(depth=1, position=position, patch_size=(8, 4), registers=1)
    about = described(trained).changed(any_size=True)
    export_graph(trained, about, to, tmp_path)
    session = session_of(next(tmp_path.glob("model.[ox]*")), to, "fp32")
    for size in ((32, 32), (16, 40), (64, 36)):
        images = torch.randn(3, 3, *size)
        expected = AnySize(trained.model)(images).detach()
        torch.testing.assert_close(torch.from_numpy(session(images.numpy())), expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("fields", [{"position": "rotary"}, {"position": "sincos-2d"}, {"token_merging": 2}])
def test_any_size_is_refused_where_the_graph_would_have_to_know_it(fields, tmp_path):
    trained = small_model(**fields)
    with pytest.raises(ConfigError, match="any size") as error:
        export_graph(trained, described(trained).changed(any_size=True), "onnx", tmp_path)
    assert "--image-size 384" in error.value.hint


def test_openvino_also_runs_what_was_exported_to_onnx(written, odd):
    pixels, file = pixels_for(odd), written["onnx"] / "model.onnx"
    torch.testing.assert_close(
        open_graph(file, "openvino").logits(pixels),
        open_graph(file, "onnxruntime").logits(pixels),
        atol=1e-4,
        rtol=0,
    )


@pytest.mark.parametrize(("to", "precision"), [("openvino", "bf16"), ("openvino", "fp16"), ("onnx", "fp16"), ("torch", "bf16")])
def test_half_precision_answers_up_to_its_rounding(trained, to, precision, tmp_path):
    written = export_graph(trained, described(trained, precision), to, tmp_path)
    pixels = pixels_for(trained)
    exact = trained.model(trained.preparation.normalize(pixels)).detach()
    answers = written.predictor.logits(pixels)
    assert answers.dtype == torch.float32
    torch.testing.assert_close(answers, exact, atol=0.05 * (exact.max() - exact.min()).item(), rtol=0)
    assert all(p.dtype == torch.float32 for p in trained.model.parameters())


def test_weights_in_half_precision_take_half_the_room(tmp_path):
    trained, sizes = small_model(depth=1, dim=128, mlp_dim=512), {}
    for precision in ("fp32", "fp16"):
        folder = tmp_path / precision
        folder.mkdir()
        export_graph(trained, described(trained, precision), "openvino", folder)
        sizes[precision] = (folder / "model.bin").stat().st_size
    assert sizes["fp16"] < 0.55 * sizes["fp32"]


def test_torchs_own_graph_is_that_of_the_model(written, odd):
    extra = {"vitrail": ""}
    file = written["torch"] / "model.pt2"
    program = torch.export.load(file, extra_files=extra)  # this test has written it
    images = torch.randn(3, 3, 32, 32)
    torch.testing.assert_close(program.module()(images), odd.model(images), atol=1e-5, rtol=1e-5)
    assert Description.of(extra["vitrail"], where=file) == described(odd)


@pytest.mark.parametrize("to", ["onnx", "openvino", "torch"])
def test_nothing_written_names_the_folders_of_this_machine(written, to):
    (file,) = written[to].glob("model.pt2") if to == "torch" else [graph_of(written[to])]
    contents = [file.read_bytes()] if to != "torch" else [zipfile.ZipFile(file).read(n) for n in zipfile.ZipFile(file).namelist()]
    source = exporting.__file__.encode()
    assert not any(source in content or torch.__file__.encode() in content for content in contents)


def test_what_the_graph_says_of_itself_is_complete(written, odd):
    for to in ("onnx", "openvino"):
        assert description_in(graph_of(written[to])) == described(odd)
    model = onnx.load(written["onnx"] / "model.onnx")
    onnx.checker.check_model(model)
    assert [value.name for value in (*model.graph.input, *model.graph.output)] == ["images", "logits"]


# what is refused


def test_a_graph_that_answers_otherwise_is_refused(trained):
    about = described(trained)

    def off_by(difference):
        def session(images):
            logits = trained.model(torch.from_numpy(images)).detach().numpy()
            logits[-1, 2] += difference
            return logits

        return session

    assert verify(off_by(9e-5), trained, about).largest == pytest.approx(9e-5, rel=0.1)
    with pytest.raises(ExportError, match=r"differ from the model's by 0\.0002"):
        verify(off_by(2e-4), trained, about)
    with pytest.raises(ExportError, match="not finite"):
        verify(off_by(float("nan")), trained, about)
    with pytest.raises(ExportError, match="cannot answer 2 images"):
        verify(lambda images: off_by(0)(images) if len(images) == 1 else np.zeros(1).reshape(7, 7), trained, about)


@pytest.mark.parametrize(("precision", "share"), [("fp32", None), ("bf16", 0.1), ("fp16", 0.02)])
@pytest.mark.parametrize("larger", [0.1, 1, 100])
def test_in_every_float_precision_a_graph_further_off_than_its_rounding_is_refused(precision, share, larger):
    """The limit is a share of the range of the model's own logits; in fp32 it is 1e-4 where that is at most 10."""
    trained = small_model()
    for parameter in trained.model.head.parameters():
        parameter.data.mul_(larger)

    def session(images, off=0.0):
        logits = trained.model(torch.from_numpy(images)).detach().numpy()
        logits[-1, 2] += off
        return logits

    about = described(trained, precision)
    spread = verify(session, trained, about).spread
    assert spread > 100 if larger == 100 else spread < 10
    limit = max(1e-4, 1e-5 * spread) if share is None else share * spread
    assert verify(partial(session, off=0.9 * limit), trained, about).largest == pytest.approx(0.9 * limit, rel=0.1)
    for off in (1.1 * limit, -1.1 * limit):
        with pytest.raises(ExportError, match="differ from the model's"):
            verify(partial(session, off=off), trained, about)


def test_in_int8_an_image_answered_among_others_otherwise_than_alone_is_refused(trained):
    """Its own rounding is not held against int8: that is left to accuracy."""
    about = described(trained, "int8")

    def rounding(images, among_others=0.0):
        logits = trained.model(torch.from_numpy(images)).detach().numpy() + 1.0
        return logits + among_others * (len(images) > 1)

    spread = verify(rounding, trained, about).spread
    assert verify(partial(rounding, among_others=0.09 * spread), trained, about).largest == pytest.approx(0.09 * spread, rel=0.1)
    with pytest.raises(ExportError, match="differ from the model's"):
        verify(partial(rounding, among_others=0.11 * spread), trained, about)


def test_a_graph_that_knows_one_number_of_images_is_refused(trained):
    def session(images):
        return trained.model(torch.from_numpy(images)).detach().numpy()[:2]

    with pytest.raises(ExportError, match="of 3 images the graph gives"):
        verify(session, trained, described(trained))


def test_where_tokens_are_merged_half_of_the_images_must_be_close(trained):
    merged = merging(small_model(depth=3), (2, 2))

    def some_off(share):
        def session(images):
            logits = merged.model(torch.from_numpy(images)).detach().numpy()
            logits[: round(share * len(logits))] += 1
            return logits

        return session

    assert verify(some_off(0.3), merged, described(merged)).largest > 0.9
    with pytest.raises(ExportError):
        verify(some_off(0.8), merged, described(merged))


@pytest.mark.parametrize(("to", "precision"), [("onnx", "bf16"), ("torch", "int8")])
def test_what_no_engine_computes_is_refused_before_anything_is_done(to, precision):
    with pytest.raises(ConfigError) as error:
        require_possible(to, precision)
    assert "--to" in error.value.hint


def test_whatever_an_exporter_fails_with_is_one_clear_line(trained, tmp_path, monkeypatch):
    def fails(*args, **options):
        raise RuntimeError("\n\n  deep inside\nand more\nand more")

    monkeypatch.setattr(exporting.torch.onnx, "export", fails)
    with pytest.raises(ExportError) as error:
        export_graph(trained, described(trained), "onnx", tmp_path)
    assert error.value.what == "the model cannot be written as ONNX: deep inside"
    assert "--to" in error.value.hint


@pytest.mark.parametrize(("to", "library"), [("onnx", "onnx"), ("openvino", "openvino")])
def test_a_missing_library_names_the_extra(trained, tmp_path, monkeypatch, to, library):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ConfigError) as error:
        export_graph(trained, described(trained), to, tmp_path)
    assert error.value.hint == "pip install 'vitrail[export]'"
