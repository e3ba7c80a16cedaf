"""Runs on masks: what the data decides, what is checked before the first step, and what is refused."""

import numpy as np
import pytest
from PIL import Image

from masked import CLASSES, drawn, write_masks
from tiny_segmenter import SIZE, TINY_SEGMENTER
from vitrail.config.configuration import nested
from vitrail.errors import ConfigError, DataError
from vitrail.runtime.observer import Observer
from vitrail.runtime.processes import ALONE
from vitrail.training.run_data import run_data
from vitrail.training.runs import setup as preparing

masks = run_data("segment")


@pytest.fixture
def root(tmp_path):
    return write_masks(tmp_path, train=30, val=4)


def resolved(root, **more):
    return preparing.resolve_run(None, None, nested({**TINY_SEGMENTER, "data": str(root), **more}))[0]


def checked(root, **more):
    settings = resolved(root, **more)
    source = masks.open_source(settings)
    return masks.check(source, settings, Observer(), ALONE), source, settings


def test_the_data_decides_the_classes_and_crops_are_not_resized(root):
    settings = resolved(root)
    source = masks.open_source(settings)
    settings = masks.complete(settings, source, None)
    assert settings.model.config.num_classes == 3 and masks.card(settings, source)["labels"] == [*CLASSES]
    assert settings.preparation.resize_size == settings.preparation.image_size == (SIZE, SIZE)


def test_sound_masks_pass_and_the_number_of_images_is_that_of_the_data(root):
    bad, source, settings = checked(root)
    assert bad == {} and len(masks.used(source, bad, settings).split("train")) == 30
    fewer = resolved(root, **{"data.train_share": 0.5})
    assert len(masks.used(source, bad, fewer).split("train")) == 15


def test_values_without_names_are_no_digits_that_must_not_be_mirrored_but_sides_are_named(root):
    (root / "classes.csv").write_text("index,name\n0,0\n1,1\n2,2\n")
    settings = resolved(root)
    assert masks.warnings(settings, masks.open_source(settings)) == []
    (root / "classes.csv").write_text("index,name\n0,ground\n1,left hand\n2,right hand\n")
    (warning,) = masks.warnings(settings, masks.open_source(settings))
    assert "'left hand' mirrored may be 'right hand'" in warning
    (root / "val/images/00.png").write_bytes((root / "train/images/00.png").read_bytes())
    assert "1 image is in several splits" in masks.warnings(settings, masks.open_source(settings))[0]


def damage(root, how):
    mask = root / "train/masks/03.png"
    if how == "none":
        mask.unlink()
    elif how == "size":
        Image.fromarray(drawn(3, (36, 48))).save(mask)
    elif how == "value":
        Image.fromarray(np.full((36, 48), 7, np.uint8)).save(mask)
    elif how == "jpeg":
        Image.open(mask).convert("L").save(mask, "JPEG")
    else:
        (root / "train/images/03.png").write_text("no image")


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("none", "the image has no mask"),
        ("size", "the mask has 36×48 pixels, its image 48×36"),
        ("value", "the mask of train/images/03.png: the value 7 of 1,728 pixels is of no class"),
        ("jpeg", "the mask of train/images/03.png: a mask must be lossless"),
        ("image", "cannot read the image"),
    ],
)
def test_a_bad_mask_stops_a_run_before_it_begins_or_is_left_out(root, how, words):
    damage(root, how)
    with pytest.raises(DataError, match=words) as refused:
        checked(root)
    assert refused.value.exit_code == 3 and "03.png" in str(refused.value) and "--bad-images skip" in refused.value.hint
    bad, source, settings = checked(root, **{"data.bad_images": "skip"})
    assert list(bad) == ["train/images/03.png"] and words in bad["train/images/03.png"]
    assert len(masks.used(source, bad, settings).split("train")) == 29


@pytest.mark.parametrize("change", [
    {"augmentation.crop": "resized"}, {"augmentation.mixup": 0.5}, {"data.crop_ratio": 0.9}, {"schedule.first_image_size": 16},
    {"data.balance": "oversample"}, {"training.batch_size": "auto"}, {"data.group": "site"}, {"distillation.teacher": "x"},
])  # fmt: skip
def test_settings_that_mean_nothing_for_masks_are_refused(root, change):
    with pytest.raises(ConfigError):
        settings = resolved(root, **change)
        masks.complete(settings, masks.open_source(settings), None)


def test_a_model_of_vectors_is_refused(root):
    others = {name: value for name, value in TINY_SEGMENTER.items() if not name.startswith("model.")}
    asked = nested({**others, "model.name": "ViT-Ti/16", "data": str(root)})
    settings = preparing.resolve_run(None, None, asked)[0]
    with pytest.raises(ConfigError, match="outputs vector; the task needs masks"):
        masks.complete(settings, masks.open_source(settings), None)
