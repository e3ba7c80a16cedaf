"""Masks of images in Python: sizes, windows, mirror images, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

import vitrail
from deploy.small import small_model
from masked import COLORS, drawn, picture_of
from tiny_segmenter import tiny_segmenter
from vitrail.deploy.predictor import in_python, predict_each
from vitrail.errors import ConfigError, DataError, ModelFileError
from vitrail.tasks.segmentation import predictor as room
from vitrail.tasks.segmentation import windows
from vitrail.tasks.segmentation.predictor import SegmentationOptions, SegmentationPredictor
from vitrail.tasks.segmentation.windows import View, logits_in_bands


@pytest.fixture(scope="module")
def predictor():
    return in_python(tiny_segmenter(), prepacked=False)


def by_colour(pixels):
    """A network that knows the colours of the classes, at the stride 4."""
    table = torch.tensor(COLORS, dtype=torch.float32)
    distances = (pixels.float()[:, None] - table[None, :, :, None, None]).abs().sum(dim=2)
    return -torch.nn.functional.avg_pool2d(distances, 4)


KNOWING = SegmentationPredictor("by hand", ["ground", "disc", "square"], COLORS, tiny_segmenter().preparation, by_colour, (8, 8))


@pytest.mark.parametrize("window", [None, 24, (40, 32)])
def test_a_network_that_knows_the_classes_finds_them_at_the_images_own_size(window):
    truth = drawn(5, (101, 67))
    (answer,) = vitrail.predict_masks(KNOWING, picture_of(truth), window=window)
    assert answer.mask.shape == (67, 101) and answer.mask.dtype == np.uint8
    known = truth < 3
    assert (answer.mask == truth)[known].mean() > 0.95
    assert sum(area.pixels for area in answer.areas) == 67 * 101


def test_grey_files_and_turned_photographs_have_masks_of_their_upright_size(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    picture_of(drawn(1, (40, 30))).save(tmp_path / "turned.jpg", exif=exif)
    Image.new("L", (20, 10)).save(tmp_path / "grey.png")
    turned, grey = vitrail.predict_masks(KNOWING, [tmp_path / "turned.jpg", tmp_path / "grey.png"])
    assert turned.mask.shape == (40, 30) and grey.mask.shape == (10, 20)


def test_a_mirrored_image_has_the_mirrored_mask_with_mirror(predictor):
    pixels = np.asarray(picture_of(drawn(2, (48, 32))))
    one, other = vitrail.predict_masks(predictor, [pixels, pixels[:, ::-1].copy()], mirror=True)
    assert (one.mask == other.mask[:, ::-1]).mean() > 0.999
    assert len(one.areas) > 1
    plain, turned = vitrail.predict_masks(predictor, [pixels, pixels[:, ::-1].copy()])
    assert (plain.mask == turned.mask[:, ::-1]).mean() < 0.99


def test_a_large_image_needs_windows_and_the_others_have_their_masks(monkeypatch):
    images = [picture_of(drawn(number, size)) for number, size in enumerate([(24, 24), (64, 64), (24, 24)])]
    monkeypatch.setattr(windows, "MOST_WHOLE", 32 * 32)
    (answers,) = predict_each(KNOWING, images, batch_size=8)
    assert isinstance(answers[1], DataError) and "--window 512" in answers[1].hint
    assert [answers[place].mask.shape for place in (0, 2)] == [(24, 24)] * 2
    with pytest.raises(DataError, match="64×64 pixels, too many"):
        vitrail.predict_masks(KNOWING, images[1])
    assert vitrail.predict_masks(KNOWING, images[1], window=32)[0].mask.shape == (64, 64)


def test_images_of_one_size_are_computed_together_and_large_ones_count_as_several(monkeypatch):
    seen = []

    def counted(pixels):
        seen.append(tuple(pixels.shape[:1] + pixels.shape[2:]))
        return by_colour(pixels)

    monkeypatch.setattr(room, "ROW_PIXELS", 16 * 16)
    images = [Image.new("RGB", size) for size in [(16, 16)] * 3 + [(24, 16)] + [(16, 16), (32, 32)]]
    own = replace(KNOWING, logits=counted)
    vitrail.predict_masks(own, images, batch_size=4)
    assert seen == [(3, 16, 16), (1, 16, 24), (1, 16, 16), (1, 32, 32)]
    assert [own.size(image) for image in images] == [1, 1, 1, 2, 1, 4] and own.size(b"nothing") == 1


def test_the_logits_of_a_picture_by_windows_never_fill_the_memory():
    """Of 30 classes of 2,000×1,500 pixels, which take 360 MB, 64 MB are there at a time."""
    largest = 0

    def network(pixels):
        nonlocal largest
        largest = max(largest, pixels.shape[-1] * pixels.shape[-2])
        return torch.zeros(1, 30, pixels.shape[2] // 4, pixels.shape[3] // 4)

    view = View((8, 8), (256, 256), 0.25)
    bands = [band.nbytes for _, band in logits_in_bands(network, torch.zeros(1, 3, 1500, 2000, dtype=torch.uint8), view)]
    assert sum(bands) == 4 * 30 * 1500 * 2000 and max(bands) <= 1.1 * windows.BAND and largest == 256**2


def test_an_exported_model_of_one_size_takes_windows_of_this_size():
    fixed = replace(KNOWING, any_size=False)
    assert fixed.view.window == (32, 32)
    assert vitrail.predict_masks(fixed, picture_of(drawn(3, (50, 20))))[0].mask.shape == (20, 50)
    with pytest.raises(ConfigError, match="windows of 64×64 do not fit the model, which takes only 32×32"):
        fixed.configured(SegmentationOptions(window=(64, 64)))


def test_windows_are_rounded_up_to_what_the_model_takes():
    assert KNOWING.configured(SegmentationOptions.read({"window": "30x33"})).view.window == (32, 40)


def test_windows_that_need_too_much_memory_are_refused():
    with pytest.raises(ConfigError, match="a window of 65,536×65,536 pixels is too large"):
        KNOWING.configured(SegmentationOptions(window=(65_536, 65_536)))


def test_many_classes_have_masks_of_16_bits():
    many = replace(KNOWING, classes=[str(number) for number in range(300)], colors=[(0, 0, 0)] * 300)
    own = replace(many, logits=lambda pixels: torch.eye(300)[299].view(1, 300, 1, 1).expand(1, 300, 2, 2))
    (answer,) = vitrail.predict_masks(own, Image.new("RGB", (8, 8)))
    assert answer.mask.dtype == np.uint16 and (answer.mask == 299).all()


def test_models_of_other_kinds_and_damaged_ones_are_refused():
    with pytest.raises(ModelFileError, match="the model gives no masks"):
        vitrail.predict_masks(small_model(), Image.new("RGB", (8, 8)))
    with pytest.raises(ModelFileError, match="not finite"):
        vitrail.predict_masks(replace(KNOWING, logits=lambda pixels: by_colour(pixels) / 0), Image.new("RGB", (8, 8)))
