"""Pictures that are nearly the same are found whatever was done to a copy; others are not."""

import io

import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageOps
from sklearn.datasets import load_digits, load_sample_images

from vitrail.data.checks.near_duplicates import miniature, near_duplicates, too_alike


def recompressed(image: Image.Image) -> Image.Image:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=40)
    return Image.open(file)


def cropped(image: Image.Image) -> Image.Image:
    width, height = image.size
    return image.crop((round(0.025 * width), round(0.025 * height), round(0.975 * width), round(0.975 * height)))


COPIES = {
    "halved": lambda image: image.resize((image.width // 2, image.height // 2)),
    "recompressed": recompressed,
    "cropped": cropped,
    "mirrored": ImageOps.mirror,
    "brighter": lambda image: ImageEnhance.Brightness(image).enhance(1.3),
    "grey": lambda image: image.convert("L").convert("RGB"),
}


@pytest.fixture(scope="module")
def others() -> list[Image.Image]:
    """Eight different pictures: parts of two photographs."""
    photographs = [Image.fromarray(pixels) for pixels in load_sample_images().images]
    return [image.crop((x, y, x + 320, y + 210)) for image in photographs for x in (0, 320) for y in (0, 217)]


def found(pictures: list[Image.Image]) -> list[list[int]]:
    return near_duplicates(np.stack([miniature(picture) for picture in pictures]))


@pytest.mark.parametrize("copy", COPIES.values(), ids=COPIES)
def test_a_copy_is_found_beside_other_pictures(others, copy):
    assert found([*others, *(copy(picture) for picture in others)]) == [[place, place + 8] for place in range(8)]


def test_different_pictures_are_not_taken_for_copies(others):
    assert found(others) == [] and found(others[:1]) == [] and near_duplicates(np.zeros((0, 2, 12, 12), np.uint8)) == []


def test_pictures_of_one_colour_or_of_few_pixels_say_nothing(others):
    assert found([Image.new("RGB", (32, 32), shade) for shade in ("red", "blue", "red")]) == []
    assert miniature(Image.new("RGB", (200, 15))) is None


def test_characters_have_too_much_in_common(others):
    def large(digit):
        return Image.fromarray((15 * digit).astype(np.uint8)).resize((32, 32), Image.Resampling.BICUBIC)

    digits = np.stack([miniature(large(digit)) for digit in load_digits().images[:200]])
    photographs = np.stack([miniature(other.crop((x, 0, x + 160, 110))) for other in others for x in range(0, 160, 8)])
    assert too_alike(digits) and not too_alike(digits[:99]) and not too_alike(photographs[:0])
    assert not too_alike(photographs)  # although each is there twenty times, a little aside
