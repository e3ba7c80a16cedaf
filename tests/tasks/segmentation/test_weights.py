"""Model folders of segmenters: classes, colours and preparation, and what is refused."""

import json

import pytest
import torch
from safetensors.torch import load_file

from tiny_segmenter import tiny_segmenter
from vitrail.deploy.predictor import row_of
from vitrail.errors import ModelFileError
from vitrail.tasks.segmentation.weights import TrainedSegmenter, multiple_of
from vitrail.weights.formats.checksums import SUMS
from vitrail.weights.reference import open_model


def changed(folder, **entries):
    """Change entries of a folder's ``config.json``, whose sums are then left out."""
    values = json.loads((folder / "config.json").read_text()) | entries
    (folder / "config.json").write_text(json.dumps({name: value for name, value in values.items() if value is not None}))
    (folder / SUMS).unlink(missing_ok=True)
    return folder


@pytest.fixture
def folder(tmp_path):
    tiny_segmenter().save_pretrained(tmp_path / "saved")
    return tmp_path / "saved"


def test_a_folder_gives_back_model_classes_colours_and_preparation(folder):
    trained, opened, images = tiny_segmenter(), open_model(folder), torch.randn(2, 3, 32, 40)
    assert isinstance(opened, TrainedSegmenter) and row_of(opened).name == "segment"
    assert (opened.labels, opened.colors, opened.preparation) == (trained.labels, trained.colors, trained.preparation)
    assert torch.equal(opened.model(images), trained.model(images))
    config = json.loads((folder / "config.json").read_text())
    assert config["palette"][1] == [220, 60, 60] and config["semantic_loss_ignore_index"] == 255
    assert "image-segmentation" in (folder / "README.md").read_text()
    assert any(name.startswith("backbone.") for name in load_file(folder / "model.safetensors"))


def test_without_a_palette_the_classes_get_usual_colours(folder):
    assert open_model(changed(folder, palette=None)).colors == ((128, 0, 0), (0, 128, 0), (128, 128, 0))


@pytest.mark.parametrize("palette", [[[0, 0, 0]], [[0, 0], [1, 1], [2, 2]], [[0, 0, 256]] * 3, "red", [[0, 0, "a"]] * 3])
def test_a_damaged_palette_is_refused(folder, palette):
    with pytest.raises(ModelFileError, match="the palette is damaged"):
        open_model(changed(folder, palette=palette))


def test_images_are_padded_to_whole_patches_and_whole_logits():
    assert multiple_of(tiny_segmenter().model) == (8, 8)
    backbone = {"architecture": "ViT", "image_size": 28, "patch_size": 14, "dim": 16, "depth": 4, "heads": 2, "mlp_dim": 16}
    fields = {"backbone": backbone, "image_size": 28, "pyramid_dim": 8, "head_dim": 8}
    assert multiple_of(tiny_segmenter(**fields, maps="pyramid", head="mlp").model) == (28, 28)
