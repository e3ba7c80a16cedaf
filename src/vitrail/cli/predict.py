"""``vitrail predict``."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from vitrail.cli.console import Whole, problem, result, result_json
from vitrail.errors import DataError

Answer = tuple[Path, list[tuple[str, float]]]


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

    An image that cannot be read is reported and left out; the exit code is then 3. Under torchrun each process labels its
    share of the images, and the first prints all answers in order.

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
    from vitrail import api
    from vitrail.checks import require_positive
    from vitrail.cli.progress import counting
    from vitrail.data.sources import image_files
    from vitrail.training.processes import open_processes
    from vitrail.weights.reference import open_model

    require_positive(**{"--top": top, "--batch-size": batch_size})
    with open_processes() as group:
        with group.together():
            trained, files = open_model(model), image_files(images)
        with counting("predicting") as progress:
            progress.start(len(files))
            own = group.part(files)
            found = []
            for start in range(0, len(own), batch_size):
                part = own[start : start + batch_size]
                found.append(_answers(api, trained, part, top))
                progress.advance(len(part) * group.count)
        shares = group.gathered(found)
    answers = [answer for share in shares for batch, _ in share for answer in batch]
    unreadable = [error for share in shares for _, errors in share for error in errors]
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


def _answers(api: Any, trained: Any, files: Sequence[Path], top: int) -> tuple[list[Answer], list[DataError]]:
    """Files with their labels, and what is wrong with those that cannot be read."""
    import numpy as np

    readable, pixels, unreadable = [], [], []
    for file in files:
        try:
            pixels.append(trained.preparation.pixels(file))
            readable.append(file)
        except DataError as error:
            unreadable.append(error)
    answers = api.predict_pixels(trained, np.stack(pixels), top=top) if readable else []
    return list(zip(readable, answers, strict=True)), unreadable
