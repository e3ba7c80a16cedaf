"""Small models and their folders."""

import pytest
import torch

from vitrail.data.images.preparation import Preparation
from vitrail.models.configs.vit import ViTConfig
from vitrail.models.vision.vit import ViT
from vitrail.weights.model_folder.folder import TrainedModel
from vitrail.weights.model_folder.trained import save_model

LABELS = ["cat", "dog", "10 o'clock é"]


@pytest.fixture
def build():
    """Builds a small ViT with weights of its own, none of them zero."""

    def build(seed: int = 0, **fields) -> ViT:
        small = {"image_size": 16, "patch_size": 8, "channels": 1, "num_classes": 3}
        small |= {"dim": 16, "depth": 2, "heads": 2, "mlp_dim": 32}
        torch.manual_seed(seed)
        model = ViT(ViTConfig(**{**small, **fields})).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.1)
        return model

    return build


@pytest.fixture
def trained(build):
    """Builds a small trained model: weights, labels, preparation."""

    def trained(seed: int = 0, **fields) -> TrainedModel:
        model = build(seed, **fields)
        labels = LABELS[: model.config.num_classes]
        return TrainedModel(model, labels, Preparation.standard(model.config.image_size, model.config.channels, 0.8))

    return trained


@pytest.fixture
def folder(tmp_path, trained):
    """A model folder under our own names, as transformers has no ViT with registers; to be changed, as it has no sums."""
    save_model(tmp_path / "model", trained(registers=1), card="# A model\n")
    (tmp_path / "model" / "SHA256SUMS").unlink()
    return tmp_path / "model"
