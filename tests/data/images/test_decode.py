"""Files of every kind become pictures of the right colours, or a DataError that names the file."""

import io
import os
import struct
import sys
import time
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from pathlib import Path

import numpy as np
import pytest
from PIL import ExifTags, Image, ImageCms, ImageOps

from vitrail.data.images.decode import (
    FORMATS,
    SERVED,
    check_head,
    decode,
    decode_reduced,
    decode_with_mode,
    mask_image,
    upright_size,
)
from vitrail.data.images.jpeg_scans import MAX_SCANS
from vitrail.errors import DataError

RED = (255, 0, 0)
SOLID = {  # mode: a stored value, what a viewer shows in RGB, and in grey
    "1": (1, (255, 255, 255), 255),
    "L": (200, (200, 200, 200), 200),
    "P": (1, (10, 20, 30), 18),
    "RGB": (RED, RED, 76),
    "RGBX": ((255, 0, 0, 7), RED, 76),
    "RGBA": ((255, 0, 0, 128), (255, 127, 127), 165),
    "RGBa": ((128, 0, 0, 128), (255, 127, 127), 165),
    "LA": ((0, 128), (127, 127, 127), 127),
    "La": ((0, 128), (127, 127, 127), 127),
    "PA": ((1, 0), (255, 255, 255), 255),
    "CMYK": ((255, 0, 0, 0), (0, 255, 255), 179),
    "YCbCr": ((255, 128, 128), (255, 255, 255), 255),
    "LAB": ((255, 128, 128), (255, 255, 255), 255),
    "HSV": ((0, 255, 255), RED, 76),
    "I": (65535, (255, 255, 255), 255),
    "F": (0.5, (128, 128, 128), 128),
    "I;16": (30000, (117, 117, 117), 117),  # 30000 / 257 = 116.7
    "I;16L": (30000, (117, 117, 117), 117),
    "I;16B": (30000, (117, 117, 117), 117),
    "I;16N": (51400, (200, 200, 200), 200),  # 257 times 200, so that white is white
}


def solid(mode: str, size: tuple[int, int] = (4, 3)) -> Image.Image:
    image = Image.new(mode, size, SOLID[mode][0])
    if mode in ("P", "PA"):
        image.putpalette([0, 0, 0, 10, 20, 30])
    return image


