"""Promises of the library for every architecture. They are found in the table: none is without its row here."""

import json
import math
import shutil

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import vitrail
from recomputed import require_the_same
from vitrail import api
from vitrail.config.settings import ModelSettings, RunSettings
from vitrail.data.images.box_preparation import BoxPreparation
from vitrail.deploy.export.artefact import Description
from vitrail.deploy.export.export import export_graph
from vitrail.errors import ConfigError, ModelFileError
from vitrail.models.base import AnySizeModel, ImageModel
from vitrail.models.configs.base import ImageConfig
from vitrail.models.cost import cost, totals
from vitrail.models.empty import empty_model
from vitrail.models.registry import ARCHITECTURES, NAMES, ROWS, architecture_of, build, model_config, named
from vitrail.task_registry import TASKS
from vitrail.tasks.pose.people.skeleton import Skeleton
from vitrail.tasks.pose.weights import TrainedPose
from vitrail.tasks.segmentation.weights import TrainedSegmenter
from vitrail.training.loop.optimizer import layers_above
from vitrail.weights.model_folder.folder import TrainedModel
from vitrail.weights.transfer import transfer

TINY = {
    "ViT": {"patch_size": 4, "dim": 16, "depth": 2, "heads": 2, "mlp_dim": 24},
    "Swin": {"patch_size": 1, "dim": 12, "depths": (1, 2), "heads": (2, 2), "window_size": 3},
    "PVT": {
        "patch_sizes": (2, 2), "dims": (12, 16), "depths": (1, 2), "heads": (2, 2), "reductions": (2, 1), "mlp_ratios": (2, 2),
    },
    "PVTv2": {
        "patch_sizes": (3, 3), "strides": (2, 2), "dims": (12, 16), "depths": (1, 2), "heads": (2, 2), "reductions": (2, 1),
        "mlp_ratios": (2, 2),
    },
    "CvT": {"dims": (8, 16), "depths": (1, 2), "heads": (1, 2), "patch_sizes": (3, 3), "strides": (1, 2), "paddings": (1, 1)},
    "TNT": {"patch_size": 4, "word_stride": 2, "dim": 16, "depth": 2, "heads": 2, "word_dim": 8, "word_heads": 2},
    "T2T": {
        "patch_sizes": (3, 3, 3), "strides": (1, 2, 1), "token_dim": 8, "random_features": 4, "dim": 16, "depth": 2, "heads": 2,
        "mlp_dim": 24,
    },
    "Mixer": {"patch_size": 4, "dim": 16, "depth": 2, "token_dim": 12, "channel_dim": 24},
    "ResNet": {"depths": (1, 1), "width": 8, "root": "cifar"},
    "ViTPose": {
        "patch_size": 4, "dim": 16, "depth": 2, "heads": 2, "mlp_dim": 24, "patch_padding": 1, "shared_position": True,
    },
    "Segmenter": {
        "backbone": {"patch_size": 4, "image_size": 8, "dim": 16, "depth": 2, "heads": 2, "mlp_dim": 24}, "deformable_heads": 2,
        "head_dim": 12, "auxiliary": False,
    },
}  # fmt: skip
"""A small model of every architecture, beside images of 8×8 pixels."""
OF_A_GRAPH = {"Segmenter": {"maps": "last", "head": "linear"}}
"""Fields of models whose graphs would take long; tasks/segmentation/test_export.py exports a whole adapter in `make soak`."""
UNTRAINED = {"T2T": 2 * (8 * 8 + 4 * 4) * 8 * 4, "Segmenter": 3 * 12 * (3 * 3 * 2 + 2 * 3 * 2)}
"""Multiply-adds with numbers that get no gradient: random features, and the weights by which three maps are enlarged."""
IMAGES = {"image_size": 8, "channels": 3, "num_classes": 3}


OF_IMAGES = [row.name for row in ROWS if issubclass(row.config, ImageConfig) and row.config.answer != "noise"]
"""Architectures of images; those of texts have their contract in test_text_contract.py, of noise in models/vision/test_dit.py."""
OF_CLASSES = [kind for kind in OF_IMAGES if ARCHITECTURES[kind].config.answer == "vector"]
OF_TASKS = [kind for kind in OF_IMAGES if any(row.answers == ARCHITECTURES[kind].config.answer for row in TASKS.values())]
"""Architectures whose output is some task's."""
NAMED = {"vector": "logits", "heatmaps": "heatmaps", "masks": "logits"}
"""The name of the output by its kind."""


