"""A model whose projections are apart answers as before."""

import pytest
import torch

import vitrail
from vitrail.deploy.export.split_qkv import Apart, apart


@pytest.mark.parametrize("bias", [True, False])
def test_three_projections_give_what_one_gives(bias):
    model = vitrail.create_model("ViT-Ti/16", image_size=32, depth=2, num_classes=3, qkv_bias=bias).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.1)
        images = torch.randn(2, 3, 32, 32)
        found = apart(model).eval()
        assert sum(isinstance(module, Apart) for module in found.modules()) == 2
        assert not any(isinstance(module, Apart) for module in model.modules())
        torch.testing.assert_close(found(images), model(images))