def encoded(image: Image.Image, format: str, **options) -> bytes:
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def noise(size: tuple[int, int] = (16, 16), mode: str = "RGB") -> Image.Image:
    shape = (size[1], size[0], 3) if mode == "RGB" else (size[1], size[0])
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8))


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(width: int, height: int, depth: int, colour: int, rows: bytes, *before: bytes) -> bytes:
    """A PNG file by hand; ``colour`` 0 is grey, 2 RGB, 4 grey with alpha."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(before) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def assert_solid(image: Image.Image, mode: str, value: tuple[int, ...] | int, tolerance: int = 0) -> None:
    assert image.mode == mode
    assert np.abs(np.asarray(image).astype(int) - np.asarray(value)).max() <= tolerance


def test_every_mode_of_pillow_is_covered():
    assert set(SOLID) >= set(Image.MODES)


@pytest.mark.parametrize("mode", SOLID)
def test_a_picture_in_memory_shows_its_colour(mode):
    _, colour, grey = SOLID[mode]
    near = 1 if mode == "LAB" else 0  # the conversion to LAB itself rounds
    image = solid(mode)
    before = image.tobytes()
    assert_solid(decode(image), "RGB", colour, near)
    assert_solid(decode(image, channels=1), "L", grey, near)
    assert image.mode == mode and image.tobytes() == before


@pytest.mark.parametrize(
    ("format", "mode"),
    [("PNG", m) for m in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")]
    + [("BMP", m) for m in ("1", "L", "P", "RGB")]
    + [("GIF", m) for m in ("1", "L", "P")]
    + [("WEBP", m) for m in ("RGB", "RGBA")]
    + [("JPEG", m) for m in ("L", "RGB", "CMYK", "YCbCr")]
    + [("TIFF", m) for m in ("1", "L", "LA", "P", "RGB", "RGBA", "I", "F", "I;16", "CMYK", "YCbCr")]
    + [("AVIF", m) for m in ("RGB", "RGBA")],
)
def test_a_file_shows_its_colour(format, mode, tmp_path):
    file = tmp_path / f"picture.{format.lower()}"
    solid(mode, (32, 16)).save(file, format, **({"lossless": True} if format == "WEBP" else {}))
    _, colour, grey = SOLID[mode]
    near = {"JPEG": 2, "AVIF": 2}.get(format, 0)
    for source in (file, file.read_bytes()):
        assert_solid(decode(source), "RGB", colour, near)
        assert_solid(decode(source, channels=1), "L", grey, near)


def test_an_animation_shows_its_first_frame():
    frames = [Image.new("RGB", (4, 4), colour) for colour in (RED, "blue", "lime")]
    for format, options in (("GIF", {}), ("WEBP", {"lossless": True}), ("PNG", {}), ("AVIF", {})):
        file = encoded(frames[0], format, save_all=True, append_images=frames[1:], **options)
        assert_solid(decode(file), "RGB", RED, 1 if format == "AVIF" else 0)


def test_a_tiff_of_several_pages_shows_the_first():
    pages = [Image.new("RGB", (6, 6), RED), Image.new("L", (40, 40)), Image.new("RGB", (3, 3), "lime")]
    assert_solid(decode(encoded(pages[0], "TIFF", save_all=True, append_images=pages[1:])), "RGB", RED)


@pytest.mark.parametrize(("kind", "channels"), [(2, 3), (4, 2), (6, 4)])
def test_colours_of_sixteen_bits_that_use_twelve_are_refused_by_name(kind, channels, tmp_path):
    for value, refused in ((0x0FFF, True), (0x10FF, False), (0, False)):
        opaque = [value] * (channels - (kind > 2)) + [0xFFFF] * (kind > 2)
        (tmp_path / "a.png").write_bytes(png(1, 1, 16, kind, b"\0" + b"".join(word.to_bytes(2, "big") for word in opaque)))
        with pytest.raises(DataError, match=r"are below 4,096 of 65,535") if refused else nullcontext() as error:
            decode(tmp_path / "a.png")
        assert not refused or str(tmp_path / "a.png") == str(error.value.where)


@pytest.mark.parametrize(
    ("depth", "colour", "row", "transparent"),
    [
        (8, 0, b"\0\x00", b"\0\0"),
        (8, 2, b"\0\x01\x02\x03", b"\0\1\0\2\0\3"),
        (1, 0, b"\0\x00", b"\0\0"),
        (16, 0, b"\0\x12\x34", b"\x12\x34"),
        (16, 2, b"\0\x12\x34\0\x56\xff\x07", b"\x12\x34\0\x56\xff\x07"),
    ],
)
def test_a_png_with_one_transparent_colour_lies_on_white(depth, colour, row, transparent):
    assert_solid(decode(png(1, 1, depth, colour, row, chunk(b"tRNS", transparent))), "RGB", 255)


def as_stored(upright: np.ndarray, orientation: int) -> np.ndarray:
    """What a camera stores, from the meaning of the tag: where the stored first row and first column are seen."""
    u, turned = upright, upright.swapaxes(0, 1)
    return {
        1: u,  # top, left
        2: u[:, ::-1],  # top, right
        3: u[::-1, ::-1],  # bottom, right
        4: u[::-1],  # bottom, left
        5: turned,  # left, top
        6: turned[::-1],  # right, top
        7: turned[::-1, ::-1],  # right, bottom
        8: turned[:, ::-1],  # left, bottom
    }[orientation]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_exif_orientation_gives_the_same_upright_picture(orientation):
    blocks = np.array([[[255, 0, 0], [0, 255, 0], [0, 0, 255]], [[0, 0, 0], [255, 255, 255], [128, 128, 128]]], np.uint8)
    upright = blocks.repeat(16, axis=0).repeat(16, axis=1)
    stored = Image.fromarray(np.ascontiguousarray(as_stored(upright, orientation)))
    exif = Image.Exif()
    exif[0x0112] = orientation
    exact = (("PNG", {}, 0), ("WEBP", {"lossless": True}, 0), ("TIFF", {}, 0), ("TIFF", {"compression": "tiff_lzw"}, 0))
    for format, options, near in (*exact, ("JPEG", {"quality": 100}, 4), ("AVIF", {"quality": 100, "subsampling": "4:4:4"}, 4)):
        decoded = np.asarray(decode(encoded(stored, format, exif=exif, **options)))
        assert decoded.shape == upright.shape
        assert np.abs(decoded[8::16, 8::16].astype(int) - blocks).max() <= near


@pytest.mark.parametrize("orientation", range(1, 9))
def test_it_is_turned_as_pillow_turns_it_and_stays_so_where_it_is_decoded_once_more(orientation):
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    xmp = f'<x:xmpmeta xmlns:x="adobe:ns:meta/" tiff:Orientation="{orientation}"/>'.encode()
    for format, options in (("PNG", {}), ("WEBP", {"lossless": True, "xmp": xmp}), ("TIFF", {})):
        content = encoded(Image.fromarray(pixels), format, exif=exif, **options)
        with Image.open(io.BytesIO(content)) as image:
            expected = ImageOps.exif_transpose(image)
        once = decode(content)
        assert np.array_equal(once, expected) and np.array_equal(decode(once), expected)


def test_exif_data_of_an_unusual_kind_is_no_obstacle_to_turning(tmp_path):
    """Resolution's unit as a fraction, which Pillow reads and cannot write."""
    entries = [(0x0112, 3, 1, struct.pack("<HH", 6, 0)), (0x0128, 5, 1, struct.pack("<I", 38))]
    body = b"".join(struct.pack("<HHI", tag, kind, count) + value for tag, kind, count, value in entries)
    exif = b"Exif\0\0II*\0" + struct.pack("<IH", 8, len(entries)) + body + struct.pack("<III", 0, 72, 1)
    pixels = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
    for format in ("JPEG", "PNG", "WEBP"):
        content = encoded(Image.fromarray(pixels), format, exif=exif, lossless=True)
        assert decode(content).size == upright_size(content) == (2, 3)
        with Image.open(io.BytesIO(content)) as image:
            np.testing.assert_array_equal(decode(content), image.convert("RGB").transpose(Image.Transpose.ROTATE_270))