@pytest.fixture(params=OF_IMAGES)
def kind(request) -> str:
    return request.param


@pytest.fixture(params=OF_CLASSES)
def classifier(request) -> str:
    return request.param


def tiny(kind: str, **fields) -> ImageModel:
    """Return a model with random weights, none of them zero."""
    torch.manual_seed(0)
    model = build(ARCHITECTURES[kind].config.read({**IMAGES, **TINY[kind], **fields}))
    for parameter in model.parameters():
        if not parameter.any():
            nn.init.normal_(parameter, std=0.1)
    return model.eval()


def answer_shape(model: ImageModel, height: int = 8, width: int = 8) -> tuple[int, ...]:
    """Return the shape of the output for an image of this size: classes, or a map for each."""
    if model.config.answer == "vector":
        return (model.config.num_classes,)
    if model.config.answer == "masks":
        return model.config.num_classes, -(-height // 4), -(-width // 4)
    return model.config.num_classes, *model.config.changed(image_size=(height, width)).heatmap_size


def settings_of(kind: str, **more) -> dict:
    """Return the settings of a run of a few steps, by dotted name."""
    fields = {f"model.{name}": value for name, value in {**TINY[kind], "image_size": 8}.items()}
    run = {"training.epochs": 2, "training.batch_size": 8, "optimizer.lr": 0.01, "augmentation.crop": "none", "seed": 3}
    return {"model.name": next(iter(ARCHITECTURES[kind].presets)), **fields, **run, **more}


def test_every_architecture_has_a_small_model_here():
    assert list(TINY) == OF_IMAGES


def test_names_are_those_of_one_architecture():
    assert len(NAMES) == len(set(NAMES))
    for row in ROWS:
        for name in row.presets:
            assert named(name)[0] is row and type(model_config(name)) is row.config


def test_the_model_is_the_class_of_its_row(kind):
    model = tiny(kind)
    assert isinstance(model, ImageModel) and type(model).__name__ == kind and architecture_of(model.config).name == kind
    assert type(model).__module__ == f"vitrail.models.{ARCHITECTURES[kind].module}"


def test_layers_and_heads_are_parts_of_the_model_that_do_not_overlap(kind):
    model = tiny(kind)
    own = set(model.modules())
    parts = [*model.layers(), *model.heads().values()]
    assert len(model.layers()) > 1 and set(parts) <= own
    tensors = [tensor for part in parts for tensor in part.parameters()]
    assert len(tensors) == len(set(tensors))
    assert all(model.get_submodule(name) is head for name, head in model.heads().items())


def test_layers_are_called_in_their_order_and_parameters_are_registered_in_it(kind):
    model, called = tiny(kind), []
    for number, layer in enumerate(model.layers()):
        layer.register_forward_hook(lambda module, given, result, number=number: called.append(number))
    model(torch.randn(2, 3, 8, 8))
    assert called == list(range(len(model.layers())))
    above = list(layers_above(model).values())
    assert above == sorted(above, reverse=True) and above[0] == len(called) + 1 and above[-1] == 0


@pytest.mark.parametrize("dtype", [None, torch.bfloat16], ids=["fp32", "bf16"])
def test_layers_that_are_computed_again_keep_less_and_learn_the_same_to_the_bit(kind, dtype):
    require_the_same(tiny(kind), torch.randn(2, 3, 8, 8), dtype=dtype)


def test_heads_read_the_vectors(kind):
    model, images = tiny(kind), torch.randn(2, 3, 8, 8)
    (head,) = model.heads().values()
    if model.config.answer == "heatmaps":
        (level,) = model.feature_maps(images)
        torch.testing.assert_close(head(level), model(images))
        torch.testing.assert_close(model.vectors(images), level.mean(dim=(2, 3)))
        return
    if model.config.answer == "masks":
        decoded = model.decoder(model.feature_maps(images))
        torch.testing.assert_close(head(decoded), model(images))
        torch.testing.assert_close(model.vectors(images), decoded.mean(dim=(2, 3)))
        return
    torch.testing.assert_close(head(model.vectors(images)).flatten(1), model(images))
    headless = tiny(kind, num_classes=0)
    assert headless(images).shape == model.vectors(images).shape == headless.outputs()["vectors"].zeros(batch=2).shape


def test_inputs_and_outputs_have_the_shapes_that_are_told(kind):
    model = tiny(kind)
    ((name, given),), ((answer, shape),) = model.inputs().items(), model.outputs().items()
    assert name == "images" and answer == NAMED[model.config.answer]
    found = empty_model(model.config).to("meta")(**model.dummy_inputs(batch=5))
    assert found.shape == shape.zeros(batch=5).shape == (5, *answer_shape(model))
    if isinstance(model, AnySizeModel):
        sizes = {"batch": 2, "height": 16, "width": 12}
        assert str(given) == "(batch, 3, height, width)" and model(given.zeros(**sizes)).shape == shape.zeros(**sizes).shape
    else:
        assert str(given) == "(batch, 3, 8, 8)"


def test_an_image_is_answered_among_others_as_alone(kind):
    model, images = tiny(kind), torch.randn(5, 3, 8, 8)
    torch.testing.assert_close(model(images)[3:4], model(images[3:4]), rtol=1e-5, atol=1e-6)


def of_convolutions(grad, x, weight, *others, **options) -> int:
    """Return the operations of a convolution's gradients; torch's own formula is wrong for convolutions in groups."""
    wanted, transposed = others[-1], others[4]
    return 2 * grad[0] * math.prod((x if transposed else grad)[2:]) * math.prod(weight) * sum(wanted[:2])


def test_training_computes_six_operations_for_every_multiply_add(kind):
    """Two forward, two for what came in, two for the weights; only where there is no gradient to images is it less."""
    model, images = tiny(kind).train(), torch.randn(2, 3, 8, 8, requires_grad=True)
    counter = FlopCounterMode(display=False, custom_mapping={torch.ops.aten.convolution_backward: of_convolutions})
    with sdpa_kernel(SDPBackend.MATH), model.every_token(), counter as counted:
        model(images).sum().backward()
    assert counted.get_total_flops() == len(images) * (6 * totals(model.config)[1] - 2 * UNTRAINED.get(kind, 0))


@pytest.mark.parametrize("shape", [(2, 1, 8, 8), (3, 8, 8)])
def test_images_of_another_shape_are_refused(kind, shape):
    with pytest.raises(ConfigError, match="images have"):
        tiny(kind)(torch.zeros(shape))


def test_other_sizes_are_refused_with_a_sentence_or_computed_in_turns_without_a_changed_bit(kind):
    model = tiny(kind)
    try:
        network = model.at_any_size()
    except ConfigError as error:
        assert f"a {kind} takes only images of 8×8" in str(error) and error.hint
        return
    assert network(torch.randn(2, 3, 16, 12)).shape == (2, *answer_shape(model, 16, 12))
    images = torch.randn(2, 3, 8, 8)
    torch.testing.assert_close(network(images), model(images))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    sizes = [(8, 8), (16, 12), (4, 20), (8, 8), (16, 12)]
    with torch.inference_mode():
        found = [network(torch.ones(1, 3, *size)) for size in sizes]
    assert torch.equal(found[0], found[3]) and torch.equal(found[1], found[4])
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_feature_maps_are_the_image_by_their_strides_and_gradients_reach_the_stem(kind):
    model = tiny(kind)
    height, width = (16, 12) if isinstance(model, AnySizeModel) else (8, 8)
    maps = model.feature_maps(torch.randn(2, 3, height, width))
    assert list(model.strides) == sorted(model.strides)
    stem = next(module for module in model.modules() if isinstance(module, nn.Conv2d | nn.Linear))
    for level, stride in zip(maps, model.strides, strict=True):
        assert level.shape[0] == 2 and level.shape[2:] == (-(-height // stride), -(-width // stride)) and level.isfinite().all()
        (gradient,) = torch.autograd.grad((level * torch.randn_like(level)).sum(), stem.weight, retain_graph=True)
        assert gradient.isfinite().all() and gradient.any()


def test_feature_maps_are_what_the_last_norm_or_every_stage_gives(kind):
    model, results = tiny(kind), []
    of_stages = model.features if isinstance(getattr(model, "features", None), nn.Module) else model
    last = model.neck.norms if hasattr(model, "neck") else [model.norm] if hasattr(model, "norm") else []
    for module in of_stages.stages if hasattr(of_stages, "stages") else last:
        module.register_forward_hook(lambda module, given, result: results.append(result))
    maps = model.feature_maps(torch.randn(2, 3, 8, 8))
    for level, result in zip(maps, results, strict=True):
        rows, columns = level.shape[2:]
        if result.ndim == 3:  # tokens in a row, those before the patches first
            result = result[:, -rows * columns :].unflatten(1, (rows, columns))
        expected = result if of_stages is not model or hasattr(model, "neck") else result.permute(0, 3, 1, 2)
        torch.testing.assert_close(level, expected, rtol=0, atol=0)


def test_cost_is_that_of_the_model(kind):
    model = tiny(kind)
    found = cost(model.config)
    assert found.parameters == sum(p.numel() for p in model.parameters()) and found.macs > 0
    assert totals(model.config) == (found.parameters, found.macs)


def test_weights_start_another_model_of_other_channels_and_classes_or_the_difference_is_named(kind):
    source = tiny(kind)
    target = tiny(kind, num_classes=5)
    transfer(source, target, keep_head=False)
    images = torch.randn(2, 3, 8, 8)
    torch.testing.assert_close(target.vectors(images), source.vectors(images))
    assert not target(images).any(), "a new head starts at zero"
    grey = tiny(kind, channels=1)
    try:
        transfer(source, grey, keep_head=True)
    except ConfigError as error:
        assert "channels 3 → 1" in str(error)
    else:
        one = images[:, :1]
        torch.testing.assert_close(grey(one), source(one.expand(-1, 3, -1, -1)), rtol=1e-4, atol=1e-5)


def test_weights_of_another_architecture_are_refused(kind):
    other = next(name for name in ARCHITECTURES if name != kind)
    with pytest.raises(ConfigError, match=f"architecture {kind} → {other}"):
        transfer(tiny(kind), tiny(other), keep_head=True)


def trained_of(kind: str, **fields) -> TrainedModel:
    """Return a model with labels, or with keypoints of these names."""
    model, labels = tiny(kind, **fields), ["a", "b", "c"]
    if model.config.answer == "heatmaps":
        return TrainedPose(model, Skeleton.of(labels).complete, BoxPreparation.of_size((8, 8)))
    if model.config.answer == "masks":
        return TrainedSegmenter(model, labels, [(0, 0, 0)] * len(labels), vitrail.Preparation.standard((8, 8), 3))
    return TrainedModel(model, labels, vitrail.Preparation.standard((8, 8), 3))


@pytest.mark.parametrize("kind", OF_TASKS)
def test_a_folder_opens_as_the_same_model(kind, tmp_path):
    trained = trained_of(kind)
    trained.save_pretrained(tmp_path / "model", layout="vitrail")
    assert json.loads((tmp_path / "model" / "config.json").read_text())["architectures"] == [kind]
    again, images = vitrail.open_model(tmp_path / "model"), torch.randn(2, 3, 8, 8)
    assert again.config == trained.config
    assert all(torch.equal(tensor, trained.state_dict()[name]) for name, tensor in again.state_dict().items())
    torch.testing.assert_close(again(images), trained(images))  # some processors round by where a tensor lies in memory


@pytest.mark.parametrize("to", [pytest.param("onnx", marks=pytest.mark.soak), "openvino"])
@pytest.mark.parametrize("kind", OF_TASKS)
def test_a_graph_answers_as_the_model_does(kind, to, tmp_path):
    trained = trained_of(kind, **OF_A_GRAPH.get(kind, {}))
    written = export_graph(trained, Description.of_model(trained, "tiny", "fp32"), to, tmp_path)
    assert written.verified.largest < 1e-4 < written.verified.spread


def test_settings_of_a_run_come_back(kind):
    settings = RunSettings.read({"model": {"name": "tiny", "architecture": kind, **TINY[kind]}, "data": {"source": "digits"}})
    again = RunSettings.read(settings.model_dump(mode="json"))
    assert again == settings and isinstance(again.model, ModelSettings) and type(again.model.config) is ARCHITECTURES[kind].config
    with pytest.raises(ConfigError, match="unknown setting 'widht'"):
        RunSettings.read({"model": {"name": "tiny", "architecture": kind, "widht": 3}, "data": {"source": "digits"}})


def test_it_learns_colours_and_is_fine_tuned_as_a_whole_by_its_head_and_by_adapters(classifier, pictures, tmp_path, monkeypatch):
    run = api.train(pictures, tmp_path / "run", recipe="scratch", **settings_of(classifier, **{"training.epochs": 12}))
    assert run.scores["top1"] > 0.9 and (run.folder / "report.html").is_file()
    assert api.evaluate(run.folder)[0].scores() == pytest.approx(run.scores, abs=1e-5)
    monkeypatch.setattr(api, "write_report", lambda finished: None)  # the one above has shown that there is one
    again = {"training.epochs": 1, "start": str(run.folder), "training.batch_size": 8}
    for tune, more in {"all": {}, "head": {}, "lora": {"lora.targets": _some_linear(classifier)}}.items():
        if more.get("lora.targets") == []:
            continue
        tuned = api.train(pictures, tmp_path / tune, recipe="finetune", tune=tune, **again, **more)
        assert architecture_of(tuned.trained.config).name == classifier


@pytest.mark.usefixtures("unreported")
def test_an_interrupted_run_goes_on_to_the_same_bits(classifier, pictures, tmp_path):
    settings = settings_of(classifier, **{"training.checkpoint_every_steps": 1})
    whole = api.train(pictures, tmp_path / "whole", recipe="scratch", **settings)
    broken = shutil.copytree(whole.folder, tmp_path / "broken")
    newest = max((broken / "checkpoints").iterdir())
    shutil.rmtree(newest)
    status = json.loads((broken / "status.json").read_text())
    (broken / "status.json").write_text(json.dumps({**status, "state": "interrupted"}))
    resumed = api.resume(broken)
    weights = [run.trained.model.state_dict() for run in (whole, resumed)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


@pytest.mark.usefixtures("unreported")
@pytest.mark.parametrize("optimizer", ["sgd", "muon"])
def test_every_optimizer_trains_it_with_rates_that_fall_towards_the_image(classifier, optimizer, pictures, tmp_path):
    more = {"optimizer.name": optimizer, "optimizer.layer_decay": 0.5, "training.ema": 0.5, "training.epochs": 1}
    run = api.train(pictures, tmp_path / "run", recipe="scratch", **settings_of(classifier, **more))
    assert math.isfinite(run.scores["loss"])


STUDIED = ("ViT", "Swin", "PVT", "ResNet")
"""One architecture of each kind of study; `make soak` studies the others."""


@pytest.mark.parametrize("name", [pytest.param(k, marks=() if k in STUDIED else pytest.mark.soak) for k in OF_CLASSES])
def test_it_is_studied(name, pictures, tmp_path):
    trained = TrainedModel(tiny(name), ["red", "green", "blue"], vitrail.Preparation.standard((8, 8), 3), False)
    folder, numbers = api.study_model(trained, pictures, tmp_path / "study", images=6)
    assert (folder / "report.html").is_file() and numbers["parameters"] == cost(trained.config).parameters
    assert numbers["cost"][0]["images_per_second"] > 0
    model, page = trained.model, (folder / "report.html").read_text()
    assert ("attention_distance" in numbers) == (folder / "maps.png").is_file() == (model.sight is not None)
    assert ("What is left out" in page) == (model.sight != "image")
    if model.sight:
        assert all(0 < head < 12 for layer in numbers["attention_distance"] for head in layer)  # pixels, of eight a side
        assert len(numbers["attention_distance"]) == len(model.layers())


@pytest.mark.parametrize("kind", sorted({*OF_TASKS} - {*OF_CLASSES}))
def test_who_asks_for_classes_is_told_that_it_has_none(kind):
    with pytest.raises(ModelFileError, match=f"the model gives {ARCHITECTURES[kind].config.answer}, not classes"):
        vitrail.predict(trained_of(kind), np.zeros((8, 8, 3), np.uint8))


def _some_linear(kind: str) -> list[str]:
    """Return the name of a linear layer inside the layers, if there is one."""
    layers = tiny(kind).layers()
    names = {name.rpartition(".")[2] for layer in layers for name, m in layer.named_modules() if isinstance(m, nn.Linear)}
    return sorted(names)[:1]
