"""``vitrail predict``."""

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from vitrail.cli.console import Whole, problem, result, result_json
from vitrail.errors import DataError


def predict(
    model: str,
    images: Annotated[list[str], Parameter(negative=())],
    /,
    *,
    top: Whole = 5,
    batch_size: Whole = 32,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Label images.

    An image that cannot be read is reported and left out; the exit code is then 3.

    Parameters
    ----------
    model
        A run folder, a model folder, a file of weights or a hub id.
    images
        Image files, folders and globs.
    top
        Labels per image.
    batch_size
        Images per batch.
    json
        One JSON document: a list of images with their predictions, best first.
    """
    import numpy as np

    from vitrail import api
    from vitrail.checks import require_positive
    from vitrail.cli.progress import counting
    from vitrail.data.sources import image_files
    from vitrail.weights.reference import open_model

    require_positive(**{"--top": top, "--batch-size": batch_size})
    trained = open_model(model)
    files = image_files(images)
    answers: list[tuple[Path, list[tuple[str, float]]]] = []
    unreadable: list[DataError] = []
    with counting("predicting") as progress:
        progress.start(len(files))
        for start in range(0, len(files), batch_size):
            readable, pixels = [], []
            for file in files[start : start + batch_size]:
                try:
                    pixels.append(trained.preparation.pixels(file))
                    readable.append(file)
                except DataError as error:
                    unreadable.append(error)
            if readable:
                answers += zip(readable, api.predict_pixels(trained, np.stack(pixels), top=top), strict=True)
            progress.advance(len(files[start : start + batch_size]))
    if json:
        result_json(
            [{"image": str(file), "predictions": [{"label": w, "score": s} for w, s in labels]} for file, labels in answers]
        )
    else:
        for file, labels in answers:
            result(f"{file}: " + ", ".join(f"{label} {100 * score:.1f} %" for label, score in labels))
    for failure in unreadable:
        problem(failure.what, failure.where, failure.hint)
    if unreadable:
        sys.exit(DataError.exit_code)
