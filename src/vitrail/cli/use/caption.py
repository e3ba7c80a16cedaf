"""``vitrail caption``."""

from pathlib import Path
from typing import Any, Literal

from vitrail.cli.console import Whole, note
from vitrail.cli.flags import BatchSize, Images
from vitrail.cli.use.answers import require_free_outputs, write_predictions


def caption(
    model: str,
    images: Images,
    /,
    *,
    beam: Whole = 3,
    samples: Whole = 0,
    no_repeat: Whole = 2,
    max_length: Whole = 64,
    batch_size: BatchSize = 16,
    precision: Literal["fp32", "bf16"] = "fp32",
    csv: Path | None = None,
    attention: Path | None = None,
    json: bool = False,
) -> None:
    """Write a caption for each image: vitrail caption RUN photos/*.jpg

    An image that cannot be read is reported and left out; the exit code is then 3. Captions are written as they are computed; an
    interrupted command leaves its table with the suffix .partial.

    Parameters
    ----------
    model
        The run folder or model folder of a run with --task caption.
    beam
        Number of beams of the beam search; 1 takes the most probable token at each step, which is the fastest.
    samples
        Number of captions sampled for each image; the beam most similar to all samples is taken. 32 with --beam 10 gives better
        captions, in about ten times the time; 0 takes the most probable beam.
    no_repeat
        Length of token sequences that may occur only once in a caption; 0 for no limit.
    max_length
        Largest number of tokens of a caption. A model that was trained on longer captions (task.max_length) can write more.
    precision
        fp32, or bf16 for the image encoder: faster on processors that support it, exact to two or three digits.
    csv
        A file to write, which must not exist: a row for each image with its caption and score.
    attention
        A folder to write, which must not exist: for each image a plot of the attention for each word, and index.html with all
        plots.
    json
        One JSON document: a list of objects with image, caption, score (the logarithm of the caption's probability), and words,
        each with its probability given the words before it.
    """
    from vitrail.checks import refuse_given, require_at_most, require_not_negative, require_positive
    from vitrail.files import path_of
    from vitrail.weights.locate import require_possible

    require_possible(model)  # report mistakes before torch is imported
    require_positive(**{"--beam": beam, "--batch-size": batch_size, "--max-length": max_length})
    require_not_negative(**{"--no-repeat": no_repeat, "--samples": samples})
    refuse_given("--samples chooses among several beams, but --beam is 1", {"--samples": beam == 1 and samples > 0})
    table, folder = csv and path_of(csv), attention and path_of(attention)
    require_free_outputs(table, attention=folder)
    from vitrail.data.readers.sources import image_files
    from vitrail.runtime.processes import ALONE
    from vitrail.tasks.captioning.predictor import MOST_BEAMS, MOST_SAMPLES, Writer

    require_at_most("--beam", beam, MOST_BEAMS)
    require_at_most("--samples", samples, MOST_SAMPLES)
    files = image_files(images, note)
    options = {"beams": beam, "samples": samples, "no_repeat": no_repeat, "max_length": max_length}
    writer = Writer(model, **options, precision=precision, looks=folder)
    how: dict[str, Any] = {"batch_size": batch_size, "table": table, "json": json, "group": ALONE}
    write_predictions(writer, files, files, what="writing", **how)
