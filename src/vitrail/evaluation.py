"""How good a model is, whatever its task, on the data that it comes with or on any other."""

from functools import partial
from pathlib import Path
from typing import Any

from vitrail.checks import refuse_given, require_not_negative, require_positive
from vitrail.deploy.export.artefact import graph_of
from vitrail.deploy.predict import open_any_predictor
from vitrail.deploy.predictor import OnBatch
from vitrail.files import path_of
from vitrail.runtime.device import Precision, pick_device, workers_beside
from vitrail.runtime.observer import Note
from vitrail.runtime.output import require_free, require_free_file
from vitrail.runtime.processes import ALONE, Processes
from vitrail.tasks.answer_table import evaluated_rows, write_table
from vitrail.tasks.captioning.data import open_captions_for
from vitrail.tasks.captioning.evaluate import evaluate_captions
from vitrail.tasks.captioning.weights import TrainedCaptioner
from vitrail.tasks.pose.data import open_people_for
from vitrail.tasks.pose.evaluate import OnFound, evaluate_poses
from vitrail.tasks.pose.predictor import AnyPredictor, PosePredictor, of_joints
from vitrail.tasks.task import Metrics
from vitrail.tasks.translation.data import open_pairs_for
from vitrail.tasks.translation.evaluate import evaluate_translator
from vitrail.tasks.translation.translate import AnyTranslator, is_translator
from vitrail.training.runs.data_of_model import open_for, unlabelled_run
from vitrail.training.runs.run import evaluate_run
from vitrail.weights.locate import is_captioner
from vitrail.weights.model_folder.folder import TrainedModel

BATCH = 64
"""Images, or people, that are answered together."""

NO_JOINTS = "the model finds no joints"
"""Why what is for joints is refused of others."""