@pytest.mark.parametrize("format", FORMATS)
def test_a_truncated_file_is_refused_by_name(format, tmp_path):
    whole = encoded(noise(), format)
    file = tmp_path / "cut.jpg"
    for length in (0, 1, 4, 12, len(whole) // 3, len(whole) // 2):
        file.write_bytes(whole[:length])
        with pytest.raises(DataError, match=r"cut\.jpg"):
            decode(file)


def test_what_is_no_picture_is_refused_by_name(tmp_path):
    picture = Image.new("RGB", (8, 8))
    contents = {
        "text.jpg": b"not a picture at all",
        "empty.png": b"",
        "ico.tif": encoded(picture, "ICO"),
        "icns.avif": encoded(Image.new("RGB", (16, 16)), "ICNS"),
        "film.heic": b"\0\0\0\x18ftypqt  " + bytes(40),
        "jpeg2000.jpg": encoded(picture, "JPEG2000"),
        "pdf.jpg": encoded(picture, "PDF"),
        "eps.jpg": encoded(picture, "EPS"),
        "ppm.png": encoded(picture, "PPM"),
        "ico.png": encoded(picture, "ICO"),
        "psd.png": b"8BPS\0\1" + bytes(40),
        "html.gif": b"<html></html>",
        "svg.png": b"<svg xmlns='http://www.w3.org/2000/svg'/>",
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder.jpg").mkdir()
    for name in [*contents, "folder.jpg", "missing.jpg"]:
        with pytest.raises(DataError) as error:
            decode(tmp_path / name)
        assert name in str(error.value) and error.value.exit_code == 3 and error.value.hint


class Kept:
    """An image kept elsewhere."""

    name = "shards-000.tar/0001.jpg"

    def __init__(self, content: bytes | Exception):
        self.content = content

    def open(self) -> io.BytesIO:
        if isinstance(self.content, Exception):
            raise self.content
        return io.BytesIO(self.content)


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_pixels_are_taken_as_they_are(mode):
    picture = noise(mode=mode)
    pixels = np.asarray(picture)
    before = pixels.copy()
    for channels in (1, 3):
        assert decode(pixels, channels=channels).tobytes() == decode(picture, channels=channels).tobytes()
    assert decode(pixels[:, ::-1]).tobytes() == decode(picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)).tobytes()
    check_head(pixels)
    decode(pixels).putpixel((0, 0), 7)
    assert np.array_equal(pixels, before)


@pytest.mark.parametrize(("type", "shape"), [(float, (4, 4)), ("u1", (4, 4, 4)), ("u1", (3, 4, 5)), ("u1", (4,)), ("u1", (0, 4))])
def test_other_arrays_are_refused(type, shape):
    for look in (decode, check_head):
        with pytest.raises(DataError) as error:
            look(np.zeros(shape, type))
        assert error.value.hint


def test_what_is_kept_elsewhere_is_read_when_it_is_asked_for():
    picture = noise()
    stored = Kept(encoded(picture, "PNG"))
    assert decode(stored).tobytes() == picture.tobytes()
    check_head(stored)
    exif = Image.Exif()
    exif[0x0112] = 6
    assert decode(Kept(encoded(solid("RGB", (4, 2)), "PNG", exif=exif))).size == (2, 4)


def test_the_head_tells_without_decoding_a_pixel(tmp_path, monkeypatch):
    whole = encoded(noise(), "PNG")
    (tmp_path / "picture.png").write_bytes(whole)
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", lambda self: pytest.fail("decoded"))
    for source in (whole, whole[:60], tmp_path / "picture.png", Kept(whole)):
        check_head(source)
    for source in (whole[:20], tmp_path, Kept(b"")):
        with pytest.raises(DataError):
            check_head(source)
    for source in (whole, np.zeros((16, 16), np.uint8), noise()):
        with pytest.raises(DataError, match="limit"):
            check_head(source, max_pixels=255)


def scanned(count, side=64):
    """A JPEG of so many scans, all but the first the same, of a few bytes each."""
    file = io.BytesIO()
    Image.new("RGB", (side, side)).save(file, "JPEG", progressive=True)
    content = file.getvalue()
    scans, tables = content.count(b"\xff\xda"), content[: content.rindex(b"\xff\xda")].rindex(b"\xff\xc4")
    return content[:-2] + content[tables:-2] * (count - scans) + content[-2:]


def test_a_jpeg_of_several_pictures_shows_the_first():
    file = encoded(Image.new("RGB", (16, 16), "white"), "MPO", save_all=True, append_images=[Image.new("RGB", (16, 16))])
    assert_solid(decode(file), "RGB", 255)


@pytest.mark.parametrize("least", [None, 8])
def test_a_jpeg_of_many_scans_is_refused_before_a_pixel_is_decoded(least, tmp_path, monkeypatch):
    file = tmp_path / "scans.jpg"
    for source in (scanned(MAX_SCANS), Image.open(io.BytesIO(scanned(MAX_SCANS + 1)))):
        decode_reduced(source, least=least)  # and what somebody else has opened is theirs
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", lambda self: pytest.fail("decoded"))
    file.write_bytes(scanned(MAX_SCANS + 1))
    for source in (file, file.read_bytes()):
        with pytest.raises(DataError, match="65 scans"):
            decode_reduced(source, least=least)


@pytest.mark.parametrize(
    ("format", "least", "expected"), [("JPEG", 100, 125 * 100), ("JPEG", None, 1000 * 800), ("PNG", 100, 1000 * 800)]
)
def test_a_look_at_the_head_tells_how_many_pixels_will_be_decoded(format, least, expected):
    content = encoded(solid("RGB", (1000, 800)), format)
    assert check_head(content, least=least) == expected
    image = decode_reduced(content, least=least).image
    assert image.width * image.height == expected
    assert check_head(Image.open(io.BytesIO(content)), least=least) == 1000 * 800
    assert check_head(encoded(solid("RGB", (1000, 800)), "JPEG", progressive=True), least=least) == 1000 * 800


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("side", [10_001, 50_000, 2**31 - 1])
def test_a_giant_is_refused_by_its_header_before_a_pixel_is_decoded(side, monkeypatch):
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", lambda self: pytest.fail("decoded a giant"))
    start = time.perf_counter()
    with pytest.raises(DataError, match="limit"):
        decode(png(side, side, 8, 2, b""))
    assert time.perf_counter() - start < 1


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("format", FORMATS)
def test_damaged_bytes_give_a_picture_or_a_data_error(format):
    exif = Image.Exif()
    exif[0x0112] = 6
    whole = encoded(noise(), format, **({} if format in ("BMP", "GIF") else {"exif": exif}))
    random = np.random.default_rng(7)
    refused = 0
    for trial in range(300):
        content = bytearray(whole)
        end = 64 if trial % 2 else len(content)  # headers get their share
        for position in random.integers(0, end, size=random.integers(1, 6)):
            content[position] = random.integers(0, 256)
        if trial % 5 == 0:
            del content[random.integers(0, len(content)) :]
        channels = 1 + 2 * (trial % 2)
        try:
            picture = decode(bytes(content), channels=channels, max_pixels=1_000_000)
            assert picture.mode == ("L" if channels == 1 else "RGB")
            picture.tobytes()
        except DataError:
            refused += 1
    assert refused


@pytest.mark.parametrize(
    ("least", "size", "end"),
    [
        (None, (403, 301), (403, 301)),
        (151, (403, 301), (403, 301)),
        (150, (202, 151), (201.5, 150.5)),
        (75, (101, 76), (100.75, 75.25)),
        (30, (51, 38), (50.375, 37.625)),
        (1, (51, 38), (50.375, 37.625)),
    ],
)
def test_a_jpeg_that_will_be_made_smaller_is_decoded_at_a_half_a_quarter_or_an_eighth(least, size, end):
    content = encoded(Image.new("RGB", (403, 301), RED), "JPEG")
    for channels in (1, 3):
        reduced = decode_reduced(content, channels=channels, least=least)
        assert (reduced.image.size, *reduced.whole) == (size, (403, 301), (0, 0, *end))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_smaller_jpeg_is_still_upright_and_so_is_where_the_picture_lies_in_it(orientation):
    """A white picture whose last pixels, stored right and below, are black: in the smaller one they are at the same ends."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    upright = np.full((403, 301), 255, np.uint8) if orientation > 4 else np.full((301, 403), 255, np.uint8)
    size, stored = upright.shape[::-1], as_stored(upright, orientation).copy()
    stored[-13:] = stored[:, -11:] = 0
    upright = np.asarray(decode(encoded(Image.fromarray(stored), "PNG", exif=exif), channels=1))
    image, (whole, (left, top, right, bottom)) = decode_reduced(
        encoded(Image.fromarray(stored), "JPEG", exif=exif, quality=95), channels=1, least=75
    )
    assert whole == size and (right - left, bottom - top) == (size[0] / 4, size[1] / 4)
    assert (left > 0, right < image.width) == ((True, False) if np.all(upright[:, 0] == 0) else (False, True))
    assert (top > 0, bottom < image.height) == ((True, False) if np.all(upright[0] == 0) else (False, True))


# what only files of one's own may be


@pytest.mark.parametrize("format", FORMATS)
def test_a_server_opens_five_formats_alone(format):
    content = encoded(noise(), format)
    if format in SERVED:
        check_head(content, formats=SERVED)
    else:
        with pytest.raises(DataError, match="known format") as error:
            check_head(content, formats=SERVED)
        assert format not in error.value.hint


@pytest.fixture
def heic():
    """Files in HEIC, made by the library of the extra."""
    library = pytest.importorskip("pillow_heif")
    library.register_heif_opener()
    return lambda image, **options: encoded(image, "HEIF", **options)


def test_heic_without_its_extra_names_the_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    (tmp_path / "phone.heic").write_bytes(b"\0\0\0\x1cftypheic" + bytes(40))
    for look in (decode, check_head):
        with pytest.raises(DataError, match=r"vitrail\[heic\]") as error:
            look(tmp_path / "phone.heic")
        assert error.value.exit_code == 3 and "phone.heic" in str(error.value)
    with pytest.raises(DataError, match="known format"):  # a server never comes so far
        check_head(tmp_path / "phone.heic", formats=SERVED)


def test_a_heic_shows_its_colour_upright(heic):
    assert_solid(decode(heic(Image.new("RGB", (32, 16), RED))), "RGB", RED, 3)
    assert_solid(decode(heic(Image.new("RGBA", (32, 16), (0, 0, 0, 0)))), "RGB", 255, 3)
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = decode_reduced(heic(Image.new("RGB", (64, 48), RED), exif=exif.tobytes()), least=None)
    assert turned.image.size == turned.whole.size == (48, 64)


@pytest.mark.soak
def test_a_damaged_or_giant_heic_is_refused_or_read(heic, monkeypatch):
    whole, random = heic(noise((64, 48))), np.random.default_rng(7)
    for length in (0, 1, 4, 12, len(whole) // 3, len(whole) // 2):
        with pytest.raises(DataError):
            decode(whole[:length])
    for trial in range(200):
        content = bytearray(whole)
        for position in random.integers(0, 64 if trial % 2 else len(content), size=random.integers(1, 6)):
            content[position] = random.integers(0, 256)
        try:
            assert decode(bytes(content), max_pixels=1_000_000).mode == "RGB"
        except DataError:
            continue
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", lambda self: pytest.fail("decoded"))
    for look in (check_head, decode):
        with pytest.raises(DataError, match="limit"):
            look(whole, max_pixels=100)


def profile(name: str) -> bytes:
    """A colour profile of sRGB's numbers under another name."""
    content = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    return content.replace("sRGB".encode("utf-16-be"), name.encode("utf-16-be")) if name else content


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (None, None),
        (profile(""), None),
        (b"no profile at all", "damaged"),
        (profile("")[:200], "damaged"),
        (b"\xff" * 4000, "damaged"),
    ],
    ids=["none", "sRGB", "text", "cut", "bytes"],
)
@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP"])
def test_a_colour_profile_changes_no_value_and_its_name_is_told(format, content, name):
    options = {"lossless": True} if format == "WEBP" else {}
    plain, profiled = encoded(noise(), format, **options), encoded(noise(), format, icc_profile=content, **options)
    assert decode(profiled).tobytes() == decode(plain).tobytes()
    assert decode_with_mode(profiled)[2] == name


