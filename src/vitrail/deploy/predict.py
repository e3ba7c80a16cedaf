"""Pictures in, labels out, by whatever model."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from vitrail.checks import require_positive
from vitrail.data.images.decode import Source
from vitrail.data.images.pictures import Picture, pictures_of
from vitrail.data.loading.prefetch import answer_ahead, each_answer
from vitrail.deploy.bench.engines import open_graph, quickest
from vitrail.deploy.export.artefact import graph_of
from vitrail.deploy.predictor import Predictor
from vitrail.errors import ConfigError, DataError
from vitrail.runtime.device import Precision, pick_device
from vitrail.runtime.processes import ALONE, Processes
from vitrail.tasks.pose.predictor import AnyPredictor, PosePredictor, any_in_python, of_classes, of_joints
from vitrail.weights.model_folder.classifier_output import Answer, Labels
from vitrail.weights.model_folder.folder import TrainedModel
from vitrail.weights.reference import open_model

WORTH_PREPACKING = 8
"""From this many images on, prepacking a model's weights saves time."""


def open_predictor(
    model: str | Path | TrainedModel | AnyPredictor,
    precision: Precision | None = None,
    *,
    engine: str = "auto",
    images: int = WORTH_PREPACKING,
) -> Predictor:
    """What answers for a MODEL: Python, or for an exported one an engine.

    Args:
        model: a run folder, a model folder, an exported model, or a loaded one; a predictor has its own precision and engine.
        precision: fp32 or bf16, in Python; fp32 by default. An exported model has its own.
        engine: torch, onnxruntime or openvino; ``auto`` takes the one that is faster here, and reports it.
        images: how many there will be; for a few, no weights are prepacked and no engines are compared.

    Raises:
        ModelFileError: it finds joints.
        VitrailError: others with the exit code of the command.
    """
    return of_classes(open_any_predictor(model, precision, engine=engine, images=images))


def open_pose_predictor(
    model: str | Path | TrainedModel | AnyPredictor,
    precision: Precision | None = None,
    *,
    engine: str = "auto",
    images: int = WORTH_PREPACKING,
) -> PosePredictor:
    """What finds joints for a MODEL; see `open_predictor`. Raises `ModelFileError` where the model finds none."""
    found = open_any_predictor(model, precision, engine=engine, images=images)
    return of_joints(found, model if isinstance(model, str | Path) else "model")


def open_any_predictor(
    model: str | Path | TrainedModel | AnyPredictor,
    precision: Precision | None = None,
    *,
    engine: str = "auto",
    images: int = WORTH_PREPACKING,
    group: Processes = ALONE,
) -> AnyPredictor:
    """What answers for a MODEL with classes or with joints; see `open_predictor`.

    Several processes of a ``group`` measure nothing, and so take the same engine.
    """
    if isinstance(model, AnyPredictor):
        return model
    graph = None if isinstance(model, TrainedModel) else graph_of(model)
    if graph is not None:
        if precision is not None:
            hint = "leave it out, or export the model again"
            raise ConfigError("an exported model has a precision of its own", where="--precision", hint=hint)
        measure = images >= WORTH_PREPACKING and group.count == 1
        return quickest(graph, measure=measure) if engine == "auto" else open_graph(graph, engine)
    if engine not in ("auto", "torch"):
        hint = f"export it first: vitrail export {model if isinstance(model, str | Path) else 'MODEL'} --to onnx"
        raise ConfigError(f"{engine} runs exported models, and this one is in Python", where="--engine", hint=hint)
    trained = model if isinstance(model, TrainedModel) else open_model(model)
    return any_in_python(trained, precision or "fp32", pick_device(), prepacked=images >= WORTH_PREPACKING)


def predict(
    model: str | Path | TrainedModel | Predictor,
    images: Picture | Iterable[Picture],
    *,
    top: int | None = 5,
    batch_size: int = 32,
    precision: Precision | None = None,
    engine: str = "auto",
    reject: bool = False,
) -> list[Labels]:
    """The ``top`` labels of every image with their probabilities, best first; each has its own where there may be several.

    Args:
        model: a run folder, a model folder, an exported or a loaded model.
        images: one image or several: a path, the content of a file or an open one, a Pillow image, or pixels, uint8 or floats
            of 0…1: of NumPy (H, W), (H, W, 3) or (B, H, W, 3), of torch (H, W), (3, H, W) or (B, 3, H, W).
        top: labels per image; None for what the model tells: the surest label, or of a model that gives several those whose
            probabilities reach their thresholds, possibly none.
        batch_size: images per batch.
        precision, engine: as in `open_predictor`.
        reject: whether an image whose surest label does not reach the threshold of the validation images gets no label.

    Raises:
        ConfigError: ``reject``, and the model has no such threshold.
        DataError: an image that cannot be read, or what is none.
    """
    count = 1 if top is None else top
    require_positive(top=count, batch_size=batch_size)
    pictures = pictures_of(images)
    predictor = open_predictor(model, precision, engine=engine, images=len(pictures))
    predictor = predictor.rejecting() if reject else predictor
    answers = each_answer(predict_each(predictor, pictures, top=count, batch_size=batch_size))
    return [answer.told if top is None or not (answer.told or predictor.multi_label) else answer.best for answer in answers]


def predict_each(
    predictor: Predictor, pictures: Sequence[Source], *, top: int, batch_size: int
) -> Iterator[list[Answer | DataError]]:
    """`predict`, batch by batch, with the error in place of an image that cannot be read."""
    return answer_ahead(predictor.preparation, pictures, batch_size, lambda pixels: predictor.best(pixels, top))
