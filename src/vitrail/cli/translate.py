"""``vitrail translate``."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

from cyclopts import Parameter

from vitrail.cli.console import Whole, result, result_json
from vitrail.errors import ConfigError, DataError
from vitrail.files import path_of, regular_file

if TYPE_CHECKING:
    from vitrail.deploy.translate import Translated

WINDOW = 512
"""Lines that are read before they are translated together; on a terminal each line is answered at once."""
DRAWN = 16
"""Sentences on a picture of attention."""


def translate(
    model: str,
    texts: Path | None = None,
    /,
    *,
    beam: Whole = 5,
    json: Annotated[bool, Parameter(negative=())] = False,
    attention: Path | None = None,
) -> None:
    """Translate the lines of a file, or of standard input: vitrail translate RUN sentences.txt > translations.txt

    Parameters
    ----------
    model
        A run folder or a model folder.
    texts
        A file in UTF-8, a text in each line. Default: standard input.
    beam
        Translations that are followed side by side; 1 takes the likeliest token each time, which is the fastest.
    json
        One JSON document: a list of objects with source, translation and score, the logarithm of its probability.
    attention
        A file to write, which must not exist: .png with a picture for each of the first sentences, or .json with all numbers:
        how much each token that was written looked at each that was read.
    """
    from vitrail.checks import require_at_most, require_positive
    from vitrail.runtime.output import require_free_file
    from vitrail.weights.locate import require_possible

    require_possible(model)  # before torch is imported
    require_positive(**{"--beam": beam})
    drawing = attention and path_of(attention)
    if drawing is not None:
        if drawing.suffix.lower() not in (".png", ".json"):
            what = f"{drawing.name} is neither a picture nor JSON"
            raise ConfigError(what, where="--attention", hint="end it with .png or .json")
        require_free_file(drawing, where="--attention")
    from vitrail.cli.progress import counting
    from vitrail.deploy.translate import MOST_BEAMS, Translator

    require_at_most("--beam", beam, MOST_BEAMS)
    translator = Translator(model, beams=beam)
    found: list[Translated] = []
    told = json or drawing is not None
    with counting("translating", "lines") as progress:
        for lines in _windows(texts and path_of(texts), translator.tokenizer.language_code):
            done = translator.translate(
                lines, attention=drawing is not None, scores=json or drawing is not None, on_done=progress.advance
            )
            if not json:
                for one in done:
                    result(one.text)
            if told:
                found += done
    if json:
        result_json([one.to_dict() for one in found])
    if drawing is not None:
        _draw(drawing, found)


def _windows(file: Path | None, language_code: Callable[[str], str]) -> Iterator[list[str]]:
    """Yield the lines of a file, or of standard input, several at a time.

    Raises:
        DataError: the file cannot be read, or a line is not in UTF-8 or names a language that the model has not.
    """
    before = "what stands before this window of lines is translated"
    with _lines(file) as lines:
        window, most = [], 1 if file is None and sys.stdin.isatty() else WINDOW
        for number, line in enumerate(lines, 1):
            where = f"{file or 'standard input'}, line {number}"
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                language_code(text.strip())
            except UnicodeDecodeError:
                raise DataError("a line is not in UTF-8", where=where, hint=f"save it in UTF-8; {before}") from None
            except DataError as error:
                raise DataError(error.what, where=where, hint=f"{error.hint}; {before}") from None
            window.append(text)
            if len(window) >= most:
                yield window
                window = []
        if window:
            yield window


@contextmanager
def _lines(file: Path | None) -> Iterator[BinaryIO]:
    """Open what is translated; raises `DataError` for a file that cannot be read, `ConfigError` without standard input."""
    if file is None:
        if sys.stdin is None:
            raise ConfigError("there is no standard input", where="translate", hint="give a file of lines, or < sentences.txt")
        yield sys.stdin.buffer
        return
    with ExitStack() as opened:
        try:
            lines = opened.enter_context(regular_file(file))
        except OSError as error:
            hint = "give a text file, or give the lines on standard input: < FILE"
            raise DataError(f"the file cannot be read: {error.strerror}", where=file, hint=hint) from None
        yield lines


def _draw(file: Path, found: "Sequence[Translated]") -> None:
    """Where the model looked, as a picture of the first sentences or as JSON of all."""
    from vitrail.files import whole_file, write_json

    aligned = [alignment for one in found for alignment in one.alignments]
    if not aligned:
        hint = "leave --attention out"
        raise ConfigError("there is no attention: the model has none, or there was no text", where="--attention", hint=hint)
    if file.suffix.lower() == ".json":
        write_json(file, [one.to_dict() for one in found])
        return
    from vitrail.study.alignments import alignment_maps
    from vitrail.study.figures import save

    with whole_file(file) as draft:
        save(alignment_maps(aligned[:DRAWN]), draft)
