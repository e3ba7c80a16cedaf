"""Residual networks against timm and transformers, at several sizes, and their counts and multiply-adds."""

import math
from functools import partial

import pytest
import timm
import torch
import torch.nn.functional as F
from timm.models.resnetv2 import ResNetV2
from torch import Tensor, nn

import random_weights
from vitrail.data.images.preparation import Preparation
from vitrail.deploy.export.artefact import Description
from vitrail.deploy.export.export import export_graph
from vitrail.errors import ConfigError
from vitrail.models.configs.resnet import PRESETS, ResNetConfig
from vitrail.models.registry import build, create_model, model_config
from vitrail.models.vision.resnet import ResNet
from vitrail.parts import Interpolation
from vitrail.weights.model_folder.folder import TrainedModel
from vitrail.weights.transfer import adapt, transfer

TIMM = {
    name: f"resnetv2_{name.removeprefix('BiT-R')}_bit" if name.startswith("BiT") else name.lower().replace("-", "")
    for name in PRESETS
}
SMALL = {"image_size": 32, "num_classes": 5}
SHALLOW = (1, 2, 1, 1)
"""Blocks that are first in their stage, and one that is not; every preset's are compared by shape and name."""
SIZES = [(64, 64), (47, 65), (7, 1)]

randomize = partial(random_weights.randomize, std=0.1)


def from_v1(key: str) -> str:
    """timm's name of a ResNet's tensor, as we have it."""
    place, _, kind = key.rpartition(".")
    if place in ("conv1", "bn1"):
        return f"features.root.{int(place == 'bn1')}.{kind}"
    if place == "fc":
        return f"head.linear.{kind}"
    stage, block, *rest = place.removeprefix("layer").split(".")
    at = f"features.stages.{int(stage) - 1}.{block}"
    if rest[0] == "downsample":
        return f"{at}.shortcut.{rest[1]}.{kind}"
    return f"{at}.{{}}.{int(rest[0].startswith('bn'))}.{kind}|{int(rest[0][-1]) - 1}"


def from_v2(key: str) -> str:
    """timm's and transformers' name of a BiT's tensor, as we have it; ours count the layers of a block otherwise."""
    place, _, kind = key.removeprefix("bit.").replace("embedder.convolution", "stem.conv").rpartition(".")
    if place in ("stem.conv", "norm", "head.fc", "classifier.1"):
        ours = {"stem.conv": "features.root.0", "norm": "features.norm.0"}
        return f"{ours.get(place, 'head.linear')}.{kind}"
    _, stage, _, block, *rest = place.removeprefix("encoder.").split(".")
    ours = {"norm1": "activate.0", "conv1": "reduce", "norm2": "spread.0", "conv2": "spread.2", "norm3": "expand.0",
            "conv3": "expand.2", "downsample": "shortcut"}  # fmt: skip
    return f"features.stages.{stage}.{block}.{ours[rest[0]]}.{kind}"


def renamed(name: str, config: ResNetConfig) -> str:
    """A name in which the number of a convolution in its block is still to be told by ours."""
    name, _, number = name.partition("|")
    inside = ("first", "second") if config.block == "basic" else ("reduce", "spread", "expand")
    return name.format(inside[int(number)]) if number else name


def translated(theirs: nn.Module, config: ResNetConfig, rename) -> dict[str, Tensor]:
    """All of their tensors under our names; the head of BiT is a convolution there."""
    found = {renamed(rename(key), config): tensor for key, tensor in theirs.state_dict().items()}
    return {name: tensor.flatten(1) if name == "head.linear.weight" else tensor for name, tensor in found.items()}


def twin(theirs: nn.Module, config: ResNetConfig, rename) -> ResNet:
    """Ours with their weights."""
    ours = build(config).double().eval()
    ours.load_state_dict(translated(theirs, config, rename))
    return ours


