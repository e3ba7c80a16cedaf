"""``vitrail embed``."""

from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from vitrail.cli.console import Whole, note, report_unreadable


def embed(
    model: str,
    images: Annotated[list[str], Parameter(negative=())],
    /,
    *,
    out: Path,
    batch_size: Whole = 32,
    precision: Literal["fp32", "bf16"] | None = None,
) -> None:
    """Write a vector for each image: what the model's head reads, or what a model without labels gives.

    An image that cannot be read is reported and left out; the exit code is then 3. An interrupted command writes the vectors that
    it has, to the same name with .partial behind it.

    Parameters
    ----------
    model
        A run folder, a model folder, a file of weights, a name of vitrail models --pretrained or a hub id.
    images
        Image files, folders and globs.
    out
        The file to write, which must not exist: .npz with the arrays images and vectors, or .parquet with the columns image
        and vector.
    batch_size
        Images per batch.
    precision
        fp32, the default, or bf16: about twice as fast on processors that have it.
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