def test_many_threads_read_in_silence_and_leave_warnings_as_they_were():
    palette = Image.new("P", (40, 30))
    palette.putpalette([0, 0, 0, 10, 20, 30])
    content = encoded(palette, "PNG", transparency=bytes([0, 128]))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        before = list(warnings.filters)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(decode, [content] * 200))
        assert warnings.filters == before and not caught


def test_no_pipe_and_no_device_is_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.png")
    for file in (tmp_path / "pipe.png", Path("/dev/zero")):
        with pytest.raises(DataError, match="no regular file"):
            decode(file)


def test_a_jpeg_whose_comment_looks_like_heic_is_a_jpeg():
    content = io.BytesIO()
    Image.new("RGB", (8, 8), "red").save(content, "JPEG")
    comment = b"\xff\xfe" + (0x6674).to_bytes(2, "big") + b"ypheic" + bytes(0x6674 - 8)
    jpeg = content.getvalue()[:2] + comment + content.getvalue()[2:]
    assert jpeg[4:12] == b"ftypheic"
    assert decode(jpeg).size == (8, 8)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_upright_size_is_that_of_the_upright_picture(kind, orientation):
    content, exif = io.BytesIO(), Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    Image.new("RGB", (40, 20)).save(content, kind, exif=exif)
    assert upright_size(content.getvalue()) == decode(content.getvalue()).size


