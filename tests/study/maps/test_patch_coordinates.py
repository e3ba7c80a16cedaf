"""Where the values of a map stand: where the gradients of tokens with respect to the pixels lie."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import vitrail
from test_contract import tiny
from vitrail.errors import ConfigError
from vitrail.study.maps.patch_coordinates import Places, heatmap_places, patch_places
from vitrail.study.maps.stages import stage_places
from vitrail.study.page.images import overlay
from vitrail.tasks.pose.heatmaps import encode

SMALL = {"dim": 32, "depth": 1, "heads": 2, "mlp_dim": 16, "num_classes": 2}
POOLED = {"embedding": "resnet", "resnet_block": "pooled", "resnet_depths": (1, 1), "resnet_width": 8, "patch_size": 8}
PATCHES = {
    "patches": ("ViT-Ti/8", {"image_size": (40, 56)}),
    "a remainder": ("ViT-Ti/8", {"image_size": (45, 63), "crop_remainder": True}),
    "a remainder of nearly half": ("ViT-Ti/8", {"image_size": (31, 31), "patch_size": 16, "crop_remainder": True}),
    "patches of another shape": ("ViT-Ti/8", {"image_size": (40, 63), "patch_size": (8, 9), "embedding": "linear"}),
    "a stem": ("ViT-Ti/8", {"image_size": (40, 56), "embedding": "stem"}),
    "a stem and three places": ("ViT-Ti/8", {"image_size": (36, 60), "patch_size": 12, "embedding": "stem"}),
    "a stem of maxima": ("ViT-Ti/8", {"image_size": (40, 56), "embedding": "pooled-stem"}),
    "whitening": ("ViT-Ti/8", {**POOLED, "image_size": (64, 80), "resnet_root": "whitened"}),
    "whitening without padding": ("ViT-Ti/8", {**POOLED, "image_size": (64, 80), "resnet_root": "whitened-valid"}),
    "padding": ("ViTPose-Ti-simple", {"image_size": (64, 48), "patch_size": 8, "patch_padding": 2}),
    "tokens to token": ("T2T-ViT-7", {"image_size": (80, 96), "token_dim": 8}),
    "tokens of even sides": ("T2T-ViT-7", {"image_size": (80, 96), "token_dim": 8, "patch_sizes": (6, 4), "strides": (4, 2)}),
}


def read_by(token, images):
    """The first and the last row, and the first and the last column, of the pixels that a token is made of."""
    (gradient,) = torch.autograd.grad(token.double().square().sum(), images, retain_graph=True)
    there = gradient.abs().sum(dim=(0, 1)) > 0
    rows, columns = there.any(dim=1).nonzero().flatten().tolist(), there.any(dim=0).nonzero().flatten().tolist()
    return rows[0], rows[-1], columns[0], columns[-1]


def tokens_of(model, images):
    """(B, rows, columns, D), of the embedding alone: norms and attention between its parts would see the whole image."""
    for module in model.modules():
        for name, child in module.named_children():
            if isinstance(child, nn.GroupNorm):
                setattr(module, name, nn.Identity())
    if hasattr(model.embedding, "splits"):
        x = images.permute(0, 2, 3, 1)
        for split in model.embedding.splits:
            x = split(x)
        return x
    return model.embedding(images).unflatten(1, model.config.grid)


def model_of(kind):
    name, fields = PATCHES[kind]
    torch.manual_seed(0)
    return vitrail.create_model(name, **{**SMALL, **fields}).eval()


def images_for(model):
    return torch.randn(24, 3, *model.config.image_size, generator=torch.Generator().manual_seed(0), requires_grad=True)


@pytest.mark.parametrize("kind", PATCHES)
def test_what_a_token_is_made_of_has_its_middle_where_the_value_of_the_token_stands(kind):
    model = model_of(kind)
    images, places = images_for(model), patch_places(model)
    tokens = tokens_of(model, images)
    assert tokens.shape[1:3] == (len(places.rows), len(places.columns))
    row, column = len(places.rows) // 2, len(places.columns) // 2  # whose field ends before the image does
    top, bottom, left, right = read_by(tokens[:, row, column], images)
    assert ((top + bottom) / 2, (left + right) / 2) == (float(places.rows[row]), float(places.columns[column]))
    top, bottom, left, right = read_by(tokens, images)
    assert (top, left) == (0, 0) and (bottom + 1, right + 1) == places.seen


STAGES = {
    "Swin": {"patch_size": 4},
    "PVT": {"patch_sizes": (4, 2), "image_size": (32, 48)},
    "PVTv2": {"patch_sizes": (7, 3), "strides": (4, 2)},
    "CvT": {"patch_sizes": (7, 3), "strides": (4, 2), "paddings": (2, 1)},
}


@pytest.mark.parametrize("kind", STAGES)
def test_the_keys_of_a_stage_stand_in_the_middle_of_what_they_are_made_of(kind):
    model = tiny(kind, **STAGES[kind])
    images = torch.randn(4, 3, 34 if kind == "Swin" else 32, 48, requires_grad=True)  # which Swin pads to whole windows
    places, x, stages = stage_places(model, images), images.permute(0, 2, 3, 1), 0
    for stage, of_stage in zip(model.stages, places, strict=True):
        x = stage.embedding(x)
        if x.ndim == 3:  # with the class token of the last stage
            x = x[:, 1:].unflatten(1, model.config.grids((32, 48))[-1])
        attention, keys = stage.blocks[-1].attention.layer, x
        if hasattr(attention, "reduction"):
            keys = attention.reduction(x)
        if hasattr(attention, "convolved"):
            keys = attention.convolved["key"](x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        assert keys.shape[1:3] == (len(of_stage.rows), len(of_stage.columns))
        if min(keys.shape[1:3]) > 2:
            stages += 1
            top, bottom, left, right = read_by(keys[:, 1, 1], images)
            assert ((top + bottom) / 2, (left + right) / 2) == (float(of_stage.rows[1]), float(of_stage.columns[1]))
    assert stages > 0


def test_a_map_reaches_half_a_step_beyond_its_outermost_values():
    places = Places(torch.tensor([1.0, 5.0, 9.0]), torch.tensor([3.5]), (12, 8), (12, 8))
    assert places.within((10, 0, 18, 12)) == ((10, -0.5, 18, 11.5), (10, 0, 18, 12))  # a single value has the whole side
    assert places.within((0, 0, 80, 24))[0] == (0, -1, 80, 23)
    part = Places(torch.tensor([1.5, 5.5]), torch.tensor([1.5, 5.5]), (10, 9), (8, 8))
    assert part.within((0, 0, 9, 10)) == ((0, 0, 8, 8), (0, 0, 8, 8))
    assert Places.even((3, 2), (6, 7)).within((0, 0, 7, 6)) == ((0, 0, 7, 6), (0, 0, 7, 6))


def test_every_pixel_has_the_value_nearest_to_it_unless_no_value_is_made_of_it():
    places = Places(torch.tensor([1.0, 5.0]), torch.tensor([0.5, 2.5, 4.5]), (8, 7), (7, 6))
    found = places.on_pixels(torch.arange(1.0, 7).reshape(1, 2, 3))[0]
    assert found[:, 0].tolist() == [1, 1, 1, 1, 4, 4, 4, 0]
    assert found[0].tolist() == [1, 1, 2, 2, 3, 3, 0]


@pytest.mark.parametrize("size", [(64, 48), (256, 192)])
def test_a_bell_of_a_heatmap_is_highest_at_the_place_of_its_joint(size):
    heatmap = (size[0] // 2, size[1] // 2)
    places = heatmap_places(size, heatmap)
    joint = torch.tensor([float(places.columns[7]), float(places.rows[9])])
    maps, _ = encode(joint[None], size, heatmap)
    assert divmod(int(maps[0].argmax()), heatmap[1]) == (9, 7) and maps.max() > 0.9999


def test_models_without_attention_to_the_whole_image_have_no_places_of_patches():
    with pytest.raises(ConfigError, match="Swin has no attention to the whole image"):
        patch_places(tiny("Swin"))


@pytest.mark.parametrize("kind", ["a remainder", "a stem", "tokens to token"])
def test_a_value_of_a_map_glows_where_the_gradient_of_its_token_lies(kind):
    model = model_of(kind)
    images, places = images_for(model), patch_places(model)
    row, column = len(places.rows) // 2, len(places.columns) // 2
    top, bottom, left, right = read_by(tokens_of(model, images)[:, row, column], images)
    high, wide = model.config.image_size
    picture, view = Image.new("RGB", (3 * wide + 20, 3 * high + 10), "grey"), (20, 10, 3 * wide + 20, 3 * high + 10)
    heat = np.zeros((len(places.rows), len(places.columns)))
    heat[row, column] = 1
    shown = np.asarray(overlay(picture, heat, *places.within(view), brightest=1.0)).astype(float)
    glow = np.ptp(shown, axis=2)
    middle = (glow.sum(axis=1) @ np.arange(len(glow)) / glow.sum(), glow.sum(axis=0) @ np.arange(len(glow[0])) / glow.sum())
    assert middle == pytest.approx((10 + 3 * (top + bottom + 1) / 2 - 0.5, 20 + 3 * (left + right + 1) / 2 - 0.5), abs=0.6)
