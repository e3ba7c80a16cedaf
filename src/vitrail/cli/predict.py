"""``vitrail predict``."""

import sys
from typing import Annotated, Literal

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
    precision: Literal["fp32", "bf16"] | None = None,
    engine: Literal["auto", "torch", "onnxruntime", "openvino"] = "auto",
    json: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Label images.

    An image that cannot be read is reported and left out; the exit code is then 3. Under torchrun each process labels its
    share of the images, and the first prints all answers in order.

    Parameters
    ----------
    model
        A run folder, a model folder, an exported model, a file of weights, a hub id or a name of vitrail models --pretrained.
    images
        Image files, folders and globs.
    top
        Labels per image.
    batch_size
        Images per batch.
    precision
        fp32, or bf16: about twice as fast on processors that have it, exact to two or three digits. Default: fp32; an exported
        model has its own.
    engine
        What runs an exported model; auto takes the quicker one.
    json
        One JSON document: a list of images with their predictions, best first.
    """
    from vitrail.weights.locate import require_possible

    require_possible(model)  # before torch is imported
    from vitrail.checks import require_positive
    from vitrail.cli.progress import counting
    from vitrail.data.sources import image_files
    from vitrail.deploy.artefact import graph_of
    from vitrail.deploy.predict import open_predictor, predict_each
    from vitrail.runtime.processes import open_processes
    from vitrail.weights.reference import open_model

    require_positive(**{"--top": top, "--batch-size": batch_size})
    with open_processes() as group:
        with group.together():
            found = model if graph_of(model) is not None else open_model(model)
            files = image_files(images)
            predictor = open_predictor(found, precision, engine=engine, images=len(files))
        with counting("predicting") as progress:
            progress.start(len(files))
            labelled = []
            for answers in predict_each(predictor, group.part(files), top=top, batch_size=batch_size):
                labelled += answers
                progress.advance(len(answers) * group.count)
        answered = zip(files, (answer for share in group.all_gather(labelled) for answer in share), strict=True)
    readable, unreadable = [], []
    for file, answer in answered:
        if isinstance(answer, DataError):
            unreadable.append(answer)
        else:
            readable.append((file, answer))
    if json:
        result_json(
            [{"image": str(file), "predictions": [{"label": w, "score": s} for w, s in labels]} for file, labels in readable]
        )
    else:
        for file, labels in readable:
            result(f"{file}: " + ", ".join(f"{label} {100 * score:.1f} %" for label, score in labels))
    for failure in unreadable:
        problem(failure.what, failure.where, failure.hint)
    if unreadable:
        sys.exit(DataError.exit_code)
