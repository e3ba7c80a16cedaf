"""Images become tensors in one way, checked against other people's arithmetic."""

import io
import json
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from timm.data import create_transform

from vitrail.data.images.decode import decode
from vitrail.data.images.plan import to_pixels
from vitrail.data.images.preparation import Preparation
from vitrail.errors import ModelFileError

IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}


def picture(width: int, height: int, channels: int = 3) -> Image.Image:
    shape = (height, width, 3) if channels == 3 else (height, width)
    return Image.fromarray(np.random.default_rng(1).integers(0, 256, shape, dtype=np.uint8))


def smooth(width: int, height: int) -> Image.Image:
    """Waves without fine detail, which any good interpolation brings out alike."""
    y, x = np.mgrid[:height, :width] / max(width, height)
    channels = [np.sin(3 * x + k) * np.cos(4 * y - k) * 120 + 128 for k in range(3)]
    return Image.fromarray(np.stack(channels, axis=-1).astype(np.uint8))


def test_the_crop_ratio_is_the_share_that_is_kept():
    assert Preparation.standard((224, 224), crop_ratio=0.875).resize_size == (256, 256)
    assert Preparation.standard((224, 112), crop_ratio=0.5).resize_size == (448, 224)
    assert Preparation.standard((32, 32)).resize_size == (32, 32)


FILTERS = st.sampled_from(["nearest", "bilinear", "bicubic", "lanczos"])


@given(st.integers(1, 400), st.integers(1, 400), st.integers(1, 90), st.tuples(st.integers(1, 90), st.integers(1, 90)), FILTERS)
@settings(max_examples=200, deadline=None)
def test_pictures_are_prepared_as_torchvision_does(width, height, side, crop, resampling):
    from torchvision.transforms import CenterCrop, InterpolationMode, Resize

    crop = (min(crop[0], side), min(crop[1], side))
    preparation = Preparation(image_size=crop, resize_size=(side, side), resampling=resampling, **IMAGENET)
    image = picture(width, height)
    expected = CenterCrop(crop)(Resize(side, InterpolationMode(resampling))(image))
    difference = np.abs(np.asarray(preparation.crop(image), np.int16) - np.asarray(expected, np.int16))
    assert difference.max() <= 1


@given(
    st.integers(1, 200),
    st.integers(1, 200),
    st.tuples(st.integers(1, 60), st.integers(1, 60)),
    st.sampled_from([1.0, 0.95, 0.9, 0.875, 0.5]),
    st.sampled_from(["cover", "squash"]),
    FILTERS,
)
@settings(max_examples=100, deadline=None)
def test_pictures_are_prepared_as_timm_does(width, height, size, ratio, fit, resampling):

    preparation = Preparation.standard(size, 3, ratio, fit=fit, resampling=resampling)
    mode = {"cover": "center", "squash": "squash"}[fit]
    options = {"interpolation": resampling, "crop_pct": ratio, "crop_mode": mode, "mean": (0.5,) * 3, "std": (0.5,) * 3}
    theirs = create_transform((3, *size), **options)
    image = picture(width, height)
    torch.testing.assert_close(preparation(image)[0], theirs(image), rtol=0, atol=1.01 / 127.5)


@pytest.mark.parametrize("size", [(3000, 5), (5, 3000)])
@pytest.mark.parametrize("resampling", ["bilinear", "bicubic", "lanczos"])
def test_a_picture_too_oblong_to_be_resized_whole_shows_the_same(size, resampling, monkeypatch):
    preparation = Preparation.standard((32, 32), 3, 0.8, resampling=resampling)
    image = smooth(*size)
    whole = np.asarray(preparation.crop(image), np.int16)
    monkeypatch.setattr("vitrail.data.images.preparation.MOST_PIXELS", 1000)
    assert np.abs(np.asarray(preparation.crop(image), np.int16) - whole).max() <= 1


@cache
def photograph(width: int, height: int) -> Image.Image:
    """Waves down to a few pixels, as sharp pictures have, and a bright edge along two sides."""
    y, x = np.mgrid[:height, :width]
    planes = [60 * np.sin(x / 5 + k) * np.cos(y / 7) + 50 * np.sin((x + y) / 40) + 120 for k in range(3)]
    image = np.stack(planes, axis=-1)
    image[:, -9:] = image[-9:] = 250
    return Image.fromarray(image.astype(np.uint8))


@pytest.mark.parametrize(("width", "height"), [(1200, 900), (905, 1203), (2000, 501), (703, 715), (129, 128)])
@pytest.mark.parametrize("fit", ["cover", "squash"])
@pytest.mark.parametrize("orientation", [1, 4, 6, 7])
@pytest.mark.parametrize("resampling", ["nearest", "bilinear", "lanczos"])
def test_a_large_jpeg_decoded_at_a_smaller_size_gives_the_pixels_of_the_whole_one(width, height, fit, orientation, resampling):
    preparation, file = Preparation.standard((32, 32), 3, 0.8, fit=fit, resampling=resampling), io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = orientation
    photograph(width, height).save(file, "JPEG", quality=95, subsampling=0, exif=exif)
    whole = to_pixels(preparation.crop(decode(file.getvalue()))).astype(int)
    difference = np.abs(preparation.pixels(file.getvalue()) - whole)
    assert difference.max() <= 3 and difference.mean() < 0.6


