"""Descriptions of transformers' image processors mean to us what they mean to transformers, or are refused by name."""

import json

import numpy as np
import pytest
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING_NAMES

from vitrail.data.images.preparation import Preparation
from vitrail.data.images.processors import PROCESSOR_OF_MODEL, PROCESSORS
from vitrail.errors import ModelFileError

PLAIN = {"image_mean": [0.0] * 3, "image_std": [1.0] * 3}
"""Colours that leave values of 0…1, of which a level is 1/255."""


def picture(width: int, height: int) -> Image.Image:
    """Waves and an edge: an image as photographs are, not noise, whose every pixel another backend rounds its own way."""
    y, x = np.mgrid[:height, :width] / max(width, height)
    planes = [np.sin(9 * x + k) * np.cos(7 * y - k) * 70 + 128 + 50 * (x > y) for k in range(3)]
    return Image.fromarray(np.stack(planes, axis=-1).astype(np.uint8))


def theirs(values: dict, image: Image.Image, backend: str = "pil") -> np.ndarray:
    name = values["image_processor_type"] + ("Pil" if backend == "pil" else "")
    processor = getattr(transformers, name, None) or getattr(transformers, values["image_processor_type"])
    return np.asarray(processor.from_dict(dict(values))(image, return_tensors="np")["pixel_values"])


def levels(values: dict, image: Image.Image, backend: str = "pil") -> float:
    """The largest difference between their image and ours, in levels of 256."""
    ours = Preparation.from_hugging_face(values)(image).numpy()
    expected = theirs(values, image, backend)
    assert ours.shape == expected.shape
    return float(np.abs(ours - expected).max() * 255)


SIZES = st.tuples(st.integers(20, 120), st.integers(20, 120))
SQUARE = {"height": 24, "width": 24}
DESCRIPTIONS = {
    "ViT": {"size": SQUARE},
    "ViT, cropped": {"size": {"height": 30, "width": 40}, "do_center_crop": True, "crop_size": {"height": 21, "width": 24}},
    "ViT, a number": {"size": 24},
    "DeiT": {"size": {"height": 27, "width": 27}, "crop_size": SQUARE},
    "Beit": {"size": SQUARE},
    "Blip": {"size": SQUARE},
    "Siglip": {"size": SQUARE},
    "CLIP": {"size": {"shortest_edge": 24}, "crop_size": SQUARE},
    "CLIP, numbers": {"size": 30, "crop_size": 24},
    "CLIP, squashed": {"size": SQUARE, "crop_size": SQUARE},
    "ChineseCLIP": {"size": {"shortest_edge": 28}, "crop_size": SQUARE},
    "Bit": {"size": {"shortest_edge": 31}, "crop_size": {"height": 24, "width": 20}},
    "Levit": {"size": {"shortest_edge": 24}, "crop_size": SQUARE},
    "ConvNext": {"size": {"shortest_edge": 24}},
    "ConvNext, another share": {"size": {"shortest_edge": 24}, "crop_pct": 0.95},
    "Pvt": {"size": SQUARE},
    "DINOv3ViT": {"size": SQUARE},
}


@pytest.mark.parametrize("name", DESCRIPTIONS)
@given(SIZES)
@settings(max_examples=12, deadline=None)
def test_every_known_processor_prepares_images_as_ours_does(name, size):
    values = {"image_processor_type": f"{name.split(',')[0]}ImageProcessor", **DESCRIPTIONS[name], **PLAIN}
    allowed = 1.01 if name.startswith("DINOv3ViT") else 1e-3  # that one does not round
    assert levels(values, picture(*size)) <= allowed


@pytest.mark.parametrize("name", PROCESSORS)
def test_what_a_file_leaves_out_is_as_in_the_class_it_names(name):
    bare = {"image_processor_type": f"{name}ImageProcessor"}
    image = picture(90, 70)
    expected = theirs(bare, image)
    allowed = 5 / 255 if name == "DINOv3ViT" else 1e-5  # a level, divided by the deviation
    np.testing.assert_allclose(Preparation.from_hugging_face(bare)(image).numpy(), expected, atol=allowed)


