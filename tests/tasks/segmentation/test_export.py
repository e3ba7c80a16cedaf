"""Exported segmenters: their numbers, at the stride and at full size, and what is refused."""

import json

import numpy as np
import pytest
import torch
from torch import nn

import vitrail
from deploy.small import small_model
from masked import drawn, picture_of, write_masks
from tiny_segmenter import BACKBONE, FIELDS, LINEAR, tiny_segmenter
from vitrail.deploy.bench.engines import onnxruntime_session, openvino_session
from vitrail.deploy.export.artefact import Description
from vitrail.deploy.export.export import Network, export_graph, to_onnx, to_openvino, trace, verify
from vitrail.deploy.export.export_model import export_model
from vitrail.deploy.predictor import in_python
from vitrail.deploy.problems import ExportError
from vitrail.errors import ConfigError, ModelFileError
from vitrail.models.signature import BATCH, Shape
from vitrail.parts.attention.deformable import DeformableAttention, cell_places

SHALLOW = {**FIELDS, "backbone": {**BACKBONE, "depth": 1}, "auxiliary": False, "head": "upernet", "head_dim": 8}
KINDS = {
    "linear": {**LINEAR, "backbone": {**BACKBONE, "depth": 1}},
    "mlp": {**SHALLOW, "maps": "pyramid", "head": "mlp", "pyramid_dim": 8},
    "upernet": {**SHALLOW, "maps": "pyramid", "pyramid_dim": 8},
    "adapter": {**SHALLOW, "maps": "adapter", "head": "mlp"},
}
STAGES = {**SHALLOW, "maps": "stages", "head": "mlp"}


def exported(trained, folder, to="openvino", **fields):
    """The predictor of a graph that was just written, which was compared with the model already."""
    about = Description.of_model(trained, "tiny", "fp32", **fields)
    return export_graph(trained, about, to, folder).predictor


def pixels_of(height, width):
    return torch.randint(0, 256, (3, 3, height, width), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("kind", "to"), [("linear", "openvino"), ("linear", "onnx"), ("mlp", "openvino"), ("upernet", "openvino")]
)
def test_a_graph_gives_the_logits_of_the_model(kind, to, tmp_path):
    trained, pixels = tiny_segmenter(**KINDS[kind]), pixels_of(32, 32)
    with torch.no_grad():
        expected = trained.model(trained.preparation.normalize(pixels))
    logits = exported(trained, tmp_path, to).logits(pixels)
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)
    assert logits.std() > 0.1 and logits.shape == expected.shape


def test_the_limit_of_a_map_follows_its_range_as_it_has_a_million_numbers():
    """The graph of a trained adapter differed by 2.2e-4, and was refused."""
    trained = tiny_segmenter(**KINDS["linear"])
    about, model = Description.of_model(trained, "tiny", "fp32"), trained.model
    for parameter in model.decoder.parameters():
        parameter.data *= 20
    with torch.no_grad():
        spread = (lambda logits: (logits.max() - logits.min()).item())(model(torch.randn(4, 3, 32, 32)))

    def session(error):
        def answer(images):
            with torch.no_grad():
                logits = model(torch.from_numpy(images))
            return (logits + error * (torch.rand(logits.shape) > 0.999)).numpy()

        return answer

    assert verify(session(5e-5 * spread), trained, about).largest > 2e-4
    with pytest.raises(ExportError, match="differ from the model's by"):
        verify(session(5e-4 * spread), trained, about)


