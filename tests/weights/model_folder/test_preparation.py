"""What the description beside timm's weights says of images means to us what it means to timm, or is refused."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from timm.data import create_transform, resolve_data_config
from timm.models import PretrainedCfg

from vitrail.errors import ModelFileError
from vitrail.models.configs.vit import ViTConfig
from vitrail.weights.model_folder.preparation import from_timm

CONFIG = ViTConfig(image_size=(32, 32), patch_size=(8, 8), dim=8, depth=1, heads=1)


def read(**values):
    return from_timm(values, CONFIG.image_size, CONFIG.channels, Path("config.json"))


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"crop_pct": 0.9, "interpolation": "bilinear", "mean": (0.5,) * 3, "std": (0.5,) * 3},
        {"crop_pct": 1.0, "crop_mode": "squash"},
        {"crop_pct": 0.95, "crop_mode": "squash", "interpolation": None},
        {"crop_mode": "center", "crop_pct": None, "mean": (0.1, 0.2, 0.3)},
    ],
    ids=str,
)
def test_images_are_prepared_as_timms_own_description_has_it(values):
    told = {name: value for name, value in values.items() if value is not None}
    usual = PretrainedCfg(input_size=(3, 32, 32), **told)
    theirs = create_transform(**resolve_data_config(pretrained_cfg=usual.to_dict()))
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (61, 83, 3), dtype=np.uint8))
    torch.testing.assert_close(read(**values)(image)[0], theirs(image))


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"crop_mode": "border"}, "border"),
        ({"interpolation": "hamming"}, "hamming"),
        ({"crop_pct": 0}, "zero"),
        ({"crop_pct": 1.2}, "larger"),
        ({"mean": (0.5,)}, "means"),
    ],
    ids=str,
)
def test_what_is_not_done_here_is_refused_by_name(values, named):
    with pytest.raises(ModelFileError, match=named):
        read(**values)
