"""A model that only answers."""

import copy

import pytest
import torch
from torch import nn

import random_weights
from vitrail.errors import ConfigError
from vitrail.models.configs.vit import ViTConfig
from vitrail.models.inference import for_inference
from vitrail.models.registry import create_model
from vitrail.models.vision.vit import ViT
from vitrail.parts.cpu.prepacked import PrepackedLinear, packs
from vitrail.parts.feed_forward import FeedForward
from vitrail.runtime.device import TYPES

SMALL = {"image_size": 32, "patch_size": 8, "dim": 32, "depth": 2, "heads": 4, "mlp_dim": 64, "num_classes": 5}
FIELDS = [
    {}, {"pool": "mean"}, {"pool": "attention"}, {"embedding": "stem"}, {"embedding": "pooled-stem"}, {"qkv_bias": False},
    {"position": "rotary"}, {"position": "relative"}, {"position": "sincos-2d"}, {"mlp": "swiglu", "qk_norm": True},
    {"block": "parallel", "layer_scale": 0.5}, {"distillation_token": True, "registers": 2}, {"token_merging": 3},
    {"num_classes": 0}, {"head": "lecture", "dropout": 0.5},
]  # fmt: skip
every_model = pytest.mark.parametrize("fields", FIELDS, ids=str)


@every_model
def test_it_answers_as_the_model_does(fields):
    model, images = ViT(ViTConfig(**{**SMALL, **fields})), torch.randn(3, 3, 32, 32)
    before = copy.deepcopy(model.state_dict())
    fast = for_inference(model)
    assert model.training and not fast.training
    with torch.inference_mode():
        torch.testing.assert_close(fast(images), model.eval()(images), atol=1e-5, rtol=1e-5)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


POOLED = {"embedding": "resnet", "resnet_depths": (1,), "resnet_width": 8, "resnet_block": "pooled", "patch_size": 8}


@pytest.mark.parametrize(
    ("name", "fields", "norms"),
    [
        ("ResNet-18", {"depths": (1, 1), "width": 8}, 0),
        ("ResNet-50", {"depths": (1, 1), "width": 8, "root": "cifar"}, 0),
        ("ResNet-18", {"depths": (1, 1), "width": 8, "root": "whitened", "block": "pooled"}, 2),
        ("ViT-Ti/16", POOLED | {"resnet_root": "whitened-valid"}, 1),
        ("ViT-Ti/16", {"embedding": "stem"}, 0),
        ("ViT-Ti/16", {"embedding": "pooled-stem"}, 0),
        ("ViTPose-Ti", {}, 0),
        ("BiT-R50x1", {"depths": (1, 1), "width": 8}, 0),
    ],
    ids=str,
)
def test_a_norm_right_behind_a_convolution_is_part_of_it(name, fields, norms):
    """Behind a maximum it stays: the largest value need not be the largest once it is scaled."""
    sizes = {"dim": 32, "depth": 1, "heads": 4, "mlp_dim": 64} if name.startswith("ViT") else {}
    model = random_weights.randomize(create_model(name, image_size=32, num_classes=5, **sizes, **fields), std=0.1).float()
    before, images = copy.deepcopy(model.state_dict()), torch.randn(3, 3, 32, 32)
    fast = for_inference(model)
    assert sum(isinstance(module, nn.BatchNorm2d) for module in fast.modules()) == norms
    with torch.inference_mode():
        found, exact = fast(images), model(images)
    torch.testing.assert_close(found, exact, rtol=0, atol=1e-5 * exact.abs().max().item())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("fields", FIELDS[::4], ids=str)
def test_in_bf16_it_answers_up_to_its_rounding(fields):
    model, images = ViT(ViTConfig(**{**SMALL, **fields})).eval(), torch.randn(3, 3, 32, 32)
    with torch.inference_mode():
        answers, exact = for_inference(model, "bf16")(images), model(images)
    assert answers.dtype == torch.float32
    if not fields.get("token_merging"):  # which tokens are the most alike may turn on a rounding
        torch.testing.assert_close(answers, exact, atol=0.03 * exact.abs().max().item() + 0.03, rtol=0)
    assert all(p.dtype == torch.float32 for p in model.parameters())


def test_every_linear_layer_is_prepacked_and_nothing_is_copied_that_stays_the_same():
    model = ViT(ViTConfig(**SMALL))
    fast = for_inference(model)
    assert not any(isinstance(module, nn.Linear) for module in fast.modules())
    assert sum(isinstance(module, PrepackedLinear) for module in fast.modules()) == 4 * 2 + 1
    assert fast.model.norm.weight.data_ptr() == model.norm.weight.data_ptr()
    assert not any(p.requires_grad for p in fast.parameters())


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(
    ("mlp", "fused"),
    [("gelu", True), ("gelu-tanh", True), ("relu", True), ("quick-gelu", False), ("silu", False), ("swiglu", False)],
)
def test_activations_are_part_of_the_product_where_they_can_be(mlp, fused, precision):
    torch.manual_seed(0)
    model, x = FeedForward(32, 64, activation=mlp, norm="layer").eval(), torch.randn(3, 50, 32)
    fast = for_inference(model, precision).model
    fused = fused and packs(TYPES[precision])  # a processor without bf16 instructions prepacks no bf16
    assert (getattr(fast.expand, "activation", None), fast.activation) == ((mlp, None) if fused else (None, mlp))
    assert model.activation == mlp
    with torch.inference_mode():
        expected, found = model(x), fast(x.to(TYPES[precision])).float()
    close = {"atol": 1e-6, "rtol": 1e-5} if precision == "fp32" else {"atol": 0.03, "rtol": 0.02}
    torch.testing.assert_close(found, expected, **close)


def test_where_nothing_can_be_prepacked_linear_layers_stay(monkeypatch):
    monkeypatch.setattr("vitrail.models.inference.prepacks", lambda device, dtype: False)
    model, images = ViT(ViTConfig(**SMALL)), torch.randn(2, 3, 32, 32)
    for precision, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        fast = for_inference(model, precision)
        assert {p.dtype for p in fast.parameters()} == {dtype}
        torch.testing.assert_close(fast(images), model(images), atol=0.05, rtol=0.05)


def test_a_precision_that_does_not_exist_is_refused_by_name():
    with pytest.raises(ConfigError, match="unknown precision 'bf61'") as refused:
        for_inference(ViT(ViTConfig(**SMALL)), "bf61")
    assert refused.value.hint == "did you mean 'bf16'? known: fp32, bf16"