@pytest.mark.parametrize("model_type", PROCESSOR_OF_MODEL)
def test_a_file_without_a_name_means_the_processor_of_its_model(model_type):
    name = PROCESSOR_OF_MODEL[model_type]
    assert IMAGE_PROCESSOR_MAPPING_NAMES[model_type]["torchvision"] == f"{name}ImageProcessor"
    if name in PROCESSORS:
        named = Preparation.from_hugging_face({"image_processor_type": f"{name}ImageProcessor"})
        assert Preparation.from_hugging_face({}, model_type=model_type) == named


VIT = {"image_processor_type": "ViTImageProcessor"}


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({}, "image_processor_type"),
        ({"image_processor_type": "PerceiverImageProcessor"}, "PerceiverImageProcessor"),
        ({"image_processor_type": "Siglip2ImageProcessor"}, "Siglip2ImageProcessor"),
        ({"image_processor_type": "EfficientNetImageProcessor"}, "EfficientNetImageProcessor"),
        (VIT | {"do_pad": True, "pad_size": {"height": 300, "width": 300}}, "do_pad"),
        (VIT | {"do_flip_channel_order": True}, "do_flip_channel_order"),
        (VIT | {"rescale_offset": True}, "rescale_offset"),
        (VIT | {"crop_pct": 0.9}, "crop_pct"),
        (VIT | {"sharpen": 0.5}, "sharpen"),
        (VIT | {"do_resize": False}, "do_resize"),
        (VIT | {"do_rescale": False}, "do_rescale"),
        (VIT | {"resample": 4}, "resample"),
        (VIT | {"size": {"longest_edge": 224}}, "longest_edge"),
        (VIT | {"size": {"shortest_edge": 224, "longest_edge": 300}}, "longest_edge"),
        (VIT | {"size": {"shortest_edge": 224}}, "do_center_crop"),
        ({"image_processor_type": "SiglipImageProcessor", "size": 224}, "do_center_crop"),
        ({"image_processor_type": "CLIPImageProcessor", "crop_size": 256}, "crop"),
        ({"image_processor_type": "ConvNextImageProcessor", "size": {"height": 224, "width": 224}}, "shortest_edge"),
        ({"image_processor_type": "ConvNextImageProcessor", "size": 224, "crop_pct": 0}, "zero"),
        ({"image_processor_type": "DINOv3ViTImageProcessor", "resample": 3}, "resample"),
    ],
    ids=str,
)
def test_what_would_change_pixels_and_is_not_done_here_is_refused_by_name(values, named):
    with pytest.raises(ModelFileError, match=named) as error:
        Preparation.from_hugging_face(values, where="preprocessor_config.json")
    assert error.value.exit_code == 4 and "preprocessor_config.json" in str(error.value)


# what we write


def opened(preparation: Preparation, folder):
    (folder / "preprocessor_config.json").write_text(json.dumps(preparation.to_hugging_face()))
    return transformers.AutoImageProcessor.from_pretrained(folder, backend="pil")


@given(SIZES, st.integers(1, 40), st.integers(1, 40), st.sampled_from([1.0, 0.875, 0.5]))
@settings(max_examples=40, deadline=None)
def test_transformers_prepares_images_for_our_models_as_we_do(tmp_path_factory, size, rows, columns, ratio):
    preparation = Preparation.standard((rows, columns), 3, ratio, crop_rounding="down")
    image = picture(*size)
    processor = opened(preparation, tmp_path_factory.mktemp("model"))
    expected = processor(image, return_tensors="np", input_data_format="channels_last")["pixel_values"]
    np.testing.assert_allclose(preparation(image).numpy(), expected, atol=1e-5)


# where no file says how images are prepared
