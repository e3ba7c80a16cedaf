"""DeiT and DeiT III give the logits of transformers and timm, and their positions come and go without a change."""

import pytest
import timm
import torch
from timm.models import save_for_hf
from torch import nn
from transformers import DeiTConfig, DeiTForImageClassificationWithTeacher

from vitrail.errors import ConfigError
from vitrail.models.configs.vit import ViTConfig
from vitrail.models.vision.vit import ViT
from vitrail.weights.reference import from_pretrained
from vitrail.weights.transfer import transfer

TINY = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 3, "num_classes": 5}
SIZES = {"image_size": 32, "patch_size": 8, "dim": 24, "depth": 2, "heads": 3, "mlp_dim": 40, "num_classes": 5}


def random_weights(model: nn.Module) -> nn.Module:
    """Every parameter away from what it begins with."""
    torch.manual_seed(0)
    for name, parameter in model.named_parameters():
        mean = float(parameter.ndim == 1 and name.endswith(("weight", "gamma")))
        nn.init.normal_(parameter, mean=mean, std=0.3)
    return model.eval()


def difference(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    return float((ours - theirs).abs().max() / theirs.abs().max())


def test_deit_iii_is_timms_and_keeps_no_position_for_its_class_token(tmp_path):
    theirs = random_weights(timm.create_model("deit3_small_patch16_224", **TINY))
    save_for_hf(theirs, tmp_path / "theirs", model_args=TINY, safe_serialization=True)
    ours, images = from_pretrained(tmp_path / "theirs"), torch.randn(3, 3, 32, 32)
    assert not ours.config.class_position and ours.model.position.embedding.shape == (16, 24)
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())
    assert difference(ours(images), theirs(images)) < 1e-5
    ours.save_pretrained(tmp_path / "ours", layout="timm")
    again = timm.create_model(f"local-dir:{tmp_path / 'ours'}", pretrained=True).eval()
    assert again.pos_embed.shape == (1, 16, 24) and difference(again(images), theirs(images)) < 1e-6
    assert from_pretrained(tmp_path / "ours").config == ours.config


def test_distilled_deit_is_transformers(tmp_path):
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40}
    theirs = DeiTForImageClassificationWithTeacher(DeiTConfig(image_size=32, patch_size=8, num_labels=5, **sizes))
    random_weights(theirs).save_pretrained(tmp_path / "theirs")
    ours, images = from_pretrained(tmp_path / "theirs"), torch.randn(3, 3, 32, 32)
    assert difference(ours(images), theirs(images).logits) < 1e-5


@pytest.mark.parametrize("distilled", [False, True])
@pytest.mark.parametrize("there", [True, False])
def test_weights_of_a_model_with_such_rows_start_one_without_and_the_other_way_round(there, distilled):
    source, target = (
        random_weights(ViT(ViTConfig(**SIZES, class_position=rows, distillation_token=distilled))) for rows in (there, not there)
    )
    transfer(source, target, keep_head=True)
    images = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(target(images), source(images))


def test_fixed_positions_with_and_without_such_rows_are_different_models():
    source, target = (ViT(ViTConfig(**SIZES, position="sincos-1d", class_position=rows)) for rows in (True, False))
    with pytest.raises(ConfigError, match="class_position True → False"):
        transfer(source, target, keep_head=True)
