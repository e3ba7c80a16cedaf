"""``vitrail translate``."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from vitrail.cli.console import Whole, note, printed
from vitrail.cli.use.answers import Answers
from vitrail.errors import ConfigError, DataError
from vitrail.files import partial_of, path_of, regular_file, whole_file, write_json
from vitrail.runtime.output import report_partial, require_free_file

if TYPE_CHECKING:
    from vitrail.tasks.translation.predictor import Translated

WINDOW = 512
"""Number of lines that are translated together; on a terminal each line is translated at once."""
DRAWN = 16
"""Number of sentences in a plot of attention."""


def translate(
    model: str,
    texts: Path | None = None,
    /,
    *,
    beam: Whole = 5,
    json: bool = False,
    attention: Path | None = None,
) -> None:
    """Translate the lines of a file, or of standard input: vitrail translate RUN sentences.txt > translations.txt

    Parameters
    ----------
    model
        A run folder or a model folder.
    texts
        A file in UTF-8 with a text on each line. Default: standard input.
    beam
        Number of beams of the beam search; 1 takes the most probable token at each step, which is the fastest.
    json
        One JSON document: a list of objects with source, translation and score (the logarithm of the translation's probability).
    attention
        A file to write, which must not exist: .png with a plot of the first sentences, or .json with all values: the attention
        of each target token to each source token.
    """
    from vitrail.checks import require_at_most, require_positive
    from vitrail.plain_text import is_odd
    from vitrail.weights.locate import require_possible

    require_possible(model)  # before torch is imported
    require_positive(**{"--beam": beam})
    drawing = attention and path_of(attention)
    if drawing is not None:
        if drawing.suffix.lower() not in (".png", ".json"):
            what = f"{drawing.name} is neither a PNG nor a JSON file"
            raise ConfigError(what, where="--attention", hint="give a name that ends with .png or .json")
        require_free_file(drawing, where="--attention", growing=True)
    from vitrail.cli.progress import counting
    from vitrail.tasks.translation.predictor import MOST_BEAMS, Translator

    require_at_most("--beam", beam, MOST_BEAMS)
    translator = Translator(model, beams=beam)
    scores, looks = json or drawing is not None, drawing is not None
    odd = 0
    with counting("translating", "lines") as progress, Answers() as answers:
        answers.to(printed(json=json), lambda one: [one.to_json() if json else one.text])
        if drawing is not None:
            answers.to(_drawn(drawing), lambda one: [one])
        for lines in _windows(texts and path_of(texts), translator.tokenizer.language_code):
            odd += sum(map(is_odd, lines))
            for one in translator.translate(lines, attention=looks, scores=scores, on_done=progress.advance):
                answers.add(one)
    if odd:
        note(f"lines cleaned of invisible characters or odd blanks: {odd:,}")


def _windows(file: Path | None, language_code: Callable[[str], str]) -> Iterator[list[str]]:
    """Yield the lines of a file, or of standard input, several at a time.

    Raises:
        DataError: the file cannot be read, or a line is not in UTF-8 or names a language that the model does not know.
    """
    before = "all earlier windows of lines are translated"
    with _lines(file) as lines:
        window, most = [], 1 if file is None and sys.stdin.isatty() else WINDOW
        for number, line in enumerate(lines, 1):
            where = f"{file or 'standard input'}, line {number}"
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                language_code(text.strip())
            except UnicodeDecodeError:
                raise DataError("the line is not in UTF-8", where=where, hint=f"save it in UTF-8; {before}") from None
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
    """Open the file, or standard input, as lines; raises `DataError` for an unreadable file, `ConfigError` without stdin."""
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


@contextmanager
def _drawn(file: Path) -> "Iterator[Callable[[Translated], None]]":
    """Collect translations, and at the end write their attention to a file; after an error, to `partial_of` the file."""
    found: list[Translated] = []
    try:
        yield found.append
        _draw(file, file, found)
    except BaseException:
        if any(one.alignments for one in found):
            _draw(file, partial_of(file), found)
            report_partial(file, "the attention of what is translated")
        raise


def _draw(file: Path, to: Path, found: "Sequence[Translated]") -> None:
    aligned = [alignment for one in found for alignment in one.alignments]
    if not aligned:
        hint = "leave --attention out"
        raise ConfigError("there is no attention: the model has none, or there was no text", where="--attention", hint=hint)
    if file.suffix.lower() == ".json":
        write_json(to, [one.to_json() for one in found])
        return
    from vitrail.study.maps.token_alignment import alignment_maps
    from vitrail.study.page.figures import save

    with whole_file(to) as draft:
        save(alignment_maps(aligned[:DRAWN]), draft)