def test_a_run_of_bytes_in_what_is_coded_takes_no_longer_than_others():
    whole = encoded(noise(), "JPEG")
    place = whole.index(b"\xff\xda")
    coded = place + 2 + int.from_bytes(whole[place + 2 : place + 4], "big")
    comment = b"\xff\xfe" + (132).to_bytes(2, "big") + b"\xff\xda" * 65
    crafted = whole[:place] + comment + whole[place:coded] + b"\xff" * 60_000 + b"\0" + whole[coded:]
    began = time.process_time()
    with suppress(DataError):
        decode(crafted)
    assert time.process_time() - began < 3  # when each byte was tried anew, the time grew with the square of the run


def test_what_follows_a_picture_is_not_counted_as_scans_and_what_it_has_is():
    content = io.BytesIO()
    Image.effect_noise((64, 48), 50).save(content, "JPEG", progressive=True)
    film = b"\0\2" + b"\xff\xda\0\2" * 1000
    assert decode(content.getvalue() + film).size == (64, 48)
    jpeg = content.getvalue()
    end = jpeg.rindex(b"\xff\xd9")
    scan = jpeg[jpeg.index(b"\xff\xda") : end]
    with pytest.raises(DataError, match="scans is over the limit"):
        decode(jpeg[:end] + scan * 20 + jpeg[end:] + film)


