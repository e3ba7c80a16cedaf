"""``vitrail translate``."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from vitrail.cli.console import Whole, note, result, result_json
from vitrail.errors import ConfigError, DataError

if TYPE_CHECKING:
    from vitrail.deploy.translate import Translated

WINDOW = 512
"""Lines that are read before they are translated together; on a terminal each line is answered at once."""
DRAWN = 16
"""Sentences on a picture of attention."""


def translate(
    model: str,
    *,
    beam: Whole = 5,
    json: Annotated[bool, Parameter(negative=())] = False,
    attention: Path | None = None,
) -> None:
    """Translate standard input, a line for each line: vitrail translate RUN < sentences.txt > translations.txt

    Parameters
    ----------
    model
        A run folder or a model folder.
    beam
        Translations that are followed side by side; 1 takes the likeliest token each time, which is the fastest.
    json
        One JSON document: a list of objects with source, translation and score, the logarithm of its probability.
    attention
        A file to write, which must not exist: .png with a picture for each of the first sentences, or .json with all numbers:
        how much each token that was written looked at each that was read.
    """
    from vitrail.checks import require_at_most, require_positive
    from vitrail.files import path_of
    from vitrail.plain_text import is_odd
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
    told, odd = json or drawing is not None, 0
    with counting("translating", "lines") as progress:
        for lines in _windows():
            odd += sum(map(is_odd, lines))
            done = translator.translate(
                lines, attention=drawing is not None, scores=json or drawing is not None, on_done=progress.advance
            )
            if not json:
                for one in done:
                    result(one.text)
            if told:
                found += done
    if odd:
        note(f"lines cleaned of invisible characters or odd blanks: {odd:,}")
    if json:
        result_json([one.to_dict() for one in found])
    if drawing is not None:
        _draw(drawing, found)


def _windows() -> Iterator[list[str]]:
    """The lines of standard input, several at a time; raises `DataError` for one that is not in UTF-8."""
    if sys.stdin is None:
        raise ConfigError("there is no standard input", where="translate", hint="give it lines: < sentences.txt")
    window, most = [], 1 if sys.stdin.isatty() else WINDOW
    for number, line in enumerate(sys.stdin.buffer, 1):
        try:
            window.append(line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n"))
        except UnicodeDecodeError:
            hint = "save it in UTF-8; what stands before this window of lines is translated"
            raise DataError("a line is not in UTF-8", where=f"standard input, line {number}", hint=hint) from None
        if len(window) >= most:
            yield window
            window = []
    if window:
        yield window


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
