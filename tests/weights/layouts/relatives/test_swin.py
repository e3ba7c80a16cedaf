"""Swin Transformers of their authors, timm and transformers are read and written with the same logits, or refused by name."""

import pytest
import timm
import torch
import transformers
from residual_networks import alike, images, random_weights
from safetensors.torch import load_file, save_file
from timm.models import save_for_hf

import vitrail
from vitrail.errors import ConfigError, ModelFileError
from vitrail.models.configs.swin import SwinConfig
from vitrail.models.vision.swin import Swin
from vitrail.weights.convert import convert
from vitrail.weights.layouts import LAYOUTS
from vitrail.weights.model_folder.folder import TrainedModel
from vitrail.weights.reference import from_pretrained


def test_a_file_of_the_authors_is_read_with_the_tables_that_everybody_can_compute(tmp_path):
    model = random_weights(Swin(SwinConfig(dim=8, depths=(1, 2), heads=(1, 2), num_classes=3)))
    state = LAYOUTS["swin-original"].write(model.state_dict(), model.config)
    assert {"layers.0.downsample.norm.weight", "head.weight"} <= state.keys()
    state["layers.1.blocks.1.attn_mask"] = torch.zeros(4, 49, 49)
    state["layers.0.blocks.0.attn.relative_position_index"] = torch.zeros(49, 49, dtype=torch.int64)
    save_file(state, tmp_path / "theirs.safetensors")
    torch.save({"model": state, "epoch": 300}, tmp_path / "theirs.pth")
    for file in ("theirs.safetensors", "theirs.pth"):
        ours = from_pretrained(tmp_path / file, trust_pickle=True)
        assert ours.config == model.config and torch.equal(ours(images()), model(images()))


@pytest.mark.parametrize(
    ("size", "told"),
    [
        (56, "7×7, which it shifts before"),
        (60, "15×15, which"),
        (66, "which are no multiple of patches of 4×4"),
    ],
)
def test_images_to_which_timm_answers_otherwise_are_refused(size, told, tmp_path):
    shape = {"embed_dim": 8, "depths": (2, 2), "num_heads": (1, 2), "window_size": 4, "num_classes": 3}
    theirs = timm.create_model("swin_tiny_patch4_window7_224", img_size=size, strict_img_size=False, **shape)
    save_for_hf(theirs, tmp_path / "theirs", safe_serialization=True)
    with pytest.raises(ModelFileError, match=told):
        from_pretrained(tmp_path / "theirs")
    model = Swin(SwinConfig(image_size=size, dim=8, depths=(2, 2), heads=(1, 2), window_size=4, num_classes=3))
    trained = TrainedModel(model, ["a", "b", "c"], vitrail.Preparation.standard(model.config.image_size, 3))
    with pytest.raises(ConfigError, match=told):
        convert(trained, tmp_path / "ours", layout="timm")


SMALL_WINDOWS = [(112, 7, 4), (64, 8, 4), (96, 12, 4), (192, 12, 4), ((16, 64), 4, 2), ((112, 224), 7, 4), (28, 7, 2)]


@pytest.mark.parametrize(("size", "window", "stages"), SMALL_WINDOWS)
def test_windows_that_timm_makes_smaller_in_small_images_are_read_and_written(size, window, stages, tmp_path):
    shape = {"embed_dim": 8, "depths": (2,) * stages, "num_heads": (1, 2, 4, 8)[:stages], "window_size": window, "num_classes": 3}
    theirs = random_weights(timm.create_model("swin_tiny_patch4_window7_224", img_size=size, strict_img_size=False, **shape))
    save_for_hf(theirs, tmp_path / "theirs", safe_serialization=True)
    sides = size if isinstance(size, tuple) else (size, size)
    seen = images(3, sides)
    ours = from_pretrained(tmp_path / "theirs")
    assert alike(ours, theirs, seen)
    ours.save_pretrained(tmp_path / "ours", layout="timm")
    assert alike(timm.create_model(f"local-dir:{tmp_path / 'ours'}", pretrained=True).eval(), theirs, seen)
    save_file(load_file(tmp_path / "theirs" / "model.safetensors"), tmp_path / "alone.safetensors")
    told = {"image_size": size} if size in ((16, 64), (112, 224), 28) else {}
    assert alike(from_pretrained(tmp_path / "alone.safetensors", **told), theirs, seen)
    ours.save_pretrained(tmp_path / "own", layout="vitrail")
    assert alike(from_pretrained(tmp_path / "own"), theirs, seen)


def test_smaller_windows_are_refused_in_images_that_they_were_not_made_for(tmp_path):
    shape = {"embed_dim": 8, "depths": (2, 2, 2, 2), "num_heads": (1, 2, 4, 8), "num_classes": 3}
    theirs = timm.create_model("swin_tiny_patch4_window7_224", img_size=112, **shape)
    save_file(theirs.state_dict(), tmp_path / "alone.safetensors")
    with pytest.raises(ModelFileError, match="grids of 7×7 in stage 4, which has windows of 4×4"):
        from_pretrained(tmp_path / "alone.safetensors", image_size=224)
    assert from_pretrained(tmp_path / "alone.safetensors").config.image_size == (112, 112)


@pytest.mark.parametrize(
    ("layout", "size", "told"), [("timm-swin", 56, "7×7, which it shifts"), ("swin", (32, 48), "4×6, which it does not shift")]
)
def test_a_size_to_which_a_library_answers_otherwise_is_refused_where_it_is_asked_for(layout, size, told, tmp_path):
    shape = {"dim": 8, "depths": (2, 2), "heads": (1, 2), "window_size": 4, "num_classes": 3}
    model = random_weights(Swin(SwinConfig(image_size=64, **shape)))
    trained = TrainedModel(model, ["a", "b", "c"], vitrail.Preparation.standard((64, 64), 3))
    for out in (tmp_path / "folder", tmp_path / "alone.safetensors"):
        convert(trained, out, layout=layout)
        with pytest.raises(ModelFileError, match=told):
            from_pretrained(out, layout=layout, image_size=size)
        assert from_pretrained(out, layout=layout, image_size=128).config.image_size == (128, 128)


@pytest.mark.parametrize(("size", "told"), [([32, 48], "4×6, which it does not shift"), ([16, 64], "2×8, smaller than a window")])
def test_images_to_which_transformers_answers_otherwise_are_refused(size, told, tmp_path):
    shape = {"embed_dim": 8, "depths": [1, 2], "num_heads": [1, 2], "window_size": 4, "image_size": size}
    transformers.SwinModel(transformers.SwinConfig(**shape)).save_pretrained(tmp_path)
    with pytest.raises(ModelFileError, match=told):
        from_pretrained(tmp_path)
    model = Swin(SwinConfig(image_size=size, dim=8, depths=(1, 2), heads=(1, 2), window_size=4, num_classes=0))
    with pytest.raises(ConfigError, match=told):
        convert(TrainedModel(model, [], vitrail.Preparation.standard(tuple(size), 3)), tmp_path / "ours", layout="swin")