# masks


def in_png(image: Image.Image, **options) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG", **options)
    return file.getvalue()


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
@pytest.mark.parametrize("options", [{}, {"transparency": 0}], ids=["opaque", "transparent"])
def test_an_indexed_mask_gives_its_indices_whatever_their_colors(bits, options):
    indices = (np.arange(70).reshape(7, 10) % 2**bits).astype(np.uint8)
    image = Image.fromarray(indices)
    image.putpalette([9] * 3 * 2**bits)
    assert np.array_equal(mask_image(in_png(image, bits=bits, **options)), indices)


@pytest.mark.parametrize(
    ("depth", "row", "values"), [(1, b"\x50", [0, 1, 0, 1]), (2, b"\x1b", [0, 85, 170, 255]), (4, b"\x0f\x10", [0, 255, 17, 0])]
)
def test_grey_of_a_few_bits_gives_what_every_viewer_has_and_of_a_single_one_0_and_1(depth, row, values):
    assert np.asarray(mask_image(png(4, 1, depth, 0, b"\0" + row))).astype(int).tolist() == [values]


@pytest.mark.parametrize(
    ("image", "kind", "words"),
    [
        (Image.new("L", (9, 7)), "JPEG", "must be lossless"),
        (Image.new("L", (9, 7)), "BMP", "cannot read the image"),
    ],
    ids=["JPEG", "BMP"],
)
def test_what_is_no_mask_is_refused_with_a_way_out(image, kind, words, tmp_path):
    image.save(tmp_path / "mask", kind)
    with pytest.raises(DataError, match=words) as refused:
        mask_image(tmp_path / "mask")
    assert "PNG" in refused.value.hint and refused.value.where == tmp_path / "mask"
    with pytest.raises(DataError, match="over the limit"):
        mask_image(in_png(Image.new("L", (9, 7))), max_pixels=62)


