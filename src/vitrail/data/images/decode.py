"""Files to pictures, safely: known formats only, the size checked before a pixel is decoded."""

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import IO, Protocol, cast

import numpy as np
from PIL import ExifTags, Image, ImageCms, UnidentifiedImageError
from PIL.JpegImagePlugin import JpegImageFile

from vitrail.data.images.color_modes import to_mode
from vitrail.data.images.jpeg_scans import require_few_scans
from vitrail.data.images.reduction import Reduced, Whole
from vitrail.errors import DataError, UnreadableImageError
from vitrail.files import regular_file

SERVED = ("JPEG", "PNG", "WEBP", "BMP", "GIF")
"""Formats that a server takes from strangers: fewer decoders than for files of one's own."""
FORMATS = (*SERVED, "TIFF", "AVIF")
"""Pillow's names of the formats that are opened; beside them HEIC, which needs the extra ``heic``."""
MASKS = ("PNG",)
"""Formats of masks, which lose nothing."""
VALUES = ("1", "L", "P", "I", "I;16")
"""Pillow's modes with one integer a pixel."""
SUFFIXES = (
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".png", ".apng", ".webp", ".bmp", ".gif"),
    *(".tif", ".tiff", ".avif", ".avifs", ".heic", ".heics", ".heif", ".heifs", ".hif"),
)
"""Suffixes of files in these formats, in small letters. An MPO of a phone or a camera is a JPEG with a second image."""
HEIC = tuple(b"ftyp" + brand for brand in (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"))
"""Fifth and further bytes of a HEIC file, where an AVIF file has ``ftypavif`` or ``ftypavis``."""
JPEG = b"\xff\xd8\xff"
"""First bytes of a JPEG, whatever stands at its fifth byte."""
MAX_PIXELS = 100_000_000
"""Most pixels of an image: 100 megapixels take 400 MB in memory, as WebP 1.6 GB."""

TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""The turn that makes a picture upright, by its EXIF orientation; with any other it stays as it is stored."""
EXIF = ("exif", "Raw profile type exif", "XML:com.adobe.xmp", "xmp")
"""Keys under which Pillow finds a picture's orientation."""
TRANSPOSED, MIRRORED, UPSIDE_DOWN = (5, 6, 7, 8), (2, 3, 6, 7), (3, 4, 7, 8)
"""EXIF orientations that swap width and height; that put the stored last column (or row) at the left; that put it at the top."""


class Stored(Protocol):
    """An image in an archive or a table, which is read when it is opened."""

    @property
    def name(self) -> str:
        """Name of the image in error messages."""

    def open(self) -> IO[bytes]:
        """Open the content of the image's file, of which as little is read as the caller needs."""


Source = str | Path | bytes | Image.Image | np.ndarray | Stored
"""An image that can be decoded: a file, its content, a picture, uint8 pixels (H, W) or (H, W, 3), or a `Stored` one."""


def decode(source: Source, *, channels: int = 3, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """Decode an image upright, in RGB (``channels`` 3) or grey (``channels`` 1).

    The first frame of an animation; turned by its EXIF orientation; transparency over white; 16 bits to 8. Colour
    profiles are not applied: the values are those that the file stores.

    Raises:
        DataError: not an image of a known format, damaged, truncated, or larger than ``max_pixels``.
    """
    return decode_reduced(source, channels=channels, least=None, max_pixels=max_pixels).image


def decode_reduced(source: Source, *, channels: int = 3, least: int | None, max_pixels: int = MAX_PIXELS) -> Reduced:
    """Decode as `decode` a picture that will be made smaller anyway.

    A JPEG may come at a half, a quarter or an eighth of its size, in a fraction of the time, as long as both its sides keep
    ``least`` pixels. With None, and in any other format, the whole picture is decoded.
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
    """Decode as `decode` in RGB; return the picture, Pillow's name of its stored colour mode, and its colour profile's name.

    The last is None where there is no profile, or the profile is sRGB.
    """
    with _explained(source):
        image = _upright(source, max_pixels).image
        return to_mode(image, "RGB"), image.mode, _profile(image)


def _profile(image: Image.Image) -> str | None:
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
    """Refuse by its head alone what `decode` would refuse: another format, a damaged head, too large.

    ``formats`` are the only ones to be opened, by Pillow's names; by default all that `decode` knows. Return the number of pixels
    that `decode_reduced` would go through with this ``least``; of a progressive JPEG all, at whatever size it comes.
    """
    with _explained(source, formats), _opened(source, formats) as image:
        _check_size(image, max_pixels)
        if "progressive" not in image.info:
            _reduce(source, image, least)
        return image.width * image.height


def upright_size(source: Source, *, max_pixels: int = MAX_PIXELS) -> tuple[int, int]:
    """Return width and height of the upright picture, by its head alone; refuse as `check_head`."""
    with _explained(source), _opened(source) as image:
        _check_size(image, max_pixels)
        turned = image.format != "TIFF" and _orientation(image) in TRANSPOSED  # a TIFF's is upright
        return (image.height, image.width) if turned else image.size


class _Silence:
    """A context without Pillow's warnings; many threads may be inside at once, unlike in `warnings.catch_warnings`."""

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
    """Turn any error inside into a `DataError` that names the file; ignore Pillow's warnings."""
    try:
        with _SILENCE:
            yield
    except DataError as error:
        raise UnreadableImageError(error.what, where=_name(source), hint=error.hint) from None
    except Exception as error:  # Pillow raises many kinds for damaged files
        unknown = isinstance(error, UnidentifiedImageError)
        reason = "not an image of a known format" if unknown else str(error) or type(error).__name__
        hint = f"give a {', '.join(formats or (*FORMATS, 'HEIC'))} file, or remove it"
        raise UnreadableImageError(f"cannot read the image: {reason}", where=_name(source), hint=hint) from error


def _name(source: Source) -> object:
    if isinstance(source, bytes | Image.Image | np.ndarray):
        return "image"
    return source if isinstance(source, str | Path) else getattr(source, "name", type(source).__name__)


def _upright(source: Source, max_pixels: int, least: int | None = None, formats: tuple[str, ...] | None = None) -> Reduced:
    """Return the picture in the mode it is stored in, turned by its EXIF orientation."""
    with _opened(source, formats) as image:
        _check_size(image, max_pixels)
        size, end = image.size, (float(image.width), float(image.height))
        if isinstance(source, np.ndarray):
            return Reduced(image, Whole(size, (0.0, 0.0, *end)))
        if isinstance(image, JpegImageFile) and image is not source:
            assert image.fp is not None
            image.fp.seek(0)
            require_few_scans(image.fp.read())
        end = _reduce(source, image, least) or end
        wide = any(";16" in str(tile) for tile in getattr(image, "tile", ())) and not image.mode.startswith("I")
        image.load()
        if wide:
            _check_used(image)
        orientation = _orientation(image)
        upright = image.transpose(TURNS[orientation]) if orientation in TURNS else image
        for name in EXIF if orientation in TURNS else ():  # `exif_transpose` writes all of EXIF anew, and fails at unusual values
            upright.info.pop(name, None)
        if orientation in TRANSPOSED:
            size, end = size[::-1], end[::-1]
        left = upright.width - end[0] if orientation in MIRRORED else 0.0
        top = upright.height - end[1] if orientation in UPSIDE_DOWN else 0.0
        return Reduced(upright, Whole(size, (left, top, left + end[0], top + end[1])))


def _orientation(image: Image.Image) -> int | None:
    try:
        return image.getexif().get(ExifTags.Base.Orientation)
    except Exception:  # Pillow raises many kinds; the picture itself is sound
        return None


def _reduce(source: Source, image: Image.Image, least: int | None) -> tuple[float, float] | None:
    """Have a JPEG decoded at a fraction of its size; return the picture's end there, None where all is decoded."""
    if least is None or isinstance(source, Image.Image | np.ndarray):
        return None
    drafted = image.draft(None, (least, least))
    return None if drafted is None else (drafted[1][2], drafted[1][3])


@contextmanager
def _opened(source: Source, formats: tuple[str, ...] | None = None) -> Iterator[Image.Image]:
    """Open a picture, whose pixels may still be in the file that is open inside."""
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
        what = f"pixels of type {pixels.dtype} and shape {pixels.shape} are no image"
        raise DataError(what, hint="give uint8 of shape (H, W) or (H, W, 3)")
    if not pixels.size:
        raise DataError("the image has no pixels", hint="remove it")
    return Image.fromarray(pixels)


def _check_size(image: Image.Image, max_pixels: int) -> None:
    if not image.width * image.height:
        raise DataError("the image has no pixels", hint="remove it")
    if image.width * image.height > max_pixels:
        what = f"image of {image.width}×{image.height} pixels is over the limit of {max_pixels:,}"
        raise DataError(what, hint="make it smaller")


def _check_used(image: Image.Image) -> None:
    """Refuse colours of 16 bits that use 12 or fewer: of 16 bits Pillow keeps the upper eight."""
    colours = (image.getchannel(band) for band in image.getbands() if band != "A")
    brightest = max(cast(tuple[int, int], colour.getextrema())[1] for colour in colours)
    if 0 < brightest < 16:
        what = f"none of the colours of 16 bits reaches {256 * (brightest + 1):,} of 65,535: the image would be nearly black"
        raise DataError(what, hint="multiply its values, or save it with 8 bits a channel")


def _open(file: IO[bytes], formats: tuple[str, ...] | None) -> Image.Image:
    head = file.read(12)
    file.seek(0)
    if formats is None and head[4:].startswith(HEIC) and not head.startswith(JPEG):
        _register_heic()
        formats = ("HEIF",)
    return Image.open(file, formats=formats or FORMATS)


def _register_heic() -> None:
    try:
        from pillow_heif import register_heif_opener
    except ImportError:
        what = "a HEIC picture needs the extra heic: pip install 'vitrail[heic]'"
        raise DataError(what, hint="install it, or save the picture as JPEG") from None
    register_heif_opener(thumbnails=False)
