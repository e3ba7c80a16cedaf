"""A model for images of another size than its own."""

from typing import get_args

import pytest
import torch
from torch import nn

from vitrail.models.any_size import AnySize, AnySizeGraph
from vitrail.models.configs.vit import ViTConfig
from vitrail.models.vision.vit import ViT

SMALL = {"image_size": 16, "patch_size": 4, "dim": 16, "depth": 2, "heads": 2, "mlp_dim": 32, "num_classes": 3}


@pytest.mark.parametrize("position", get_args(ViTConfig.model_fields["position"].annotation))
def test_images_of_another_size_are_judged_and_learned_from(position):
    model = ViT(ViTConfig(**SMALL, position=position))
    logits = AnySize(model)(torch.randn(2, 3, 8, 12))
    assert logits.shape == (2, 3)
    nn.functional.cross_entropy(logits, torch.tensor([0, 1])).backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


@pytest.mark.parametrize("position", ["relative", "relative-per-block", "rotary", "sincos-2d", "sincos-2d-simple"])
def test_images_of_a_size_that_was_only_looked_at_before_can_be_learned_from(position):
    model = ViT(ViTConfig(**SMALL | {"dim": 24}, position=position))
    images = torch.randn(2, 3, 12, 8)
    with torch.inference_mode():
        AnySize(model)(images)
    AnySize(model)(images).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("position", ["learned-1d", "learned-2d"])
def test_positions_of_a_model_in_half_precision_are_resized_in_single_precision(position, dtype):
    model = ViT(ViTConfig(**SMALL, position=position))
    images, any_size = torch.randn(2, 3, 8, 12), AnySizeGraph(model)
    rows, columns = torch.arange(2.0), torch.arange(3.0)
    expected = any_size._position(rows, columns)
    model.to(dtype)
    found = any_size._position(rows, columns)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, atol=1e-3, rtol=0.01)
    assert any_size(images.to(dtype)).dtype == dtype
