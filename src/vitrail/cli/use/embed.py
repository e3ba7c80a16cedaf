"""``vitrail embed``."""

from pathlib import Path
from typing import Any

from vitrail.cli.console import note, report_unreadable
from vitrail.cli.flags import BatchSize, Images, Model, Precision


def embed(
    model: Model,
    images: Images,
    /,
    *,
    out: Path,
    batch_size: BatchSize = 32,
    precision: Precision = None,
) -> None:
    """Write a vector for each image: the input of the model's head, or the output of a model without labels.

    An image that cannot be read is reported and left out; the exit code is then 3. An interrupted command writes the vectors
    computed so far to a file with the suffix .partial.

    Parameters
    ----------
    out
        The file to write, which must not exist: .npz with the arrays images and vectors, or .parquet with the columns image
        and vector.
    """
    from vitrail.checks import require_positive
    from vitrail.deploy.vector_files import growing_vectors, require_suffix
    from vitrail.files import path_of
    from vitrail.runtime.output import require_free_file
    from vitrail.weights.locate import require_possible

    file = path_of(out)
    require_possible(model)  # before torch is imported
    require_free_file(file, where="--out", growing=True)
    require_suffix(file)
    require_positive(**{"--batch-size": batch_size})
    from vitrail.cli.progress import counting
    from vitrail.cli.ship.calibration import measure_before
    from vitrail.data.readers.sources import image_files
    from vitrail.deploy.embed import embed_files

    files = image_files(images, note)
    measure_before(model, len(files))
    with growing_vectors(file, len(files)) as vectors, counting("embedding") as progress:
        progress.begin("embedding", len(files))
        options: dict[str, Any] = {"batch_size": batch_size, "precision": precision, "on_batch": progress.advance}
        failures = embed_files(model, files, vectors, **options)
    note(f"{len(vectors.images):,} vectors of {vectors.table.shape[1]:,} numbers: {file}")
    report_unreadable(failures)
