"""Google's files of BiT are written as timm reads them, and read again."""

import numpy as np
import pytest
import timm
from residual_networks import NARROW, alike, images, small

import vitrail
from vitrail.weights.reference import from_pretrained


@pytest.mark.parametrize("fields", [{}, {"num_classes": 0}, {"channels": 1}], ids=str)
def test_a_file_of_googles_is_read_by_timm_and_by_us(fields, tmp_path):
    ours = small(block="pre-activation", depths=(3, 4, 6, 3), **fields)
    vitrail.convert(ours, tmp_path / "bit.npz", layout="google")
    theirs = timm.create_model(
        "resnetv2_50x1_bit", num_classes=ours.config.num_classes, in_chans=ours.config.channels, **NARROW
    ).eval()
    theirs.load_pretrained(str(tmp_path / "bit.npz"))
    seen = images(ours.config.channels)
    assert alike(ours, theirs, seen)
    again = from_pretrained(tmp_path / "bit.npz")
    assert alike(again, theirs, seen) and again.config == ours.config  # the file tells of its size beside it


def test_keys_of_googles_are_its_own(tmp_path):
    """The names of https://storage.googleapis.com/bit_models/BiT-M-R50x1.npz, of a unit and around them."""
    vitrail.convert(small(block="pre-activation"), tmp_path / "bit.npz", layout="google-bit")
    arrays = np.load(tmp_path / "bit.npz")
    shapes = {name: arrays[name].shape for name in arrays.files}
    unit = "resnet/block2/unit01/"
    expected = {
        "resnet/root_block/standardized_conv2d/kernel": (7, 7, 3, 32),
        f"{unit}a/group_norm/gamma": (128,),
        f"{unit}a/group_norm/beta": (128,),
        f"{unit}a/proj/standardized_conv2d/kernel": (1, 1, 128, 256),
        f"{unit}a/standardized_conv2d/kernel": (1, 1, 128, 64),
        f"{unit}b/group_norm/gamma": (64,),
        f"{unit}b/standardized_conv2d/kernel": (3, 3, 64, 64),
        f"{unit}c/standardized_conv2d/kernel": (1, 1, 64, 256),
        "resnet/group_norm/gamma": (256,),
        "resnet/group_norm/beta": (256,),
        "resnet/head/conv2d/kernel": (1, 1, 256, 3),
        "resnet/head/conv2d/bias": (3,),
    }
    assert expected.items() <= shapes.items()
