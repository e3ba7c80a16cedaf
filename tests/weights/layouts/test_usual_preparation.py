"""Images of a checkpoint that does not say how: prepared as is usual for it, by the libraries' own numbers."""

from dataclasses import replace

import pytest
import timm
import transformers
from timm.models.vision_transformer import VisionTransformer
from torchvision.models import ViT_B_16_Weights

from vitrail.data.images.preparation import RESAMPLING, Preparation
from vitrail.weights.layouts import LAYOUTS
from vitrail.weights.normalization import Colours
from vitrail.weights.reference import from_pretrained


def of_transformers(processor: type) -> Colours:
    told = processor()
    side = told.size.shortest_edge or told.size.height
    crop = told.crop_size.height if told.do_center_crop else side
    names = {int(number): name for name, number in RESAMPLING.items()}
    fit = "cover" if told.size.shortest_edge else "squash"
    return Colours(tuple(told.image_mean), tuple(told.image_std), crop / side, names[int(told.resample)], fit)


def of_timm(name: str) -> Colours:
    told = timm.get_pretrained_cfg(name)
    assert told.crop_mode == "center"
    return Colours(told.mean, told.std, told.crop_pct, told.interpolation)


def of_torchvision() -> Colours:
    told = ViT_B_16_Weights.IMAGENET1K_V1.transforms()
    return Colours(tuple(told.mean), tuple(told.std), told.crop_size[0] / told.resize_size[0], told.interpolation.value)


OWN_CROP = {"crop_ratio": 224 / 256}
"""What the authors of DINO and MAE evaluate with; timm has another for its copies."""
EXPECTED = {
    "timm": lambda: of_timm("vit_base_patch16_224.augreg_in21k_ft_in1k"),
    "dino": lambda: replace(of_timm("vit_base_patch16_224.dino"), **OWN_CROP),
    "dinov2-original": lambda: replace(of_timm("vit_base_patch14_dinov2.lvd142m"), **OWN_CROP),
    "mae-original": lambda: replace(of_timm("vit_base_patch16_224.mae"), **OWN_CROP),
    "torchvision": of_torchvision,
    "vit": lambda: of_transformers(transformers.ViTImageProcessor),
    "siglip": lambda: of_transformers(transformers.SiglipImageProcessor),
    "clip": lambda: of_transformers(transformers.CLIPImageProcessor),
    "clip-original": lambda: of_transformers(transformers.CLIPImageProcessor),
    "timm-swin": lambda: of_timm("swin_tiny_patch4_window7_224.ms_in1k"),
    "pvt": lambda: of_transformers(transformers.PvtImageProcessor),
    "pvt-v2": lambda: of_transformers(transformers.PvtImageProcessor),
    "timm-pvt-v2": lambda: of_timm("pvt_v2_b2.in1k"),
    "timm-clip": lambda: of_transformers(transformers.CLIPImageProcessor),
}


@pytest.mark.parametrize("layout", EXPECTED)
def test_what_is_usual_is_what_the_library_says(layout):
    assert LAYOUTS[layout].colours == EXPECTED[layout]()


def test_a_file_that_says_nothing_is_prepared_so(kept):
    theirs = VisionTransformer(img_size=32, patch_size=8, embed_dim=64, depth=1, num_heads=1, num_classes=5)
    usual = EXPECTED["timm"]()
    expected = Preparation.standard(
        (32, 32), 3, usual.crop_ratio, mean=usual.mean, std=usual.std, resampling=usual.resampling, fit=usual.fit
    )
    assert from_pretrained(kept(theirs.state_dict())).preparation == expected
