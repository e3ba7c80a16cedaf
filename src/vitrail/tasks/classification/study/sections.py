"""The study of a classifier or of a model of vectors: attention, features and errors."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vitrail.checks import refuse_given
from vitrail.deploy.predictor import in_python
from vitrail.errors import ConfigError
from vitrail.runtime.observer import Observer
from vitrail.study.page import page
from vitrail.study.page.page import Markup
from vitrail.study.sections import attention as attention_sections
from vitrail.study.sections import model as model_sections
from vitrail.study.sections import stages as stage_sections
from vitrail.study.sections.attention import LAST, Look
from vitrail.study.sections.context import StudyContext
from vitrail.study.sections.request import StudyRequest
from vitrail.study.sections.study_images import Subjects, labelled_subjects, plain_items
from vitrail.tasks.classification.study.multi_label_report import OWN, MultiLabel
from vitrail.tasks.classification.study.predictions import Predictions
from vitrail.tasks.classification.study.single_label_report import SingleLabel
from vitrail.training.runs.data_of_model import open_any
from vitrail.weights.formats.safe_files import some
from vitrail.weights.model_folder.folder import TrainedModel

_FOLLOWED = (
    "so no map goes through all layers: rollout and relevance, which follow attention from layer to layer, the test of taking "
    "patches away in the order of such maps, and the maps of all heads are left out."
)
LEFT_OUT = {
    "windows": f"A patch sees the others of its window alone, {_FOLLOWED}",
    "coarser grid": f"What a patch sees are keys that each stand for several others, {_FOLLOWED}",
    None: (
        "No layer of this model attends. So there is nothing that tells where it looks and how far; the test of taking patches "
        "away in the order of such maps, and a picture of positions, are left out, too."
    ),
}
"""Reasons for missing sections, by what a token of the model can attend to."""
CHANGED = {
    False: "So its cost, which is counted by its configuration, is left out.",
    True: "So no maps can be followed through it: these, positions, filters and the cost of its configuration are left out.",
}
"""Reasons for missing sections of a model with changed parts; the key is True if these hide its layers."""


def subjects_for(trained: TrainedModel, request: StudyRequest) -> tuple[str, Subjects]:
    """Return the source and the images of a study; raises `VitrailError`."""
    refuse_given("the model finds no joints", {"--joint": bool(request.joints)})
    if plain := plain_items(request, "labels", multi_label=trained.multi_label):
        return str(request.data), Subjects(plain)
    note = request.observer.note
    source, own_splits = open_any(request.model, request.data, note=note)
    split = request.split or (source.evaluation_split if own_splits else "all")
    return source.source, labelled_subjects(trained, source, split, request.images, note)


def write_study(folder: Path, trained: TrainedModel, subjects: Subjects, request: StudyRequest, *, title: str) -> dict[str, Any]:
    """Write plots, ``maps.npz``, ``study.json`` and ``report.html`` to a folder; return the content of ``study.json``."""
    look = Look(request.layer, request.head, request.query)
    study = StudyContext(folder, trained, subjects, _predictions(trained, subjects, request.observer), request.observer)
    if look != LAST and not study.attends:
        what = f"this {type(trained.model).__name__} has no global attention to choose a layer, head or query of"
        raise ConfigError(what, where="layer, head, query", hint="leave them out")
    return study.written(title, _sections(study, look))


def _predictions(trained: TrainedModel, subjects: Subjects, observer: Observer) -> Predictions | None:
    """Return the predictions for the images of a study; None for a model without labels."""
    if not trained.labels:
        return None
    observer.begin("answers", len(subjects.items))
    predictor = in_python(trained, device=next(trained.model.parameters()).device)
    metrics = predictor.evaluate(subjects.items, batch_size=32, keep=True, on_batch=observer.advance)
    return Predictions.of(trained, subjects, metrics)


def _sections(study: StudyContext, look: Look) -> Iterator[Markup]:
    predictions, part = study.predictions, None
    if isinstance(predictions, Predictions) and study.subjects.labelled:
        part = MultiLabel(predictions, predictions.thresholds, OWN) if predictions.multi_label else SingleLabel(predictions)
        study.numbers["scores"] = predictions.scores
    yield page.cards([*(part.cards() if part else ()), *model_sections.size(study)])
    if study.attends:
        yield attention_sections.where_it_looks(study, look)
        yield attention_sections.heads(study)
        if predictions is not None:
            yield attention_sections.occlusion_curves(study, predictions)
        yield attention_sections.distances(study)
        yield model_sections.positions(study)
    elif study.sight:
        yield stage_sections.where_it_looks(study)
        yield stage_sections.distances(study)
        yield stage_sections.positions(study)
    if not study.hidden:
        yield model_sections.filter_components(study)
    if study.subjects.known:
        yield model_sections.probe(study)
    elif study.subjects.unprobed:
        yield page.section("Probes", page.paragraph(f"None: {study.subjects.unprobed}."))
    if part:
        yield from part.sections(study.folder)
    if study.changed:
        parts = f"Parts of the model were changed by hand: {some(list(study.changed.values()))}."
        yield page.section("What is left out", page.paragraph(f"{parts} {CHANGED[study.hidden]}"))
    elif not study.attends:
        yield page.section("What is left out", page.paragraph(LEFT_OUT[study.sight]))
    if not study.changed:
        yield model_sections.cost(study)
