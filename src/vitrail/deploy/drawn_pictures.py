"""Pictures written with what is predicted in them."""

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
    """Write every picture upright with its prediction as ``out/name.png``, the second of one name as ``name (2).png``.

    The folder is called `partial_of` its name until all are drawn, and stays so if anything fails. A line on stderr counts them.

    Args:
        out: must not exist.
        called: the name of such pictures, in the line.
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
