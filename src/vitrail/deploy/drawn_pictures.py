"""Images written with their predictions drawn into them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from vitrail.data.images.decode import decode
from vitrail.files import whole_folder
from vitrail.runtime.output import free_name, report_partial
from vitrail.runtime.terminal import note
from vitrail.tasks.answer import Answer


@contextmanager
def drawn_pictures(out: Path, called: str) -> Iterator[Callable[[tuple[Path, Answer]], None]]:
    """Yield a function that writes an image, upright and with its prediction drawn, to ``out/name.png``.

    A second image of the same name becomes ``name (2).png``. The folder has the name `partial_of` ``out`` until all images are
    drawn, and keeps it on an error. A line on stderr states their number.

    Args:
        out: the folder to write, which must not exist.
        called: the word for the images in the line on stderr.
    """
    used = set[str]()
    try:
        with whole_folder(out, replace=False, keep=True) as draft:

            def write(answered: tuple[Path, Answer]) -> None:
                file, answer = answered
                answer.draw(decode(file)).save(draft / free_name(f"{file.stem}.png", used))

            yield write
    except BaseException:
        report_partial(out, f"{len(used):,} {called}")
        raise
    note(f"{len(used):,} {called}: {out}")
