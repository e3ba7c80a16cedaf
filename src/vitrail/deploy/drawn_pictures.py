"""Images written with their predictions drawn into them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image

from vitrail.data.images.decode import decode
from vitrail.files import whole_folder
from vitrail.runtime.output import free_name, report_partial
from vitrail.runtime.terminal import note
from vitrail.tasks.answer import Answer

ImageOf = Callable[[Path, Any], Image.Image]
"""A function from a file and its prediction to the image to write."""


def drawn(file: Path, answer: Answer) -> Image.Image:
    """Return an image, upright and with its prediction drawn."""
    return answer.draw(decode(file))


@contextmanager
def drawn_pictures(out: Path, called: str, image_of: ImageOf = drawn) -> Iterator[Callable[[tuple[Path, Answer]], None]]:
    """Yield a function that writes the image of a prediction to ``out/name.png``.

    A second image of the same name becomes ``name (2).png``. The folder has the name `partial_of` ``out`` until all images are
    drawn, and keeps it on an error. A line on stderr states their number.

    Args:
        out: the folder to write, which must not exist.
        called: the word for the images in the line on stderr.
        image_of: makes the image; by default `drawn`.
    """
    used = set[str]()
    try:
        with whole_folder(out, replace=False, keep=True) as draft:

            def write(answered: tuple[Path, Answer]) -> None:
                file, answer = answered
                image_of(file, answer).save(draft / free_name(f"{file.stem}.png", used))

            yield write
    except BaseException:
        report_partial(out, f"{len(used):,} {called}")
        raise
    note(f"{len(used):,} {called}: {out}")
