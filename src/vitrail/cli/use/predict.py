"""``vitrail predict``."""

import os
from pathlib import Path
from typing import Any

from vitrail.cli.console import Whole, note
from vitrail.cli.flags import Engine, Images, ModelOrExported, Precision, Smoothing
from vitrail.cli.use.answers import require_free_outputs, write_predictions
from vitrail.errors import ConfigError

MANY = 1000
"""Boxes that a file of them is taken to have before it is read."""


def predict(
    model: ModelOrExported,
    images: Images,
    /,
    *,
    top: Whole | None = None,
    batch_size: Whole = 32,
    precision: Precision = None,
    engine: Engine = "auto",
    labels: str | None = None,
    template: str | None = None,
    csv: Path | None = None,
    sort_into: Path | None = None,
    boxes: Path | None = None,
    mirror: bool = False,
    reject: bool = False,
    smoothing: Smoothing = None,
    pictures: Path | None = None,
    json: bool = False,
) -> None:
    """Label images, or find the joints of the people in them.

    A model that may give an image several labels, or none, tells those whose probabilities reach the thresholds that its
    training has chosen; without any, one half.

    An image that cannot be read is reported and left out; the exit code is then 3. Answers are written as they come: what an
    interrupted command leaves of a file or folder keeps .partial behind its name. Under torchrun each process labels its share of
    the images, and the first prints all answers in order.

    Parameters
    ----------
    top
        Labels per image. Default: 5, or of a model that may give several those that it tells.
    batch_size
        Images per batch; of a model that finds joints, boxes.
    labels
        Of a CLIP, with its model of texts: the labels to choose from, in words, with commas between them: "a cat, a dog"; or a
        file with one in each line.
    template
        Makes a sentence of each label: "a photo of a {}".
    csv
        A file to write: a row for each image with its label, the score, and the labels that follow; or with all accepted
        labels; of a model that finds joints, a row for each person. It must not exist.
    sort_into
        A folder to write, which must not exist: each image is copied to FOLDER/LABEL, one of several labels into each, one of
        none to FOLDER/none. Nothing is moved.
    boxes
        Of a model that finds joints: a file of the boxes to look for people in, in COCO's format for results of detection or for
        annotations, or a table: image,left,top,width,height. Without it an image is one person.
    mirror
        Take the mean of the answers to an image, or a box, and to its mirror image, for twice the time. A box that is looked at
        in eight turns has no use for it.
    reject
        Say "none of these" of an image whose surest label is less probable than that of 95 % of the validation images of the
        training. It finds some of the images that are none of the labels, not all: see docs/deploy.md.
    pictures
        Of such a model: a folder to write, which must not exist, with each image, the skeletons that were found, and
        their boxes and numbers.
    json
        One JSON document: a list of images with their predictions, best first, and with the accepted labels
        where there may be several; or of people with their joints, as COCO's results of keypoints have them.
    """
    from vitrail.checks import require_positive
    from vitrail.files import path_of
    from vitrail.weights.locate import require_possible

    require_possible(model)  # all of these before torch is imported
    require_positive(**{"--top": 1 if top is None else top, "--batch-size": batch_size})
    words = None if labels is None else _labels(labels)
    if words is None and template is not None:
        raise ConfigError("a template is for labels in words", where="--template", hint='add --labels "a cat, a dog"')
    if words is not None and engine != "auto":
        raise ConfigError("labels in words need a CLIP, which no engine runs", where="--engine", hint="leave it out")
    table, sorted_to, drawn_to = (path and path_of(path) for path in (csv, sort_into, pictures))
    require_free_outputs(table, sort_into=sorted_to, pictures=drawn_to)
    options = {
        "top": top, "reject": reject or None, "sort_into": sorted_to, "mirror": mirror or None, "boxes": boxes,
        "smoothing": smoothing, "pictures": drawn_to,
    }  # fmt: skip
    from vitrail.cli.ship.calibration import measure_before
    from vitrail.data.readers.sources import image_files
    from vitrail.deploy.export.artefact import graph_of
    from vitrail.deploy.predict import open_predictor
    from vitrail.runtime.processes import open_processes
    from vitrail.task_registry import task_row
    from vitrail.tasks.classification.zero_shot import zero_shot
    from vitrail.tasks.options import read_options
    from vitrail.weights.reference import open_model

    with open_processes() as group:
        with group.together():
            if words is not None:
                opened: Any = zero_shot(model, words, template=template or "{}", precision=precision)
            else:
                opened = model if graph_of(model) is not None else open_model(model)
            files = image_files(images, note)
            most = len(files) if boxes is None else MANY
            measure_before(model, most)
            predictor = open_predictor(opened, None if words else precision, engine=engine, images=most, group=group)
            asked = read_options(task_row(predictor.task), "predictor", options, model)
            predictor = predictor.configured(asked)
            sources = predictor.sources(files, note)
        how: dict[str, Any] = {"batch_size": batch_size, "table": table, "json": json, "group": group}
        write_predictions(predictor, files, sources, what="predicting", **how)


def _labels(given: str) -> list[str]:
    """Read the lines of a file, or words between commas."""
    from vitrail.files import is_text, path_of, read_lines
    from vitrail.plain_text import clean

    file = path_of(given)
    if not os.path.exists(file):
        if not is_text(given):
            raise ConfigError(f"{given!r} is not in UTF-8", where="--labels", hint="give them in UTF-8")
        return list(map(clean, given.split(",")))
    try:
        return read_lines(file)
    except OSError as error:
        raise ConfigError(f"{file.name} cannot be read: {error.strerror}", where="--labels", hint="give a text file") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file.name} is not in UTF-8", where="--labels", hint="save it as text in UTF-8") from None
