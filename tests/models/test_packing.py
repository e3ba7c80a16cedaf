"""A packed sequence gives every image the logits that it gets alone, at its own size."""

import pytest
import torch

from vitrail.errors import ConfigError
from vitrail.models.configs.vit import ViTConfig
from vitrail.models.packing import forward_packed
from vitrail.models.vision.vit import ViT
from vitrail.weights.transfer import transfer

SMALL = {"image_size": 32, "patch_size": 8, "dim": 32, "depth": 2, "heads": 4, "mlp_dim": 64, "num_classes": 5}
SIZES = [(32, 32), (16, 40), (48, 24), (32, 32), (16, 40), (8, 8)]
KINDS = [
    {},
    {"position": "none"},
    {"position": "learned-2d"},
    {"position": "sincos-1d"},
    {"position": "sincos-2d"},
    {"position": "sincos-2d-simple"},
    {"position": "rotary"},
    {"position": "relative"},
    {"position": "relative-per-block"},
    {"position": "learned-1d+rotary", "rotary_coordinates": "unit"},
    {"pool": "attention"},
    {"pool": "mean", "registers": 2},
    {"pool": "class+mean"},
    {"pool": "mean", "final_norm": "pooled", "head": "mlp"},
    {"block": "parallel", "qk_norm": True, "layer_scale": 0.1},
    {"embedding": "stem", "distillation_token": True},
]


def model_of(**fields) -> ViT:
    torch.manual_seed(0)
    return ViT(ViTConfig(**{**SMALL, **fields})).eval()


def pictures(sizes=SIZES) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(3, *size, generator=generator) for size in sizes]


def alone(model: ViT, image: torch.Tensor) -> torch.Tensor:
    """The logits of a model of the image's own size that was given the same weights."""
    resized = ViT(model.config.changed(image_size=tuple(image.shape[1:]))).eval()
    transfer(model, resized, keep_head=True)
    return resized(image[None])[0]


@pytest.mark.parametrize("fields", KINDS, ids=lambda fields: " ".join(map(str, fields.values())) or "plain")
def test_logits_are_those_of_each_image_alone(fields):
    model, images = model_of(**fields), pictures()
    expected = torch.stack([alone(model, image) for image in images])
    torch.testing.assert_close(forward_packed(model, images), expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("position", ["learned-1d", "learned-2d", "relative", "relative-per-block"])
def test_gradients_are_those_of_the_images_alone(position):
    model, images = model_of(position=position), pictures([(32, 32), (16, 32)])
    forward_packed(model, images).square().sum().backward()
    packed = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    model.zero_grad()
    for image in images:
        forward_packed(model, [image]).square().sum().backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(packed[name], parameter.grad, atol=1e-5, rtol=1e-4)
    assert all(gradient.abs().sum() > 0 for name, gradient in packed.items() if "position" in name or "relative" in name)


@pytest.mark.parametrize("fields", [{"stochastic_depth": 0.1}, {"patch_dropout": 0.5}])
def test_what_drops_whole_parts_of_a_batch_is_refused_in_training(fields):
    model = model_of(**fields)
    forward_packed(model, pictures())
    with pytest.raises(ConfigError, match="packed"):
        forward_packed(model.train(), pictures())


def test_a_model_that_merges_tokens_is_refused():
    with pytest.raises(ConfigError, match="packed"):
        forward_packed(model_of(token_merging=2), pictures())


def test_a_side_that_is_no_multiple_of_the_patch_is_refused():
    with pytest.raises(ConfigError, match="patch"):
        forward_packed(model_of(), pictures([(32, 32), (30, 32)]))
