"""Colour modes become RGB or grey as in Pillow or by hand, whole or in strips, in a few bytes a pixel."""

import io
import json

import numpy as np
import pytest
from PIL import Image
from soak_runs import PROCESSES

from measured import measure_decoding
from vitrail.data.images import color_modes as modes
from vitrail.data.images.color_modes import to_mode

SIDE = 2000
MODES = ["RGBA", "LA", "PA", "La", "RGBa", "CMYK", "YCbCr", "LAB", "HSV", "I", "F", "I;16", "I;16B", "P", "L", "RGB"]
TRANSPARENT = {"P": bytes(range(0, 250, 10)), "L": 7, "I;16": 700, "RGB": (1, 2, 3)}


def random_picture(mode, seed, transparent=False):
    random = np.random.default_rng(seed)
    height, width = (int(side) for side in random.integers(1, 50, 2))
    if mode == "I":
        return Image.fromarray(random.integers(-300, [250, 70_000][seed % 2], (height, width)).astype(np.int32))
    if mode == "F":
        values = random.normal(size=(height, width)) * [0.3, 100][seed % 2]
        values[random.random((height, width)) < 0.1] = [np.nan, np.inf][seed // 2 % 2]
        return Image.fromarray(values.astype(np.float32))
    bytes_each = 2 if mode.startswith("I;16") else len(Image.new(mode, (1, 1)).getbands())
    picture = Image.frombytes(mode, (width, height), random.bytes(height * width * bytes_each))
    if transparent:
        picture.info["transparency"] = TRANSPARENT[mode]
    return picture


@pytest.mark.parametrize(("mode", "transparent"), [*((mode, False) for mode in MODES), *((mode, True) for mode in TRANSPARENT)])
def test_strips_are_the_picture_as_a_whole(mode, transparent, monkeypatch):
    for seed in range(4):
        picture = random_picture(mode, seed, transparent)
        whole = [to_mode(picture, wanted).tobytes() for wanted in ("RGB", "L")]
        with monkeypatch.context() as patch:
            patch.setattr(modes, "STRIP", 97)
            assert [to_mode(picture, wanted).tobytes() for wanted in ("RGB", "L")] == whole


def encoded(mode, format):
    file = io.BytesIO()
    picture = Image.fromarray(np.zeros((SIDE, SIDE), np.uint16)) if mode == "I;16" else Image.new(mode, (SIDE, SIDE))
    picture.save(file, format, lossless=True)
    return file.getvalue()


@pytest.mark.soak
def test_decoding_takes_few_bytes_a_pixel(tmp_path):
    """Of RGB four, as Pillow keeps it; WebP takes 16 within its own library."""
    small = io.BytesIO()
    Image.new("RGBA", (1200, 1200)).save(small, "PNG")
    kinds = {("RGB", "PNG"): 5, ("I;16", "PNG"): 8, ("LA", "PNG"): 10, ("RGBA", "PNG"): 10, ("RGBA", "WEBP"): 18}
    contents = [small.getvalue(), *(encoded(*kind) for kind in kinds)]
    process = PROCESSES.Process(target=measure_decoding, args=(contents, tmp_path / "found.json"))
    process.start()
    process.join()
    _, *more = json.loads((tmp_path / "found.json").read_text())
    for peak, (kind, most) in zip(np.cumsum(more), kinds.items(), strict=True):
        assert peak <= most * SIDE**2, kind
    assert sum(more) > SIDE**2


RAMPS = [
    *((low, high, np.float32) for low, high in [(0, 1), (0, 1.001), (-0.1, 1.1), (-1, 1), (-0.5, 0.5), (0, 0.05), (0, 1.5)]),
    *((low, high, np.float32) for low, high in [(0, 255), (0, 4095), (0, 65_535), (280, 310), (-3, 258), (-1000, 3000)]),
    *((low, high, np.int32) for low, high in [(0, 255), (0, 300), (0, 65_535), (0, 10**6), (-1000, 3000), (-(2**31), 2**31 - 1)]),
    *((low, high, np.uint16) for low, high in [(0, 65_535), (0, 255), (0, 4095), (0, 10_000), (31_768, 35_768)]),
]


@pytest.mark.parametrize(("low", "high", "kind"), RAMPS)
def test_a_ramp_of_wide_greys_stays_a_ramp_from_black_to_white(low, high, kind):
    found = np.asarray(to_mode(Image.fromarray(np.linspace(low, high, 64 * 64).reshape(64, 64).astype(kind)), "L")).ravel()
    assert np.all(np.diff(found.astype(int)) >= 0) and len(np.unique(found)) == 256 and abs(found.mean() - 127.5) < 1


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([0.1, 0.5, 0.2], np.float32, [26, 128, 51]),  # of 0…1
        ([-0.01, 0.5], np.float32, [0, 129]),  # which a filter has overshot
        ([10, 100.4], np.float32, [10, 100]),  # of 0…255
        ([10, 200], np.int32, [10, 200]),
        ([1000, 30_000], np.int32, [4, 117]),  # of 0…65,535
        ([1000, 30_000], np.uint16, [4, 117]),
        ([np.nan, -1, 0, 1, np.inf, -np.inf, -3.4e38], np.float32, [0, 0, 128, 255, 255, 0, 0]),
    ],
)
def test_greys_that_keep_to_a_convention_stand_as_they_are(values, kind, expected):
    assert np.asarray(to_mode(Image.fromarray(np.array([values], dtype=kind)), "L")).tolist() == [expected]