def require_equal(ours: nn.Module, theirs, size: tuple[int, int], batch: int = 2) -> None:
    images = torch.randn(batch, 3, *size, dtype=torch.double)
    with torch.no_grad():
        torch.testing.assert_close(ours(images), theirs(images), atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("name", PRESETS)
def test_every_size_has_timms_tensors(name):
    config = model_config(name)
    with torch.device("meta"):
        ours, theirs = build(config), timm.create_model(TIMM[name])
    expected = translated(theirs, config, from_v2 if name.startswith("BiT") else from_v1)
    assert {key: t.shape for key, t in ours.state_dict().items()} == {key: t.shape for key, t in expected.items()}


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", ["ResNet-18", "ResNet-50"])
def test_a_resnet_gives_the_logits_of_timm(name, size):
    theirs = randomize(timm.create_model(TIMM[name], num_classes=5, layers=SHALLOW))
    require_equal(twin(theirs, model_config(name, **SMALL, depths=SHALLOW), from_v1), theirs, size)


@pytest.mark.parametrize("name", ["ResNet-18", "ResNet-50"])
def test_in_training_a_resnet_remembers_what_timm_does(name):
    theirs = randomize(timm.create_model(TIMM[name], num_classes=5, layers=SHALLOW)).train()
    config = model_config(name, **SMALL, depths=SHALLOW)
    ours = twin(theirs, config, from_v1).train()
    require_equal(ours, theirs, (65, 65), batch=4)
    for key, tensor in translated(theirs, config, from_v1).items():
        torch.testing.assert_close(ours.state_dict()[key], tensor, atol=1e-9, rtol=1e-9, msg=key)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_bit_gives_the_logits_of_timm(size):
    theirs = randomize(bit(SHALLOW))
    require_equal(twin(theirs, model_config("BiT-R50x1", **SMALL, depths=SHALLOW), from_v2), theirs, size)


@pytest.mark.parametrize(("width", "depths"), [(3, (1, 2)), (1, (2, 3, 2, 1))])
def test_wide_and_deep_bit_gives_the_logits_of_timm(width, depths):
    theirs = randomize(bit(depths, width))
    config = model_config("BiT-R50x1", **SMALL, depths=depths, width=64 * width)
    require_equal(twin(theirs, config, from_v2), theirs, (47, 34))


def bit(depths: tuple[int, ...], width: int = 1) -> ResNetV2:
    """timm's, of other depths and widths than its names have, with the epsilon that its own have."""
    with torch.device("meta"):
        usual = timm.create_model("resnetv2_50x1_bit")
    first = next(module for module in usual.modules() if isinstance(module, nn.Conv2d))
    assert first.eps == 1e-8
    channels = (256, 512, 1024, 2048)[: len(depths)]
    return ResNetV2(depths, channels, 5, width_factor=width, stem_type="fixed", conv_layer=partial(type(first), eps=first.eps))


@pytest.mark.parametrize(("name", "width"), [("ResNet-18", 512), ("BiT-R50x1", 2048)])
def test_the_head_reads_the_mean_of_the_feature_map(name, width):
    model, images = randomize(create_model(name, **SMALL, depths=SHALLOW)), torch.randn(2, 3, 64, 96, dtype=torch.double)
    vectors = model.vectors(images)
    assert vectors.shape == (2, width)
    torch.testing.assert_close(vectors, model.feature_maps(images)[-1].flatten(2).mean(dim=2))
    torch.testing.assert_close(model(images), model.head(vectors))
    headless = create_model(name, image_size=32, num_classes=0, depths=SHALLOW).double().eval()
    headless.features.load_state_dict(model.features.state_dict())
    torch.testing.assert_close(headless(images), vectors)


POOLED = {"block": "pooled", "root": "whitened", "width": 8, "depths": (1, 2)}


def norm_and_relu(x: Tensor, norm: dict[str, Tensor]) -> Tensor:
    scale = norm["weight"] / (norm["running_var"] + 1e-5).sqrt()
    return F.relu((x - norm["running_mean"][:, None, None]) * scale[:, None, None] + norm["bias"][:, None, None])


@pytest.mark.parametrize("size", [(32, 32), (21, 34), (1, 1)])
def test_pooled_blocks_widen_before_a_maximum_and_add_one_convolution(size):
    """By hand: the maximum of what lies beyond an odd side is of what there is."""
    model = randomize(create_model("ResNet-18", **SMALL, **POOLED))
    tensors, images = model.state_dict(), torch.randn(2, 3, *size, dtype=torch.double)

    def convolution(name: str, number: int, x: Tensor, *, halve: bool = False) -> Tensor:
        x = F.conv2d(x, tensors[f"features.{name}.{number}.weight"], padding=1)
        if halve:
            rows, columns = (side % 2 for side in x.shape[-2:])
            x = F.pad(x, (0, columns, 0, rows), value=-math.inf).unfold(2, 2, 2).unfold(3, 2, 2).amax((4, 5))
        leaves = ("weight", "bias", "running_mean", "running_var")
        return norm_and_relu(x, {leaf: tensors[f"features.{name}.{number + 1 + halve}.{leaf}"] for leaf in leaves})

    whitened = F.gelu(F.conv2d(F.pad(images, (0, 1, 0, 1)), tensors["features.root.0.weight"]))
    x = convolution("root", 2, whitened, halve=True)
    x = first = x + convolution("stages.0.0.refine", 0, x)
    x = convolution("stages.1.0.widen", 0, x, halve=True)
    x = x + convolution("stages.1.0.refine", 0, x)
    x = x + convolution("stages.1.1.refine", 0, x)
    assert model.strides == (2, 4)
    assert x.shape == (2, 16, *(math.ceil(side / 4) for side in size))
    for ours, expected in zip(model.feature_maps(images), (first, x), strict=True):
        torch.testing.assert_close(ours, expected)


@pytest.mark.parametrize(
    ("name", "fields"), [("BiT-R50x1", {}), *(pytest.param("ResNet-18", more, marks=pytest.mark.soak) for more in ({}, POOLED))]
)
def test_a_graph_for_any_size_answers_as_the_model_does(name, fields, tmp_path):
    model = create_model(name, **{"image_size": (64, 100), "num_classes": 3, "depths": (1, 1)} | fields).eval()
    nn.init.normal_(model.head.linear.weight, std=0.02)
    trained = TrainedModel(model, ["a", "b", "c"], Preparation.standard((64, 100), 3))
    written = export_graph(trained, Description.of_model(trained, name, "fp32", any_size=True), "onnx", tmp_path)
    assert written.verified.largest < 1e-4 < written.verified.spread


def test_filters_so_small_that_their_epsilon_tells_are_exported_as_they_are(tmp_path):
    model = create_model("BiT-R50x1", **SMALL, depths=(1, 1)).eval()
    nn.init.normal_(model.head.linear.weight, std=0.02)
    for layer in model.layers():
        nn.init.normal_(layer.spread[2].weight, std=1e-4)
    trained = TrainedModel(model, list("abcde"), Preparation.standard((32, 32), 3))
    written = export_graph(trained, Description.of_model(trained, "small", "fp32"), "onnx", tmp_path)
    assert written.verified.largest < 1e-4 < written.verified.spread


def test_a_graph_for_any_size_of_a_model_for_small_images_is_refused():
    with pytest.raises(ConfigError, match="needs images of at least 64 pixels"):
        create_model("ResNet-18", **SMALL).at_any_size(graph=True)


@pytest.mark.parametrize(
    ("name", "before", "after", "tolerance"), [("ResNet-18", 3, 1, 1e-9), ("ResNet-18", 1, 3, 1e-9), ("BiT-R50x1", 1, 3, 1e-3)]
)
def test_weights_fit_other_sizes_channels_and_classes(name, before, after, tolerance):
    source = randomize(create_model(name, **SMALL, channels=before, depths=(1, 2)))
    target = create_model(name, image_size=48, channels=after, num_classes=7, depths=(1, 2)).double().eval()
    transfer(source, target, keep_head=False)
    grey = torch.randn(2, 1, 48, 48, dtype=torch.double)
    expected = source.vectors(grey.expand(-1, before, -1, -1))
    torch.testing.assert_close(target.vectors(grey.expand(-1, after, -1, -1)), expected, atol=tolerance, rtol=tolerance)
    assert not target.head.linear.weight.any()


def test_weights_of_another_depth_width_or_block_are_refused():
    source, target = model_config("ResNet-34", **SMALL), model_config("ResNet-50", **SMALL)
    assert ResNet.differences(source, target, keep_head=True) == ["block basic → bottleneck"]
    tensors = build(source).state_dict()
    with pytest.raises(ConfigError, match="depths"):
        adapt(tensors, source, source.changed(depths=(2, 2, 2, 2)), keep_head=True, interpolation=Interpolation())
    with pytest.raises(ConfigError, match="width 64 → 32"):
        adapt(tensors, source, source.changed(width=32), keep_head=True, interpolation=Interpolation())


@pytest.mark.parametrize(
    ("name", "fields", "told"),
    [
        ("ResNet-50", {}, "bottleneck blocks 3-4-6-3, width 64, images 224×224×3, 1000 classes"),
        (
            "ResNet-18",
            {"image_size": (32, 48), "channels": 1, "num_classes": 0, "root": "cifar"},
            "basic blocks 2-2-2-2, width 64, images 32×48×1, root for small images, no head",
        ),
        (
            "ResNet-18",
            {"image_size": 32, "num_classes": 2, **POOLED},
            "pooled blocks 1-2, width 8, images 32×32×3, root of whitened patches, 2 classes",
        ),
    ],
)
def test_it_is_told_in_one_line(name, fields, told):
    assert model_config(name, **fields).summary == told


def test_an_image_of_one_pixel_has_an_answer():
    """torch's own GroupNorm refuses one value to a group."""
    small = ResNetConfig(block="pre-activation", depths=(1, 1), width=32, image_size=1, num_classes=3)
    with torch.no_grad():
        assert ResNet(small).eval()(torch.zeros(1, 3, 1, 1)).shape == (1, 3)