def evaluate(
    model: str | Path | TrainedModel | AnyTranslator | AnyPredictor | TrainedCaptioner,
    data: str | Path | None = None,
    *,
    split: str | None = None,
    batch_size: int = BATCH,
    workers: int | None = None,
    precision: Precision | None = None,
    engine: str = "auto",
    keep: bool = False,
    on_start: OnBatch | None = None,
    on_batch: OnBatch | None = None,
    on_note: Note = lambda text: None,
    table: str | Path | None = None,
    boxes: str | Path | None = None,
    mirror: bool | None = None,
    smoothing: float | None = None,
    pictures: str | Path | None = None,
    group: Processes = ALONE,
) -> tuple[Metrics, str]:
    """Evaluate a model: its metrics, whose ``scores()`` are a dictionary, and which split was taken.

    Args:
        model: a run folder, a model folder, an exported or a loaded model.
        data: any source of `open_data`; a run's own data by default.
        split: train, val, test or all; by default test, else val, and all of a folder that has no splits.
        batch_size, workers: images per batch; processes that prepare images, by default as in training.
        precision, engine: as in `open_predictor`.
        keep: whether the metrics also keep the ``logits`` and ``labels`` of every image, and their ``probabilities``.
        on_start, on_batch, on_note: called with the number of items; the size of every batch; what to know of the data.
        table: a CSV file to write, which must not exist, with a row for each image; see `vitrail.tasks.answer_table`,
            `vitrail.tasks.pose.table`, where there is a row for each person, and `vitrail.tasks.captioning.task.caption_rows`.
        boxes: of a model that finds joints, a file of a detector's boxes to look for people in; see `evaluate_poses`.
        mirror: whether the mean of the answers to an image, or a box, and to its mirror image is taken, in twice the time; by
            default only of a model that finds joints.
        smoothing: of a model that finds joints, by how many places heatmaps are smoothed before a joint is read from them; see
            `vitrail.predict_poses`.
        pictures: of a model that finds joints, a folder to write, which must not exist, with the people who were found worst and
            bars of the joints, as the report of a run has them.
        group: the processes that do it together; see `vitrail.runtime.processes`.
    """
    require_positive(batch_size=batch_size)
    require_not_negative(workers=workers or 0)
    table = None if table is None else path_of(table)
    ways = {"--precision": precision is not None, "--engine": engine not in ("auto", "torch"), "--mirror": mirror is not None}
    of_people = {"--boxes": boxes is not None, "--pictures": pictures is not None, "--smoothing": smoothing is not None}
    if is_translator(model):
        of_images = {"--csv": table is not None, "--workers": bool(workers), "--batch-size": batch_size != BATCH}
        refuse_given("a translator is evaluated as it is", {**ways, **of_images})
        refuse_given(NO_JOINTS, of_people)
        pairs_for = partial(open_pairs_for, reference=model, data=data, split=split, note=on_note)
        return evaluate_translator(model, pairs_for, on_start=on_start, on_batch=on_batch, group=group)
    assert not isinstance(model, AnyTranslator)
    if workers is None:  # pictures in which people are looked for are read by this process
        workers = 0 if boxes is not None or _has_engine(model) else workers_beside(pick_device())
    if is_captioner(model) or isinstance(model, TrainedCaptioner):
        refuse_given("a captioner is evaluated in Python, in fp32", ways)
        refuse_given(NO_JOINTS, of_people)
        captions_for = partial(open_captions_for, reference=model, data=data, split=split, note=on_note)
        sizes = {"batch_size": batch_size, "workers": workers}
        return evaluate_captions(model, captions_for, table=table, on_start=on_start, on_batch=on_batch, group=group, **sizes)
    run = unlabelled_run(model)
    with group.together():
        if run:
            refuse_given("a model without labels is evaluated in Python, in fp32", ways)
            refuse_given(NO_JOINTS, of_people)
        if table is not None:
            require_free_file(table, where="--csv")
            refuse_given("a model without labels gives no answers to write", {"--csv": run is not None})
        if pictures is not None:
            require_free(path_of(pictures), where="--pictures")
        opened = None if run else open_any_predictor(model, precision, engine=engine, group=group)
        if opened is not None and any(of_people.values()):
            of_joints(opened, model if isinstance(model, str | Path) else "model")
    options: dict[str, Any] = {"batch_size": batch_size, "workers": workers, "on_batch": on_batch, "group": group}
    if isinstance(opened, PosePredictor):
        people_for = partial(open_people_for, reference=model, data=data, split=split, note=on_note)
        file = None if boxes is None else path_of(boxes)
        drawn = None if pictures is None else pictures_in(path_of(pictures))
        asked: dict[str, Any] = {"boxes": file, "mirror": mirror, "table": table, "on_found": drawn, "on_start": on_start}
        return evaluate_poses(opened.smoothed_by(smoothing), people_for, **asked, on_note=on_note, **options)
    predictor = opened.with_mirror_images() if opened is not None and mirror else opened
    with group.together():
        source, own_splits = open_for(model, data, labelled=run is None, note=on_note)
        chosen = split or (source.evaluation_split if own_splits else "all")
        items = source.split(chosen) if predictor is None else predictor.relabelled(source, source.split(chosen), on_note)
    if on_start:
        on_start(len(items))
    if predictor is not None:
        metrics = predictor.evaluate(items, keep=keep or table is not None, **options)
        if table is not None and group.first:
            write_table(table, evaluated_rows(predictor, items, metrics.probabilities))
        return metrics, chosen
    assert run is not None
    return evaluate_run(run, source, items, **options), chosen


def pictures_in(folder: Path) -> OnFound:
    """What writes pictures of people and the joints that were found into a folder."""
    from vitrail.tasks.pose.report import FoundPeople, write_pictures  # and matplotlib

    return lambda people, skeleton, found: write_pictures(folder, FoundPeople(people, skeleton, found))


def _has_engine(model: object) -> bool:
    """Whether what answers has been opened already or is an exported model, whose engine computes on the processor."""
    return isinstance(model, AnyPredictor) or (isinstance(model, str | Path) and graph_of(model) is not None)
