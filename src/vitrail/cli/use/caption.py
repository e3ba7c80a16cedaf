"""``vitrail caption``."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from vitrail.cli.console import Whole, note, printed, report_unreadable
from vitrail.cli.use.answers import Answers
from vitrail.errors import ConfigError
from vitrail.runtime.terminal import one_line

if TYPE_CHECKING:
    from vitrail.tasks.captioning.predict import Writer
    from vitrail.tasks.captioning.words import Caption


def caption(
    model: str,
    images: Annotated[list[str], Parameter(negative=())],
    /,
    *,
    beam: Whole = 3,
    samples: Whole = 0,
    no_repeat: Whole = 2,
    max_length: Whole = 64,
    batch_size: Whole = 16,
    precision: Literal["fp32", "bf16"] = "fp32",
    csv: Path | None = None,
    attention: Path | None = None,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Write a sentence about each image: vitrail caption RUN photos/*.jpg

    An image that cannot be read is reported and left out; the exit code is then 3. Captions are written as they come: the table
    of an interrupted command keeps .partial behind its name.

    Parameters
    ----------
    model
        A run folder or a model folder, of a run with --task caption.
    images
        Image files, folders and globs.
    beam
        Captions that are followed side by side; 1 takes the likeliest token each time, which is the fastest.
    samples
        Captions that are drawn from the model for each image: of the beams the one most like them is taken. 32 beside
        --beam 10 make better captions, in about ten times the time; 0 takes the likeliest beam.
    no_repeat
        So many tokens in a row are written once in a caption; 0 for no such rule.
    max_length
        Tokens of a caption, at most; a model that has learned longer ones (task.max_length) can write them.
    batch_size
        Images per batch.
    precision
        fp32, or bf16 for what looks at the images: quicker on processors that have it, exact to two or three digits.
    csv
        A file to write, which must not exist: a row for each image with its caption and its score, as --json has them.
    attention
        A folder to write, which must not exist: for each image a picture that shows where the model looked for each word, and
        index.html with all of them.
    json
        One JSON document: a list of objects with image, caption, score, the logarithm of its probability, and words, each with
        its probability behind those before it.
    """
    from vitrail.checks import refuse_given, require_at_most, require_not_negative, require_positive
    from vitrail.files import path_of
    from vitrail.runtime.output import require_free, require_free_file, require_outside
    from vitrail.weights.locate import require_possible

    require_possible(model)  # all of these before torch is imported
    require_positive(**{"--beam": beam, "--batch-size": batch_size, "--max-length": max_length})
    require_not_negative(**{"--no-repeat": no_repeat, "--samples": samples})
    refuse_given("samples choose among several beams, and --beam is 1", {"--samples": beam == 1 and samples > 0})
    folder, table = attention and path_of(attention), csv and path_of(csv)
    if folder is not None:
        require_free(folder, where="--attention")
    if table is not None:
        require_free_file(table, where="--csv", growing=True)
    if table is not None and folder is not None:
        require_outside(table, folder, where="--csv")
    from vitrail.cli.progress import counting
    from vitrail.data.readers.sources import image_files
    from vitrail.tasks.answer_table import growing_table
    from vitrail.tasks.captioning.predict import MOST_BEAMS, MOST_SAMPLES, Writer, captions_each

    require_at_most("--beam", beam, MOST_BEAMS)
    require_at_most("--samples", samples, MOST_SAMPLES)
    files = image_files(images, note)
    options = {"beams": beam, "samples": samples, "no_repeat": no_repeat, "max_length": max_length}
    writer = Writer(model, **options, precision=precision)
    if folder is not None and not writer.attends:
        hint = "leave --attention out"
        raise ConfigError("the model has no attention: nobody can say where it looked", where="--attention", hint=hint)
    with counting("writing") as progress, Answers() as answers:
        answers.to(printed(json=json), _entries if json else _lines)
        if table is not None:
            rows = growing_table(table, ["image", "caption", "score"])
            answers.to(rows, lambda file, one: [[str(file), one.text, f"{one.score:.4f}"]])
        if folder is not None:
            answers.to(_drawn(folder, writer), lambda *answered: [answered])
        progress.start(len(files))
        batches = captions_each(writer, files, batch_size=batch_size, attention=folder is not None)
        unreadable = answers.add_each(files, batches, progress.advance)
    report_unreadable(unreadable)


def _entries(file: Path, one: "Caption") -> Iterator[dict[str, Any]]:
    """Yield the entry of an image in the JSON document."""
    yield one.to_json(str(file))


def _lines(file: Path, one: "Caption") -> Iterator[str]:
    """Yield the line of an image; a caption may have a line break in it."""
    yield f"{one_line(file)}: {' '.join(one.text.split())}"


@contextmanager
def _drawn(folder: Path, writer: "Writer") -> "Iterator[Callable[[tuple[Path, Caption]], None]]":
    """Write a picture for each image, and a page with all of them, at the end."""
    from vitrail.files import whole_folder
    from vitrail.tasks.captioning.caption_attention import write_looks

    found: list[tuple[Path, Caption]] = []
    yield found.append
    told = [
        (file, caption.text, [(word.text, word.look) for word in caption.words if word.look is not None])
        for file, caption in found
    ]
    with whole_folder(folder, replace=False) as draft:
        write_looks(draft, writer.trained, told)
