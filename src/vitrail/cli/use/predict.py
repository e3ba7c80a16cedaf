"""``vitrail predict``."""

import os
from pathlib import Path
from typing import Any

from vitrail.cli.console import Whole, note
from vitrail.cli.flags import Engine, Images, ModelOrExported, Overlap, Precision, Smoothing, Window
from vitrail.cli.use.answers import require_free_outputs, write_predictions
from vitrail.errors import ConfigError

MANY = 1000
"""Number of boxes that is assumed before the file of boxes is read."""


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
    window: Window = None,
    overlap: Overlap = None,
    masks: Path | None = None,
    pictures: Path | None = None,
    json: bool = False,
) -> None:
    """Predict the labels of images, the joints of the people in them, or the class of every pixel.

    A multi-label model returns the labels whose probabilities reach the thresholds chosen in training; without thresholds, 0.5.

    An image that cannot be read is reported and left out; the exit code is then 3. Predictions are written as they are computed;
    an interrupted command leaves its files and folders with the suffix .partial. Under torchrun the processes share the images,
    and the first prints all predictions in order.

    Parameters
    ----------
    top
        Number of labels per image. Default: 5; for a multi-label model the accepted labels.
    batch_size
        Images per batch; for pose models boxes.
    labels
        For CLIP models with their text encoder: the labels to choose from, separated by commas: "a cat, a dog"; or a file with a
        label on each line.
    template
        A sentence for each label: "a photo of a {}".
    csv
        A file to write, which must not exist: a row for each image with its label, the score, and the next labels; for a
        multi-label model with all accepted labels; for a pose model a row for each person; for a segmenter a row for each class
        in an image, with its pixels and its fraction of the image.
    sort_into
        A folder to write, which must not exist: each image is copied to FOLDER/LABEL. An image with several labels is copied to
        each; an image without labels to FOLDER/none. No image is moved.
    boxes
        For pose models: a file of person boxes, in COCO's format for detections or annotations, or a table:
        image,left,top,width,height. Without it each image counts as one person.
    mirror
        Average the predictions for an image, or a box, and its mirror image, in twice the time. It has no effect for pose models
        that evaluate a box in eight rotations.
    reject
        Print "none of these" for an image whose most probable label has a lower probability than that of 95 % of the validation
        images in training. This finds some, not all, of the images that show none of the classes: see docs/deploy.md.
    masks
        For segmenters: a folder to write, which must not exist, with the mask of each image: an indexed PNG with the colours of
        the classes.
    pictures
        A folder to write, which must not exist: for pose models with each image and the predicted skeletons, boxes and numbers;
        for segmenters with each image and the colours of the classes over it.
    json
        One JSON document: a list of images with their predictions, best first, and for a multi-label model with the accepted
        labels; for a pose model a list of people with their joints, in COCO's format for keypoint results; for a segmenter a
        list of the classes in each image with their pixels and fractions.
    """
    from vitrail.checks import require_positive
    from vitrail.files import path_of
    from vitrail.weights.locate import require_possible

    require_possible(model)  # report mistakes before torch is imported
    require_positive(**{"--top": 1 if top is None else top, "--batch-size": batch_size})
    words = None if labels is None else _labels(labels)
    if words is None and template is not None:
        raise ConfigError("--template is only for --labels", where="--template", hint='add --labels "a cat, a dog"')
    if words is not None and engine != "auto":
        raise ConfigError("--labels needs a CLIP model, which only torch can run", where="--engine", hint="leave it out")
    table, sorted_to, masked_to, drawn_to = (path and path_of(path) for path in (csv, sort_into, masks, pictures))
    require_free_outputs(table, sort_into=sorted_to, masks=masked_to, pictures=drawn_to)
    options = {
        "top": top, "reject": reject or None, "sort_into": sorted_to, "mirror": mirror or None, "boxes": boxes,
        "smoothing": smoothing, "window": window, "overlap": overlap, "masks": masked_to, "pictures": drawn_to,
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
    """Return the labels in a file's lines, or in a text with commas."""
    from vitrail.files import is_text, path_of, read_lines
    from vitrail.plain_text import clean

    file = path_of(given)
    if not os.path.exists(file):
        if not is_text(given):
            raise ConfigError(f"{given!r} is not in UTF-8", where="--labels", hint="give the labels in UTF-8")
        return list(map(clean, given.split(",")))
    try:
        return read_lines(file)
    except OSError as error:
        raise ConfigError(f"{file.name} cannot be read: {error.strerror}", where="--labels", hint="give a text file") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file.name} is not in UTF-8", where="--labels", hint="save it as text in UTF-8") from None
