"""Whatever a person has in Python as a picture is one; anything else is an error that names it."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

import vitrail
from vitrail.data.images.pictures import pictures_of
from vitrail.errors import DataError


@pytest.fixture
def pixels(pictures):
    """A picture of 10×10 pixels as uint8 (H, W, 3)."""
    return np.asarray(Image.open(pictures / "red" / "0.png"))


def forms(file, pixels) -> dict:
    """One picture in every form in which it may be given."""
    tensor = torch.from_numpy(pixels.copy()).permute(2, 0, 1)  # (C, H, W)
    return {
        "path": file, "text": str(file), "bytes": file.read_bytes(), "bytearray": bytearray(file.read_bytes()),
        "file": io.BytesIO(file.read_bytes()), "picture": Image.open(file), "array": pixels, "fractions": pixels / 255,
        "halves": (pixels / 255).astype(np.float32), "with opacity": np.dstack([pixels, np.full((10, 10), 255, np.uint8)]),
        "tensor": tensor, "tensor of fractions": tensor / 255, "with a gradient": (tensor / 255).requires_grad_(),
        "reversed twice": pixels[::-1, ::-1][::-1, ::-1],
    }  # fmt: skip


def test_a_picture_gets_the_same_answer_in_every_form(run, pictures, pixels):
    given = forms(pictures / "red" / "0.png", pixels)
    (expected,) = vitrail.predict(run.trained, given["path"])
    for name, picture in forms(pictures / "red" / "0.png", pixels).items():
        (answer,) = run.predict(picture)
        assert dict(answer) == pytest.approx(dict(expected), abs=1e-6), name
    answers = vitrail.predict(run.trained, iter(given.values()))
    assert [answer[0][0] for answer in answers] == [expected[0][0]] * len(given)


def test_a_batch_is_as_many_pictures(run, pixels):
    arrays = np.stack([pixels, 255 - pixels])
    tensors = torch.from_numpy(arrays).permute(0, 3, 1, 2)
    for batch in (arrays, tensors, list(arrays), tuple(tensors), arrays / 255):
        answers = vitrail.predict(run.trained, batch)
        assert [answer[0][0] for answer in answers] == [run.predict(one)[0][0][0] for one in arrays]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (np.zeros(7, np.uint8), "(7,)"),
        (np.zeros((3, 20, 30), np.uint8), "(3, 20, 30)"),
        (np.zeros((8, 28, 28), np.uint8), "(8, 28, 28)"),
        (np.zeros((2, 3, 20, 30), np.uint8), "(2, 3, 20, 30)"),
        (np.zeros((1, 2, 20, 30, 3), np.uint8), "(1, 2, 20, 30, 3)"),
        (np.zeros((0, 4, 3), np.uint8), "(0, 4, 3)"),
        (torch.zeros(20, 30, 3), "(20, 30, 3)"),
        (torch.zeros(1, 20, 30, 3), "(1, 20, 30, 3)"),
        ([np.zeros((2, 4, 4, 3), np.uint8)], "(2, 4, 4, 3)"),
        (np.zeros((4, 4, 3), np.int64), "int64"),
        (np.zeros((4, 4, 3), np.uint16), "uint16"),
        (torch.zeros(3, 4, 4, dtype=torch.long), "int64"),
        (np.full((4, 4, 3), 127.0), "127"),
        (torch.full((3, 4, 4), -1.5), "-1.5"),
        (np.full((4, 4, 3), np.nan), "nan"),
        ("https://example.org/cat.jpg", "https://example.org/cat.jpg"),
        ([[0, 1], [2, 3]], "list"),
        ([None], "NoneType"),
        (3, "int"),
        ({"image": "cat.jpg"}, "dict"),
        (io.StringIO("cat"), "text"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_picture_is_named(wrong, words):
    with pytest.raises(DataError) as error:
        pictures_of(wrong)
    assert words in str(error.value) and error.value.hint