@pytest.mark.parametrize(
    ("orientation", "box"), [(1, (0, 0, 300.75, 226.25)), (3, (-0.75, -0.25, 300, 226)), (6, (-0.25, 0, 226, 300.75))]
)
def test_what_was_cut_off_a_smaller_picture_still_belongs_to_the_whole_one(orientation, box):
    preparation, file, exif = Preparation.standard((32, 32)), io.BytesIO(), Image.Exif()
    exif[0x0112] = orientation
    photograph(1203, 905).save(file, "JPEG", exif=exif)
    image, whole = preparation.reduced(file.getvalue(), share=0.5)
    turned = orientation == 6
    assert (image.size, whole.size) == (((226, 300), (905, 1203)) if turned else ((300, 226), (1203, 905)))
    assert whole.box == box


@pytest.mark.parametrize("size", [(60, 40), (401, 803)])
def test_a_framed_picture_is_what_its_box_shows(size):
    preparation, file = Preparation.standard((16, 16), 3, 0.8), io.BytesIO()
    photograph(*size).save(file, "JPEG", quality=95)
    shown, (left, top, right, bottom) = preparation.framed(file.getvalue())
    width, height = size
    assert np.array_equal(to_pixels(shown), preparation.pixels(file.getvalue()))
    assert (left * width, top * height, right * width, bottom * height) == pytest.approx(preparation.box(width, height))


@pytest.mark.parametrize("channels", [1, 3])
def test_normalising_is_the_textbook_formula(channels):
    mean, std = IMAGENET["mean"][:channels], IMAGENET["std"][:channels]
    preparation = Preparation(image_size=(8, 8), channels=channels, resize_size=(8, 8), mean=mean, std=std)
    image = picture(8, 8, channels)
    pixels = np.asarray(image, dtype=np.float64).reshape(8, 8, channels)
    expected = ((pixels / 255 - np.array(mean)) / np.array(std)).transpose(2, 0, 1)
    result = preparation(image)
    assert result.shape == (1, channels, 8, 8) and result.dtype == torch.float32
    np.testing.assert_allclose(result[0].numpy(), expected, atol=2e-6)


@pytest.mark.parametrize("resampling", ["nearest", "lanczos", "bilinear", "bicubic"])
def test_transformers_reads_the_description_and_agrees(resampling):
    import transformers

    preparation = Preparation(image_size=(16, 24), resize_size=(18, 32), fit="squash", resampling=resampling, **IMAGENET)
    theirs = transformers.ViTImageProcessorPil.from_dict(preparation.to_hugging_face())
    image = picture(60, 40)
    expected = theirs(image, return_tensors="np")["pixel_values"]
    np.testing.assert_allclose(preparation(image).numpy(), expected, atol=1e-5)


@pytest.mark.parametrize(
    "preparation",
    [
        Preparation.standard((224, 224)),
        Preparation.standard((8, 8), channels=1),
        Preparation.standard((224, 160), crop_ratio=0.875),
        Preparation.standard((224, 224), crop_rounding="down"),
        Preparation(image_size=(32, 48), resize_size=(40, 60), resampling="lanczos", **IMAGENET),
    ],
)
def test_the_description_survives_json(preparation):
    values = json.loads(json.dumps(preparation.to_hugging_face()))
    assert Preparation.from_hugging_face(values) == preparation


GOOD = Preparation.standard((16, 16)).to_hugging_face()


@pytest.mark.parametrize(
    "damage",
    [
        {"size": "224"},
        {"size": {"height": "tall", "width": 16}},
        {"size": {"height": 4, "width": 4}},
        {"crop_size": {"height": 16}},
        {"crop_size": {"height": 0, "width": 16}},
        {"crop_size": {"height": -16, "width": 16}},
        {"resample": 99},
        {"resample": [2]},
        {"image_mean": "abc"},
        {"image_mean": [float("nan")] * 3},
        {"image_mean": []},
        {"image_mean": [0.5, 0.5], "image_std": [0.5, 0.5]},
        {"image_std": [0.5]},
        {"image_std": [0.5, 0.5, 0.0]},
        {"image_std": [0.5, 0.5, -1.0]},
    ],
    ids=str,
)
def test_a_damaged_description_is_refused(damage):
    with pytest.raises(ModelFileError, match=r"preprocessor_config\.json"):
        Preparation.from_hugging_face({**GOOD, **damage}, where="preprocessor_config.json")


@pytest.mark.parametrize("other", [{"do_rescale": False}, {"do_resize": False}], ids=str)
def test_a_description_of_what_is_not_done_here_is_refused_not_misread(other):
    with pytest.raises(ModelFileError):
        Preparation.from_hugging_face({**GOOD, **other})


FOREIGN = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225], "resample": 3}


def foreign(kind: str = "ViTFeatureExtractor", **values) -> Preparation:
    return Preparation.from_hugging_face({"feature_extractor_type": kind, **FOREIGN, **values})


def test_images_that_are_not_normalised_or_scaled_otherwise_are_as_transformers_makes_them():
    pixels = torch.randint(0, 256, (2, 3, 4, 4), dtype=torch.uint8)
    plain = foreign(size=4, do_normalize=False)
    torch.testing.assert_close(plain.normalize(pixels), pixels / 255)
    doubled = foreign(size=4, rescale_factor=1 / 127.5)
    mean, std = (torch.tensor(FOREIGN[name]).view(3, 1, 1) for name in ("image_mean", "image_std"))
    torch.testing.assert_close(doubled.normalize(pixels), (pixels / 127.5 - mean) / std, rtol=1e-5, atol=1e-5)


def test_at_another_size_the_same_share_of_the_image_is_kept():
    preparation = Preparation.standard((224, 224), crop_ratio=0.875)
    assert preparation.at((224, 224)) is preparation
    assert preparation.at((448, 336)).resize_size == (512, 384)
    assert preparation.at((448, 336)).mean == preparation.mean
