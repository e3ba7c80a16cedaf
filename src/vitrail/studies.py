"""What a person sees of a trained model: a folder with pictures, data and a page, by what the model answers with."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from vitrail.checks import refuse_given, require_positive
from vitrail.errors import ConfigError
from vitrail.files import whole_folder
from vitrail.models.inference import in_evaluation_mode
from vitrail.runtime.device import pick_device
from vitrail.runtime.observer import Observer
from vitrail.runtime.output import free_folder, name_of
from vitrail.study.sections.study_images import Subjects, subjects_of
from vitrail.tasks.classification.predictor import in_python
from vitrail.tasks.pose.data import open_people_for
from vitrail.tasks.pose.weights import TrainedPose
from vitrail.training.runs.data_of_model import open_any
from vitrail.weights.model_folder.folder import TrainedModel, require_as_built
from vitrail.weights.reference import open_model

if TYPE_CHECKING:
    from vitrail.study.quality.predictions import Predictions


def study_model(
    model: str | Path | TrainedModel,
    data: str | Path | None = None,
    out: str | Path | None = None,
    *,
    split: str | None = None,
    images: int = 100,
    layer: int | None = None,
    head: int | None = None,
    query: tuple[int, int] | None = None,
    joints: Sequence[str] = (),
    observer: Observer | None = None,
) -> tuple[Path, dict[str, Any]]:
    """Look into a model: attention, positions, filters, probes, errors, cost. Gives the folder and what is in its study.json.

    Args:
        model: a run folder, a model folder, or a loaded model.
        data: any source of `open_data`, or images without labels: a file or a folder; a run's own data by default. Where labels
            are none of the model's, its errors are left out; probes can do with any. Of a model that finds joints people, as in
            `train`, or images of one person each.
        out: the folder to write, which must not exist; ``studies/NAME-DATE-TIME`` by default.
        split, images: which images or people to look at, as in `evaluate`, and how many of them, at random; images without
            labels or joints are taken evenly from the first to the last.
        layer, head, query: of the attention that is drawn, as in `vitrail.study.attention_map`; by default the last
            layer, all heads, from what the answer is read from.
        joints: of a model that finds joints, the names of those whose maps are drawn; some of all by default.
        observer: gets the progress.

    Raises:
        VitrailError: with the exit code of the command; see `vitrail.errors`.
    """
    require_positive(images=images)
    from vitrail.study.sections.attention import Look
    from vitrail.study.study import write_study  # scikit-learn and matplotlib take a second to import
    from vitrail.tasks.pose.study.sections import write_pose_study
    from vitrail.tasks.pose.study.study_people import people_of

    name = name_of(str(model)) if isinstance(model, str | Path) else "model"
    folder, observer = free_folder(out, "studies", name), observer or Observer()
    trained = model if isinstance(model, TrainedModel) else open_model(model)
    _require_studied(trained)
    if isinstance(trained, TrainedPose):
        refuse_given("the patch that looks is where the model finds a joint", {"--query": query is not None})
        opened = partial(open_people_for, trained.skeleton, model, data, split, observer.note)
        where, subjects, mirror = people_of(data, opened, split, images, observer.note)
    else:
        refuse_given("the model finds no joints", {"--joint": bool(joints)})
        images_for = partial(open_any, model, data, note=observer.note)
        where, subjects = subjects_of(trained, data, images_for, split, images, observer.note)
    if trained.labels and not subjects.labelled and subjects.why:
        observer.note(subjects.why)
    trained = in_evaluation_mode(trained, pick_device())
    title = f"{name} on {name_of(where)}"
    with whole_folder(folder, replace=False) as draft:
        if isinstance(trained, TrainedPose):
            choice: dict[str, Any] = {"layer": layer, "head": head, "joints": joints, "mirror": mirror}
            numbers = write_pose_study(draft, trained, subjects, observer, title=title, **choice)
        else:
            predictions, look = _predictions(trained, subjects, observer), Look(layer, head, query)
            numbers = write_study(draft, trained, subjects, predictions, observer, title=title, attention=look)
    return folder, numbers


def _require_studied(trained: TrainedModel) -> None:
    """Refuse a loaded model that has no study; raises `ConfigError`."""
    if trained.config.answer == "heatmaps":
        require_as_built(trained.model, trained.config)
    if (dtype := next(trained.model.parameters()).dtype) != torch.float32:
        hint = "give it as model.float()"
        raise ConfigError(f"a study computes in float32, the model has weights of {dtype}", where="model", hint=hint)


def _predictions(trained: TrainedModel, subjects: Subjects, observer: Observer) -> "Predictions | None":
    """The answers to the images of a study; None of a model that gives vectors."""
    from vitrail.study.quality.predictions import Predictions

    if not trained.labels:
        return None
    observer.begin("answers", len(subjects.items))
    predictor = in_python(trained, device=next(trained.model.parameters()).device)
    metrics = predictor.evaluate(subjects.items, batch_size=32, keep=True, on_batch=observer.advance)
    return Predictions.of(trained, subjects, metrics)
