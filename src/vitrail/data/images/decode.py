"""Files to pictures, safely: known formats only, the size checked before a pixel is decoded."""

import re
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import IO, NamedTuple, Protocol, cast

import numpy as np
from PIL import ExifTags, Image, ImageCms, UnidentifiedImageError
from PIL.JpegImagePlugin import JpegImageFile

from vitrail.data.images.color_modes import to_mode
from vitrail.errors import DataError, UnreadableImageError
from vitrail.files import regular_file

SERVED = ("JPEG", "PNG", "WEBP", "BMP", "GIF")
"""The formats that a server takes from strangers: fewer decoders than for files of one's own."""
FORMATS = (*SERVED, "TIFF", "AVIF")
"""Pillow's names of the formats that are opened; beside them HEIC, which needs the extra ``heic``."""
MASKS = ("PNG",)
"""The formats of masks, which lose nothing."""
VALUES = ("1", "L", "P", "I", "I;16")
"""Pillow's modes with one integer a pixel."""
SUFFIXES = (
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".png", ".apng", ".webp", ".bmp", ".gif"),
    *(".tif", ".tiff", ".avif", ".avifs", ".heic", ".heics", ".heif", ".heifs", ".hif"),
)
"""Ends of the names of files in these formats, in small letters. An MPO of a phone or a camera is a JPEG with a second image."""
HEIC = tuple(b"ftyp" + brand for brand in (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"))
"""What a HEIC file has at its fifth byte, where an AVIF file has ``ftypavif`` or ``ftypavis``."""
_MARKER = re.compile(b"\xff[^\x00\x01\xd0-\xd8\xff]")
"""Of a JPEG, with a length behind it; what is coded has no such bytes. It has one byte 255, since a run of them would be searched
anew from each."""
JPEG = b"\xff\xd8\xff"
"""How one begins, whatever stands at its fifth byte."""
MAX_PIXELS = 100_000_000
"""Refuse larger images: 100 megapixels take 400 MB in memory, as WebP 1.6 GB."""
MAX_SCANS = 64
"""Refuse a JPEG with more scans, which are passes over all its pixels: of 64 bytes each can be, and usual are 1 to 20."""

TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""What makes a picture upright, by its EXIF orientation; any other leaves it as it is stored."""
TELLING = ("exif", "Raw profile type exif", "XML:com.adobe.xmp", "xmp")
"""Where beside a picture Pillow finds its orientation."""
TRANSPOSED, MIRRORED, UPSIDE_DOWN = (5, 6, 7, 8), (2, 3, 6, 7), (3, 4, 7, 8)
"""EXIF orientations that swap width and height; that put the stored last column (or row) at the left; that put it at the top."""


class Stored(Protocol):
    """An image kept somewhere else, an archive or a table, and read only when it is opened."""

    @property
    def name(self) -> str:
        """Its name in error messages."""

    def open(self) -> IO[bytes]:
        """The content of its file; of one that is only looked at, little is read."""


Source = str | Path | bytes | Image.Image | np.ndarray | Stored
"""What can be decoded: a file, its content, a picture, uint8 pixels (H, W) or (H, W, 3), or what is stored elsewhere."""


Box = tuple[float, float, float, float]
"""Left, top, right, bottom."""


class Whole(NamedTuple):
    """The whole picture, upright, of which another is a reduction."""

    size: tuple[int, int]
    """Its width and height."""
    box: Box
    """Where it lies in the reduction.

    An eighth of 403 pixels is 51 of which the last is filled by three pixels only, so that the picture ends at 50⅜.
    """

    def inside(self, box: Box) -> Box:
        """Where a box of the whole picture lies in the reduction."""
        (left, top, _, _), (x, y) = self.box, self._scale
        return left + box[0] * x, top + box[1] * y, left + box[2] * x, top + box[3] * y

    def outside(self, box: Box) -> Box:
        """Where a box of the reduction lies in the whole picture."""
        (left, top, _, _), (x, y) = self.box, self._scale
        return (box[0] - left) / x, (box[1] - top) / y, (box[2] - left) / x, (box[3] - top) / y

    @property
    def _scale(self) -> tuple[float, float]:
        """Pixels of the reduction per pixel of the whole picture: powers of two, by which nothing is rounded."""
        left, top, right, bottom = self.box
        return (right - left) / self.size[0], (bottom - top) / self.size[1]


class Reduced(NamedTuple):
    """A picture that may have been decoded at a fraction of its size."""

    image: Image.Image
    whole: Whole


def decode(source: Source, *, channels: int = 3, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """Decode an image upright, in RGB (``channels`` 3) or grey (``channels`` 1).

    The first frame of an animation; turned by its EXIF orientation; transparency over white; 16 bits to 8. Colour
    profiles are not applied: the values are those that the file stores.

    Raises:
        DataError: not an image of a known format, damaged, truncated, or larger than ``max_pixels``.
    """
    return decode_reduced(source, channels=channels, least=None, max_pixels=max_pixels).image


def decode_reduced(source: Source, *, channels: int = 3, least: int | None, max_pixels: int = MAX_PIXELS) -> Reduced:
    """As `decode`, for a picture that will be made smaller anyway.

    A JPEG may come at a half, a quarter or an eighth of its size, which takes a fraction of the time, as long as both its
    sides keep ``least`` pixels; None, and any other format, is for the whole picture.
    """
    with _explained(source):
        upright = _upright(source, max_pixels, least)
        return upright._replace(image=to_mode(upright.image, "L" if channels == 1 else "RGB"))


def decode_mask(source: Source, *, max_pixels: int = MAX_PIXELS) -> np.ndarray:
    """Decode a mask upright and without loss: the indices of its palette, or its grey values, (H, W).

    Grey of one bit gives 0 and 1; of 2 and 4 bits it is scaled to 0…255, as in any viewer.

    Raises:
        DataError: it is no PNG, or has several values a pixel; or what `decode` refuses.
    """
    with _explained(source, MASKS):
        image = _upright(source, max_pixels, formats=MASKS).image
        if image.mode not in VALUES:
            what = f"a mask has one integer for each pixel, and this image is {image.mode}"
            raise DataError(what, hint="save it as an indexed or a grey PNG without transparency")
        return np.asarray(image)


def decode_with_mode(source: Source, *, max_pixels: int = MAX_PIXELS) -> tuple[Image.Image, str, str | None]:
    """As `decode` in RGB, the colour mode that the image is stored in, by Pillow's name, and its colour profile's name.

    The name is None where there is no profile, or the profile is sRGB.
    """
    with _explained(source):
        image = _upright(source, max_pixels).image
        return to_mode(image, "RGB"), image.mode, _profile(image)


def _profile(image: Image.Image) -> str | None:
    """The name of a colour profile other than sRGB."""
    content = image.info.get("icc_profile")
    if not content:
        return None
    try:
        name = ImageCms.getProfileDescription(ImageCms.ImageCmsProfile(BytesIO(content))).strip()
    except Exception:  # damaged profiles fail in several ways, and change no pixel here
        return "damaged"
    return None if "srgb" in name.lower() else name


def check_head(
    source: Source, *, least: int | None = None, max_pixels: int = MAX_PIXELS, formats: tuple[str, ...] | None = None
) -> int:
    """Refuse what `decode` would refuse without decoding a pixel: another format, a damaged head, too large.

    Of files, ``formats`` are the only ones to be opened, by Pillow's names; None is for all that `decode` knows. Gives how many
    pixels `decode_reduced` would go through with this ``least``; of a progressive JPEG all, at whatever size it comes.
    """
    with _explained(source, formats), _opened(source, formats) as image:
        _check_size(image, max_pixels)
        if "progressive" not in image.info:
            _reduce(source, image, least)
        return image.width * image.height


def upright_size(source: Source, *, max_pixels: int = MAX_PIXELS) -> tuple[int, int]:
    """Width and height of the upright picture, by its head alone; refuses as `check_head`."""
    with _explained(source), _opened(source) as image:
        _check_size(image, max_pixels)
        turned = image.format != "TIFF" and _orientation(image) in TRANSPOSED  # a TIFF's is upright
        return (image.height, image.width) if turned else image.size


class _Silence:
    """Inside it Pillow does not warn; many threads may be inside at once, unlike in `warnings.catch_warnings`."""

    def __init__(self) -> None:
        self._inside, self._lock = 0, threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._caught = warnings.catch_warnings()
                self._caught.__enter__()
                warnings.filterwarnings("ignore", module=r"PIL\.")

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._caught.__exit__(None, None, None)


_SILENCE = _Silence()


@contextmanager
def _explained(source: Source, formats: tuple[str, ...] | None = None) -> Iterator[None]:
    """Whatever goes wrong inside is a `DataError` that names the file; what Pillow only warns of is let pass."""
    try:
        with _SILENCE:
            yield
    except DataError as error:
        raise UnreadableImageError(error.what, where=_name(source), hint=error.hint) from None
    except Exception as error:  # Pillow raises many kinds for damaged files
        raise UnreadableImageError(
            f"cannot read the image: {_reason(error)}",
            where=_name(source),
            hint=f"give a {', '.join(formats or (*FORMATS, 'HEIC'))} file, or remove it",
        ) from error


def _name(source: Source) -> object:
    if isinstance(source, bytes | Image.Image | np.ndarray):
        return "image"
    return source if isinstance(source, str | Path) else getattr(source, "name", type(source).__name__)


def _upright(source: Source, max_pixels: int, least: int | None = None, formats: tuple[str, ...] | None = None) -> Reduced:
    """The picture in the mode it is stored in, turned by its EXIF orientation."""
    with _opened(source, formats) as image:
        _check_size(image, max_pixels)
        size, end = image.size, (float(image.width), float(image.height))
        if isinstance(source, np.ndarray):
            return Reduced(image, Whole(size, (0.0, 0.0, *end)))
        if isinstance(image, JpegImageFile) and image is not source:
            _check_scans(image)
        end = _reduce(source, image, least) or end
        wide = any(";16" in str(tile) for tile in getattr(image, "tile", ())) and not image.mode.startswith("I")
        image.load()
        if wide:
            _check_used(image)
        orientation = _orientation(image)
        upright = _turned(image, TURNS[orientation]) if orientation in TURNS else image
        if orientation in TRANSPOSED:
            size, end = size[::-1], end[::-1]
        left = upright.width - end[0] if orientation in MIRRORED else 0.0
        top = upright.height - end[1] if orientation in UPSIDE_DOWN else 0.0
        return Reduced(upright, Whole(size, (left, top, left + end[0], top + end[1])))


def _orientation(image: Image.Image) -> int | None:
    """How a picture is turned; None where nothing tells, or where what should tell is damaged."""
    try:
        return image.getexif().get(ExifTags.Base.Orientation)
    except Exception:  # Pillow raises many kinds; the picture itself is sound
        return None


def _turned(image: Image.Image, turn: Image.Transpose) -> Image.Image:
    """A picture turned, beside which nothing tells to turn it once more.

    Pillow's own `exif_transpose` writes all else that EXIF tells anew, and fails where a value is of an unusual kind.
    """
    upright = image.transpose(turn)
    for name in TELLING:
        upright.info.pop(name, None)
    return upright


def _reduce(source: Source, image: Image.Image, least: int | None) -> tuple[float, float] | None:
    """Have a JPEG decoded at a fraction of its size; gives where the picture ends in that, None where all is decoded."""
    if least is None or isinstance(source, Image.Image | np.ndarray):
        return None
    drafted = image.draft(None, (least, least))
    return None if drafted is None else (drafted[1][2], drafted[1][3])


@contextmanager
def _opened(source: Source, formats: tuple[str, ...] | None = None) -> Iterator[Image.Image]:
    """The picture, whose pixels may still be in the file that is open inside."""
    if isinstance(source, np.ndarray):
        yield _from_pixels(source)
    elif isinstance(source, Image.Image):
        yield source
    elif isinstance(source, bytes):
        yield _open(BytesIO(source), formats)
    else:
        with regular_file(Path(source)) if isinstance(source, str | Path) else source.open() as file:
            yield _open(file, formats)


def _from_pixels(pixels: np.ndarray) -> Image.Image:
    if pixels.dtype != np.uint8 or not (pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] == 3)):
        raise DataError(
            f"pixels of type {pixels.dtype} and shape {pixels.shape} are no image", hint="give uint8 of shape (H, W) or (H, W, 3)"
        )
    if not pixels.size:
        raise DataError("the image has no pixels", hint="remove it")
    return Image.fromarray(pixels)


def _check_size(image: Image.Image, max_pixels: int) -> None:
    if not image.width * image.height:
        raise DataError("the image has no pixels", hint="remove it")
    if image.width * image.height > max_pixels:
        raise DataError(
            f"image of {image.width}×{image.height} pixels is over the limit of {max_pixels:,}", hint="make it smaller"
        )


def _check_used(image: Image.Image) -> None:
    """Refuse colours of 16 bits that use 12 or fewer: of 16 bits Pillow keeps the upper eight."""
    colours = (image.getchannel(band) for band in image.getbands() if band != "A")
    brightest = max(cast(tuple[int, int], colour.getextrema())[1] for colour in colours)
    if 0 < brightest < 16:
        what = f"none of the colours of 16 bits reaches {256 * (brightest + 1):,} of 65,535: the image would be nearly black"
        raise DataError(what, hint="multiply its values, or save it with 8 bits a channel")


def _check_scans(image: JpegImageFile) -> None:
    assert image.fp is not None
    image.fp.seek(0)
    content = image.fp.read()
    pairs = (np.frombuffer(content, "<u2", (len(content) - start) // 2, start) for start in (0, 1))
    scans = sum(int(np.count_nonzero(pair == 0xDAFF)) for pair in pairs)  # `bytes.count` takes a twelfth of the decoding's time
    if scans > MAX_SCANS and (scans := _scans_in(content)) > MAX_SCANS:  # a film may follow the picture, as phones have it
        raise DataError(f"a JPEG of {scans:,} scans is over the limit of {MAX_SCANS}", hint="save it again")


def _scans_in(jpeg: bytes) -> int:
    """The scans of a JPEG's own picture, marker by marker."""
    scans, place = 0, 2
    while found := _MARKER.search(jpeg, place):
        marker, place = found[0][-1], found.end()
        if marker == 0xD9:  # the end of the picture
            break
        scans += marker == 0xDA
        place += int.from_bytes(jpeg[place : place + 2], "big")
    return scans


def _open(file: IO[bytes], formats: tuple[str, ...] | None) -> Image.Image:
    head = file.read(12)
    file.seek(0)
    if formats is None and head[4:].startswith(HEIC) and not head.startswith(JPEG):
        _register_heic()
        formats = ("HEIF",)
    return Image.open(file, formats=formats or FORMATS)


def _register_heic() -> None:
    """Let Pillow open HEIC, by a library that is imported when the first such file is met."""
    try:
        from pillow_heif import register_heif_opener
    except ImportError:
        raise DataError(
            "a HEIC picture needs the extra heic: pip install 'vitrail[heic]'", hint="install it, or save the picture as JPEG"
        ) from None
    register_heif_opener(thumbnails=False)


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "not an image of a known format"
    return str(error) or type(error).__name__