def test_a_giant_tiff_or_avif_is_refused_by_its_header_before_a_pixel_is_decoded(monkeypatch):
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", lambda self: pytest.fail("decoded a giant"))
    tiff, avif = encoded(noise((300, 300)), "TIFF"), encoded(noise((300, 300)), "AVIF")
    for tag in (256, 257):  # width and height
        tiff = tiff.replace(struct.pack("<HHII", tag, 4, 1, 300), struct.pack("<HHII", tag, 4, 1, 60_000))
    place = avif.index(b"ispe") + 8
    for side in (12_000, 2**31 - 1):  # what libavif itself opens, and what it does not
        large = avif[:place] + struct.pack(">II", side, side) + avif[place + 8 :]
        for content in (tiff, large):
            start = time.perf_counter()
            with pytest.raises(DataError):
                check_head(content)
            with pytest.raises(DataError):
                decode(content)
            assert time.perf_counter() - start < 1
    with pytest.raises(DataError, match="limit"):
        decode(tiff)


def test_the_limit_of_pixels_is_exact():
    picture = encoded(solid("RGB", (10, 10)), "PNG")
    assert decode(picture, max_pixels=100).size == (10, 10)
    with pytest.raises(DataError, match="limit"):
        decode(picture, max_pixels=99)


@pytest.mark.parametrize("content", [b"text", b"", OSError("gone"), KeyError("image")])
def test_what_is_kept_elsewhere_is_refused_by_its_name(content):
    for look in (decode, check_head):
        with pytest.raises(DataError, match=r"shards-000\.tar/0001\.jpg") as error:
            look(Kept(content))
        assert error.value.hint