class Deformed(nn.Module):
    """Deformable attention from the patches of an image to two levels, as in an adapter."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.attention = DeformableAttention(8, 2, levels=2)
        for layer in (self.attention.offsets, self.attention.weights):
            nn.init.normal_(layer.weight, std=0.5)

    def forward(self, images):
        levels = [nn.functional.avg_pool2d(images, side) for side in (4, 8)]
        sizes = [(level.shape[2], level.shape[3]) for level in levels]
        context = torch.cat([level.flatten(2).mT for level in levels], dim=1)
        places = cell_places([(sizes[1], (8, 8))], [(4, 4), (8, 8)], images.device)
        return self.attention(levels[1].flatten(2).mT, context=context, grids=sizes, places=places)


@pytest.mark.soak
def test_a_whole_adapter_gives_the_logits_of_the_model_in_a_graph(tmp_path):
    trained, pixels = tiny_segmenter(**KINDS["adapter"] | {"backbone": BACKBONE}), pixels_of(32, 32)
    for module in trained.model.modules():  # or an injector would add nothing
        if hasattr(module, "gamma"):
            nn.init.ones_(module.gamma)
    with torch.no_grad():
        expected = trained.model(trained.preparation.normalize(pixels))
    torch.testing.assert_close(exported(trained, tmp_path).logits(pixels), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("to", ["openvino", "onnx"])
def test_deformable_attention_samples_the_same_values_in_a_graph(to, tmp_path):
    module, images = Deformed().eval(), torch.randn(2, 8, 32, 24, generator=torch.Generator().manual_seed(0))
    program = trace(Network(module), {"images": Shape((BATCH, 8, 32, 24))})
    if to == "openvino":
        session = openvino_session(to_openvino(program), "fp32", 1)
    else:
        to_onnx(program).save(tmp_path / "model.onnx")
        session = onnxruntime_session(tmp_path / "model.onnx", "fp32", 1)
    with torch.no_grad():
        expected = module(images)
    torch.testing.assert_close(torch.from_numpy(session(images.numpy())), expected, atol=1e-5, rtol=1e-4)
    shifted = torch.from_numpy(session(images.flip(-1).numpy()))
    assert (shifted - expected).abs().max() > 0.1


def test_a_graph_of_full_size_gives_the_enlarged_logits_and_the_same_masks(tmp_path):
    trained = tiny_segmenter(**KINDS["linear"])
    plain = in_python(trained, prepacked=False)
    folder, figures = export_model(trained, tmp_path / "full", to="openvino", full_size=True)
    graph = vitrail.predict_masks(folder, picture_of(drawn(1, (32, 32))))[0].mask
    assert np.array_equal(graph, vitrail.predict_masks(plain, picture_of(drawn(1, (32, 32))))[0].mask)
    assert not trained.model.full_size, "the model itself stays as it was"
    assert "for each pixel" in (folder / "README.md").read_text() and figures["verified"]["batches"]
    opened, _ = vitrail.evaluate(folder, write_masks(tmp_path / "data", 1, 2, size=(32, 32)))
    own, _ = vitrail.evaluate(trained, tmp_path / "data", window=32)
    assert np.array_equal(opened.confusion, own.confusion) and len(np.unique(opened.confusion)) > 4


def test_a_graph_of_any_size_gives_the_logits_of_the_model(tmp_path):
    trained = tiny_segmenter(**KINDS["linear"])
    graph = exported(trained, tmp_path, any_size=True)
    assert graph.any_size and graph.view.window is None
    pixels = pixels_of(64, 96)
    with torch.no_grad():
        expected = trained.model(trained.preparation.normalize(pixels))
    torch.testing.assert_close(graph.logits(pixels), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (KINDS["adapter"], "ViT-Adapter"),
        (KINDS["upernet"], "UPerNet's pyramid pooling"),
        ({**STAGES, "backbone": {"architecture": "Swin", "dim": 8, "depths": (1,) * 4, "heads": (1,) * 4}}, "a Swin"),
    ],
)
def test_a_model_without_graphs_of_any_size_is_refused_by_name(fields, says, tmp_path):
    with pytest.raises(ConfigError, match=f"{says} cannot be exported for images of any size"):
        export_model(tiny_segmenter(**fields), tmp_path / "any", image_size="any")
    assert not list(tmp_path.iterdir())


def test_a_size_that_needs_padding_and_a_full_size_of_a_classifier_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="30×32 pixels is not in whole patches") as caught:
        export_model(tiny_segmenter(image_size=(30, 32)), tmp_path / "one")
    assert caught.value.hint == "--image-size 32x32"
    with pytest.raises(ConfigError, match="a ViT gives no class for every pixel"):
        export_model(small_model(), tmp_path / "one", full_size=True)


def test_a_description_is_read_again_and_a_damaged_one_refused(tmp_path):
    about = Description.of_model(tiny_segmenter(), "tiny", "fp32")
    assert Description.of(about.to_json(), where=tmp_path) == about and about.multiple == (8, 8)
    values = json.loads(about.to_json())
    for wrong in ({"colors": values["colors"][:2]}, {"colors": [[0, 0, 256]] * 3}, {"multiple": [0, 8]}):
        with pytest.raises(ModelFileError, match="the graph's description is damaged"):
            Description.of(json.dumps({**values, **wrong}), where=tmp_path)
