"""Safe decoding of image files: only known formats, and the size is checked before any pixel is decoded."""

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
"""Formats that a server accepts from untrusted clients: fewer decoders than for local files."""
FORMATS = (*SERVED, "TIFF", "AVIF")
"""Pillow's names of the supported formats. HEIC is supported, too, with the extra ``heic``."""
MASKS = ("PNG",)
"""Formats of masks, which must be lossless."""
VALUES = ("1", "L", "P", "I", "I;16")
"""Pillow's modes with one integer per pixel."""
SUFFIXES = (
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".png", ".apng", ".webp", ".bmp", ".gif"),
    *(".tif", ".tiff", ".avif", ".avifs", ".heic", ".heics", ".heif", ".heifs", ".hif"),
)
"""Lower-case suffixes of files in these formats. An MPO file of a phone or camera is a JPEG with a second image."""
HEIC = tuple(b"ftyp" + brand for brand in (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"))
"""Bytes from the fifth on that identify a HEIC file; an AVIF file has ``ftypavif`` or ``ftypavis`` there."""
JPEG = b"\xff\xd8\xff"
"""First bytes of a JPEG; its later bytes could look like HEIC's."""
MAX_PIXELS = 100_000_000
"""Largest number of pixels of an image: decoding 100 megapixels takes 400 MB of memory, and 1.6 GB for WebP."""

TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""The transpose that makes an image upright, by its EXIF orientation; other values change nothing."""
EXIF = ("exif", "Raw profile type exif", "XML:com.adobe.xmp", "xmp")
"""Keys of ``Image.info`` in which Pillow finds the orientation."""
TRANSPOSED, MIRRORED, UPSIDE_DOWN = (5, 6, 7, 8), (2, 3, 6, 7), (3, 4, 7, 8)
"""EXIF orientations that swap width and height; that show the stored last column or row at the left; and at the top."""


class Stored(Protocol):
    """An image in an archive or table; it is read when it is opened."""

    @property
    def name(self) -> str:
        """Name of the image in error messages."""

    def open(self) -> IO[bytes]:
        """Open the image's encoded content as a binary file, which the caller may read in part."""


Source = str | Path | bytes | Image.Image | np.ndarray | Stored
"""An image to decode: a path, a file's content, a Pillow image, uint8 pixels (H, W) or (H, W, 3), or a `Stored` image."""


def decode(source: Source, *, channels: int = 3, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """Decode an image upright, in RGB (``channels=3``) or grey (``channels=1``).

    Of an animation the first frame is decoded. The EXIF orientation is applied, transparent pixels are laid over white, and 16
    bits become 8. Colour profiles are not applied.

    Raises:
        DataError: the file is no image of a known format, is damaged or truncated, or has more than ``max_pixels`` pixels.
    """
    return decode_reduced(source, channels=channels, least=None, max_pixels=max_pixels).image


def decode_reduced(source: Source, *, channels: int = 3, least: int | None, max_pixels: int = MAX_PIXELS) -> Reduced:
    """Decode an image like `decode`, but a JPEG perhaps at 1/2, 1/4 or 1/8 of its size, which is faster.

    ``least`` is the number of pixels that both sides must keep. With None, and in other formats, the full size is decoded.
    """
    with _explained(source):
        upright = _upright(source, max_pixels, least)
        return upright._replace(image=to_mode(upright.image, "L" if channels == 1 else "RGB"))


def mask_image(source: Source, *, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """Decode a mask upright and without loss, in its stored mode: grey, indexed with its palette, or colours.

    Raises:
        DataError: the mask is not a PNG, or cannot be decoded.
    """
    with _explained(source, MASKS):
        try:
            return _upright(source, max_pixels, formats=MASKS).image
        except UnidentifiedImageError:
            if not is_jpeg(source):
                raise
            hint = "save masks as PNG when they are drawn; a JPEG that is converted to PNG keeps its wrong values"
            raise DataError("a mask must be lossless, and this one is a JPEG, which changes values", hint=hint) from None


def is_jpeg(source: Source) -> bool:
    """Return whether an encoded image begins as a JPEG does; raises `OSError` if its file cannot be opened."""
    if isinstance(source, np.ndarray | Image.Image):
        return False
    if isinstance(source, bytes):
        return source.startswith(JPEG)
    with regular_file(Path(source)) if isinstance(source, str | Path) else source.open() as file:
        return file.read(len(JPEG)) == JPEG


def decode_with_mode(source: Source, *, max_pixels: int = MAX_PIXELS) -> tuple[Image.Image, str, str | None]:
    """Decode an image to RGB; return it, Pillow's name of the stored colour mode, and the name of its colour profile.

    The name of the profile is None if there is no profile, or if it is sRGB.
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
    except Exception:  # damaged profiles raise many types of errors
        return "damaged"
    return None if "srgb" in name.lower() else name


def check_head(
    source: Source, *, least: int | None = None, max_pixels: int = MAX_PIXELS, formats: tuple[str, ...] | None = None
) -> int:
    """Check an image by its header, and return the number of pixels that `decode_reduced` would process with this ``least``.

    For a progressive JPEG this is the full number of pixels, at any size. ``formats`` are Pillow's names of the allowed formats,
    by default all that `decode` supports.

    Raises:
        DataError: the image has another format, a damaged header, or too many pixels.
    """
    with _explained(source, formats), _opened(source, formats) as image:
        _check_size(image, max_pixels)
        if "progressive" not in image.info:
            _reduce(source, image, least)
        return image.width * image.height


def upright_size(source: Source, *, max_pixels: int = MAX_PIXELS) -> tuple[int, int]:
    """Return width and height of the upright image, by its header; raises `DataError` as `check_head` does."""
    with _explained(source), _opened(source) as image:
        _check_size(image, max_pixels)
        turned = image.format != "TIFF" and _orientation(image) in TRANSPOSED  # Pillow applies a TIFF's orientation itself
        return (image.height, image.width) if turned else image.size


class _Silence:
    """A context that ignores Pillow's warnings and, unlike `warnings.catch_warnings`, may be entered by many threads at once."""

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
    """Convert any error inside the block to a `DataError` that names the file; ignore Pillow's warnings."""
    try:
        with _SILENCE:
            yield
    except DataError as error:
        raise UnreadableImageError(error.what, where=_name(source), hint=error.hint) from None
    except Exception as error:  # Pillow raises many types of errors for damaged files
        unknown = isinstance(error, UnidentifiedImageError)
        reason = "not an image of a known format" if unknown else str(error) or type(error).__name__
        hint = f"give a {', '.join(formats or (*FORMATS, 'HEIC'))} file, or remove it"
        raise UnreadableImageError(f"cannot read the image: {reason}", where=_name(source), hint=hint) from error


def _name(source: Source) -> object:
    if isinstance(source, bytes | Image.Image | np.ndarray):
        return "image"
    return source if isinstance(source, str | Path) else getattr(source, "name", type(source).__name__)


def _upright(source: Source, max_pixels: int, least: int | None = None, formats: tuple[str, ...] | None = None) -> Reduced:
    """Decode an image in its stored colour mode, and apply its EXIF orientation."""
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
        for name in EXIF if orientation in TURNS else ():  # `exif_transpose` rewrites all EXIF data, and fails at unusual values
            upright.info.pop(name, None)
        if orientation in TRANSPOSED:
            size, end = size[::-1], end[::-1]
        left = upright.width - end[0] if orientation in MIRRORED else 0.0
        top = upright.height - end[1] if orientation in UPSIDE_DOWN else 0.0
        return Reduced(upright, Whole(size, (left, top, left + end[0], top + end[1])))


def _orientation(image: Image.Image) -> int | None:
    try:
        return image.getexif().get(ExifTags.Base.Orientation)
    except Exception:  # damaged EXIF data raises many types of errors
        return None


def _reduce(source: Source, image: Image.Image, least: int | None) -> tuple[float, float] | None:
    """Set up a JPEG for decoding at a fraction of its size; return the right and bottom edge there, None for the full size."""
    if least is None or isinstance(source, Image.Image | np.ndarray):
        return None
    drafted = image.draft(None, (least, least))
    return None if drafted is None else (drafted[1][2], drafted[1][3])


@contextmanager
def _opened(source: Source, formats: tuple[str, ...] | None = None) -> Iterator[Image.Image]:
    """Open an image; its file stays open inside the block, since Pillow reads the pixels later."""
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
        what = f"an array of type {pixels.dtype} and shape {pixels.shape} is no image"
        raise DataError(what, hint="give uint8 of shape (H, W) or (H, W, 3)")
    if not pixels.size:
        raise DataError("the image has no pixels", hint="remove it")
    return Image.fromarray(pixels)


def _check_size(image: Image.Image, max_pixels: int) -> None:
    if not image.width * image.height:
        raise DataError("the image has no pixels", hint="remove it")
    if image.width * image.height > max_pixels:
        what = f"image of {image.width}×{image.height} pixels is over the limit of {max_pixels:,}"
        raise DataError(what, hint="resize the image")


def _check_used(image: Image.Image) -> None:
    """Refuse an image with 16 bits per colour that uses only the lower 12 bits: Pillow keeps the upper 8 bits."""
    colours = (image.getchannel(band) for band in image.getbands() if band != "A")
    brightest = max(cast(tuple[int, int], colour.getextrema())[1] for colour in colours)
    if 0 < brightest < 16:
        what = f"all 16-bit colour values are below {256 * (brightest + 1):,} of 65,535: the image would be nearly black"
        raise DataError(what, hint="scale its values, or save it with 8 bits per channel")


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
        what = "a HEIC image needs the extra heic: pip install 'vitrail[heic]'"
        raise DataError(what, hint="install it, or save the image as JPEG") from None
    register_heif_opener(thumbnails=False)