def test_damaged_or_senseless_exif_leaves_the_picture_as_it_is():
    exif = Image.Exif()
    exif[0x0112] = 99
    for value in (b"Exif\0\0MM\0*\0\0\xff\xff", b"Exif\0\0garbage", b"Exif\0\0" + bytes(40), b"no exif at all", exif):
        for format in ("JPEG", "PNG", "WEBP"):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("warnings.warn", lambda *args, **kwargs: None)
                content = encoded(solid("RGB", (4, 2)), format, exif=value)
                assert decode(content).size == upright_size(content) == (4, 2)


def test_a_picture_without_pixels_is_refused():
    with pytest.raises(DataError):
        decode(Image.new("RGB", (0, 5)))


def test_full_transparency_is_white_whatever_lies_below():
    assert_solid(decode(encoded(Image.new("RGBA", (3, 3), (0, 0, 0, 0)), "PNG")), "RGB", 255)
    assert_solid(decode(encoded(Image.new("LA", (3, 3), (0, 0)), "PNG"), channels=1), "L", 255)


def test_sixteen_bit_white_is_white():
    assert_solid(decode(png(1, 1, 16, 0, b"\0\xff\xff")), "RGB", 255)
    assert_solid(decode(png(1, 1, 16, 2, b"\0" + b"\xff" * 6)), "RGB", 255)


def test_a_mask_is_turned_by_its_own_exif():
    values, exif = np.arange(70, dtype=np.uint8).reshape(7, 10), Image.Exif()
    exif[0x0112] = 6
    assert np.array_equal(mask_image(in_png(Image.fromarray(values), exif=exif)), np.rot90(values, -1))
