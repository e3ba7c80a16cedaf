"""Segmenters: every backbone, every decoder, any size, and how they start from other models."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from vitrail.errors import ConfigError
from vitrail.models.configs.mixer import MixerConfig
from vitrail.models.configs.segmenter import BACKBONES, SegmenterConfig, described, segmenter_config
from vitrail.models.configs.vit import ViTConfig
from vitrail.models.configs.vitpose import ViTPoseConfig
from vitrail.models.inference import for_inference
from vitrail.models.registry import build, model_config
from vitrail.models.vision.segmenter import Segmenter
from vitrail.weights.transfer import transfer

STAGES = {"dims": (8, 8, 12, 16), "depths": (1, 1, 1, 1), "heads": (1, 1, 2, 2), "mlp_ratios": (2, 2, 2, 2)}
TINY = {
    "ViT": {"patch_size": 16, "dim": 16, "depth": 2, "heads": 2, "mlp_dim": 24, "image_size": 32, "registers": 1},
    "Swin": {"dim": 12, "depths": (1, 1, 1, 1), "heads": (2, 2, 2, 2), "window_size": 3},
    "PVT": STAGES,
    "PVTv2": STAGES,
    "CvT": {"dims": (8, 12, 16), "depths": (1, 1, 1), "heads": (1, 1, 2)},
    "TNT": {"dim": 16, "depth": 2, "heads": 2, "word_dim": 8, "word_heads": 2},
    "T2T": {"dim": 16, "depth": 2, "heads": 2, "mlp_dim": 24, "token_dim": 8, "random_features": 4, "token_dropout": 0.0},
    "ResNet": {"depths": (1, 1, 1, 1), "width": 8},
}
"""A small backbone of every architecture, beside images of 64 pixels."""
MAPS = {"ViT": ("adapter", "pyramid", "last"), "TNT": ("pyramid", "last"), "T2T": ("pyramid", "last")}
CASES = [
    (kind, maps, head)
    for kind in BACKBONES
    for maps in MAPS.get(kind, ("stages", "last"))
    for head in ("linear", "mlp", "upernet")
    if (maps, head) != ("last", "upernet")
]
NARROW = {"head_dim": 8, "auxiliary": True, "auxiliary_dim": 4, "pyramid_dim": 8}


def start_of(kind: str, **fields):
    return BACKBONES[kind][0].read({"image_size": 64, **TINY[kind], "num_classes": 7, **fields})


def segmenter(kind: str = "ViT", maps: str | None = None, head: str | None = None, seed: int = 0, **fields) -> Segmenter:
    torch.manual_seed(seed)
    config = segmenter_config(start_of(kind), 64, 5, maps=maps, head=head).changed(**{**NARROW, **fields})
    return build(config).eval()


def test_every_backbone_has_its_small_one_here():
    assert list(TINY) == list(BACKBONES)


@pytest.mark.parametrize(("kind", "maps", "head"), CASES)
def test_every_backbone_with_every_decoder_takes_any_size_and_learns_whole(kind, maps, head):
    model = segmenter(kind, maps, head)
    expected = (4, 8, 16, 32) if maps != "last" else (16,) if kind in ("ViT", "TNT", "T2T", "CvT") else (32,)
    assert model.strides == expected
    for side in ((64, 64), (90, 43), (32, 100)):
        images = torch.randn(2, 3, *side)
        logits, second = model.at_any_size()(images, separate=True)
        stride, coarser = model.strides[0], model.strides[-2:][0]
        assert logits.shape == (2, 5, *(-(-length // stride) for length in side))
        assert second.shape == (2, 5, *(-(-length // coarser) for length in side))
        assert torch.equal(model(images), logits)
        assert model.enlarged(logits, *side).shape == (2, 5, *side)
    assert model.outputs()["logits"].zeros(batch=2).shape == model(torch.zeros(2, 3, 64, 64)).shape
    (logits.square().sum() + second.square().sum()).backward()
    assert not [name for name, p in model.named_parameters() if p.grad is None], "several processes wait for every gradient"
    assert not [name for name in model.state_dict() if name.startswith("backbone.head")]


@torch.no_grad()
@pytest.mark.parametrize("kind", BACKBONES)
def test_padding_is_outside_of_the_answer(kind):
    """An image whose zeros are its own has the same answer as one that is padded."""
    model = segmenter(kind)
    images = torch.randn(1, 3, 90, 43)
    down, across = model.config.multiple
    whole = F.pad(images, (0, -43 % across, 0, -90 % down))
    torch.testing.assert_close(model(images), model(whole)[..., :23, :11], rtol=0, atol=0)


@torch.no_grad()
def test_logits_at_the_size_of_the_image_are_at_its_pixels():
    model = segmenter("ViT", "last")  # a stride of 16, and 40 pixels are two positions and a half
    logits = torch.randn(1, 5, 3, 2)
    large = F.interpolate(logits, size=(48, 32), mode="bilinear")
    torch.testing.assert_close(model.enlarged(logits, 40, 30), large[..., :40, :30])


@pytest.mark.parametrize("kind", BACKBONES)
def test_a_configuration_comes_back_from_json_with_its_backbone(kind):
    config = segmenter(kind).config
    assert SegmenterConfig.read(config.model_dump(mode="json")) == config
    assert type(config.backbone) is BACKBONES[kind][0] and config.backbone.num_classes == 0
    assert config.changed(channels=1).backbone.channels == 1
    assert f"{kind}:" in config.summary and "5 classes" in config.summary
    assert segmenter_config(config, classes=9) == config.changed(num_classes=9)


def test_names_of_a_head_and_a_backbone():
    adapter, swin = model_config("ViT-Adapter-B"), model_config("UPerNet-Swin-T", num_classes=3)
    assert (adapter.image_size, adapter.deformable_heads, adapter.deformable_ratio) == ((512, 512), 12, 0.5)
    assert (swin.maps, swin.head, swin.head_dim, swin.auxiliary, swin.num_classes) == ("stages", "upernet", 512, True, 3)
    assert swin.backbone == model_config("Swin-T", num_classes=0)
    linear, mlp = model_config("Linear-ViT-S/14"), model_config("MLP-pvt_tiny")
    assert (linear.maps, linear.head, linear.auxiliary, linear.backbone.patch_size) == ("last", "linear", False, (14, 14))
    assert (mlp.maps, mlp.head, mlp.head_dim) == ("stages", "mlp", 256)
    with pytest.raises(ConfigError, match="unknown model 'MLP-Nothing'"):
        model_config("MLP-Nothing")


@pytest.mark.parametrize("kind", BACKBONES)
def test_a_classifier_fills_the_backbone_and_leaves_the_rest_new(kind):
    torch.manual_seed(3)
    classifier, model = build(start_of(kind)).eval(), segmenter(kind)
    new = {name: tensor.clone() for name, tensor in model.state_dict().items() if not name.startswith("backbone.")}
    transfer(classifier, model, keep_head=True)
    old, state = classifier.state_dict(), model.state_dict()
    backbone = {name.removeprefix("backbone."): tensor for name, tensor in state.items() if name.startswith("backbone.")}
    assert all(torch.equal(tensor, old[name]) for name, tensor in backbone.items()) and len(backbone) > 20
    assert {name.partition(".")[0] for name in old.keys() - backbone.keys()} <= {"head", "norm"}
    heads = [name for name in new if "classifier" in name]
    assert heads and not any(state[name].any() for name in heads), "new heads start at zero"
    assert all(torch.equal(state[name], new[name]) for name in new.keys() - set(heads))


def test_a_segmenter_starts_another_of_other_classes_size_and_channels():
    source, target = segmenter(seed=1), segmenter(num_classes=9, image_size=32, channels=1)
    transfer(source, target, keep_head=False)
    grey = torch.randn(2, 1, 64, 64)
    torch.testing.assert_close(target.vectors(grey), source.vectors(grey.expand(-1, 3, -1, -1)), rtol=1e-3, atol=1e-4)
    again = segmenter(seed=2)
    transfer(source, again, keep_head=True)
    images = torch.randn(1, 3, 64, 64)
    assert all(torch.equal(*pair) for pair in zip(source(images, separate=True), again(images, separate=True), strict=True))


@pytest.mark.parametrize(
    ("start", "changes", "what"),
    [
        (start_of("Swin"), {}, "backbone Swin → ViT"),
        (start_of("ViT", dim=32), {}, "backbone.dim 32 → 16"),
        (start_of("ViT", mlp="swiglu"), {}, "backbone.mlp swiglu → gelu"),
        (start_of("ViT", final_norm="none"), {"maps": "pyramid"}, "backbone.final_norm none → tokens"),
        (segmenter(head_dim=16).config, {}, "head_dim 16 → 8"),
        (segmenter(norm="group").config, {}, "norm group → batch"),
        (segmenter(maps="pyramid").config, {}, "maps pyramid → adapter"),
    ],
)
def test_a_model_to_start_from_that_does_not_fit_is_refused_with_the_difference(start, changes, what):
    with pytest.raises(ConfigError, match=what):
        transfer(build(start), segmenter(**changes), keep_head=False)


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"maps": "adapter", "backbone": described(start_of("Swin"))}, "the maps 'adapter' cannot be made of a Swin"),
        ({"maps": "stages"}, "the maps 'stages' cannot be made of a ViT"),
        ({"maps": "last"}, "'upernet' needs maps of several strides"),
        ({"deformable_heads": 7}, "deformable_heads 7"),
        ({"backbone": {"architecture": "Mixer"}}, "unknown backbone 'Mixer'"),
        ({"backbone": {"dimm": 3}}, "unknown setting 'dimm'"),
        ({"num_classes": 0}, "num_classes cannot be 0"),
        ({"maps": "adaptor"}, "maps cannot be 'adaptor'"),
    ],
)
def test_what_cannot_work_is_refused_with_a_sentence(fields, what):
    with pytest.raises(ConfigError, match=what):
        SegmenterConfig.read(fields, where="model")


@pytest.mark.parametrize("start", [MixerConfig(), ViTPoseConfig()])
def test_models_that_cannot_be_a_backbone_are_named(start):
    with pytest.raises(ConfigError, match="cannot be the backbone of a segmenter"):
        segmenter_config(start)


def test_stages_of_other_strides_are_refused():
    config = segmenter_config(start_of("ResNet", root="cifar"), 64, 5)
    with pytest.raises(ConfigError, match="strides 1, 2, 4, 8"):
        build(config)


@torch.no_grad()
@pytest.mark.parametrize("maps", ["adapter", "pyramid"])
def test_the_copy_for_inference_answers_alike_with_its_norms_folded(maps):
    model, images = segmenter(maps=maps), torch.randn(2, 3, 64, 64)
    for norm in model.modules():
        if isinstance(norm, nn.BatchNorm2d):
            norm.running_mean.normal_(std=0.1)
            norm.running_var.uniform_(0.5, 2)
    fast = for_inference(model)
    torch.testing.assert_close(fast(images), model(images), rtol=1e-3, atol=1e-4)
    left = [name for name, module in fast.named_modules() if isinstance(module, nn.BatchNorm2d)]
    assert all("neck.norms" in name for name in left)
    half = for_inference(model, "bf16")(images)
    torch.testing.assert_close(half.float(), model(images), rtol=0.1, atol=0.1)


def test_the_linear_decoder_of_a_frozen_vit_reads_its_patches():
    model, images = segmenter("ViT", "last", auxiliary=False), torch.randn(2, 3, 32, 32)
    vit = build(ViTConfig.read({**start_of("ViT").model_dump(), "num_classes": 0})).eval()
    model.backbone.load_state_dict({n: t for n, t in vit.state_dict().items() if n in model.backbone.state_dict()})
    torch.testing.assert_close(model.feature_maps(images)[0], vit.feature_maps(images)[0])
    assert set(model.readout()) == {"neck", "decoder", "dropout", "classifier"}


@torch.no_grad()
def test_a_graph_resizes_positions_by_products_that_every_engine_has():
    model, images = segmenter("ViT", "last", auxiliary=False), torch.randn(2, 3, 90, 70)
    program = torch.export.export(model, (images,), strict=False)
    operations = {str(node.target) for node in program.graph.nodes}
    assert not [name for name in operations if "bicubic" in name]
    torch.testing.assert_close(program.module()(images), model(images), rtol=1e-4, atol=1e-5)
