"""Studies of trained models: a folder with plots, data and an HTML page."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from vitrail.checks import require_positive
from vitrail.errors import ConfigError
from vitrail.files import whole_folder
from vitrail.models.inference import in_evaluation_mode
from vitrail.runtime.device import pick_device
from vitrail.runtime.observer import Observer
from vitrail.runtime.output import free_folder, name_of
from vitrail.study.sections.request import StudyRequest
from vitrail.task_registry import row_of_kind
from vitrail.weights.model_folder.folder import TrainedModel
from vitrail.weights.reference import open_model


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
    """Study a model: attention, positions, filters, probes, errors, cost. Return the folder and the content of its study.json.

    Args:
        model: a run folder, a model folder, or a loaded model.
        data: any source of `open_data`, or a file or folder of images without labels; by default the data that the run was
            trained on. With labels that the model does not know the study has no section on errors; probes take any labels.
            A pose model needs annotated people, as in `train`, or images that show one person each.
        out: the folder to write, which must not exist; ``studies/NAME-DATE-TIME`` by default.
        split: the split, as in `evaluate`.
        images: the number of images or people, drawn at random from the split; images without labels or joints are taken at
            even distances from the first to the last.
        layer, head, query: the attention to draw, as in `vitrail.study.attention_map`; by default the last layer, all
            heads, from the token that the prediction is read from.
        joints: names of the joints whose heatmaps a pose model's study draws; a selection by default.
        observer: receives the progress.

    Raises:
        VitrailError: with the exit code of the command; see `vitrail.errors`.
    """
    require_positive(images=images)
    name = name_of(str(model)) if isinstance(model, str | Path) else "model"
    folder, observer = free_folder(out, "studies", name), observer or Observer()
    request = StudyRequest(model, data, split, images, layer, head, query, joints, observer)
    trained = model if isinstance(model, TrainedModel) else open_model(model)
    room = row_of_kind(trained.config.reads, trained.config.answer).module("study.sections")
    _require_float32(trained)
    where, subjects = room.subjects_for(trained, request)
    if trained.labels and not subjects.labelled and subjects.why:
        observer.note(subjects.why)
    trained = in_evaluation_mode(trained, pick_device())
    with whole_folder(folder, replace=False) as draft:
        numbers = room.write_study(draft, trained, subjects, request, title=f"{name} on {name_of(where)}")
    return folder, numbers


def _require_float32(trained: TrainedModel) -> None:
    """Raise `ConfigError` for a loaded model whose weights are not float32."""
    if (dtype := next(trained.model.parameters()).dtype) != torch.float32:
        hint = "pass model.float()"
        raise ConfigError(f"a study computes in float32, the model has weights of {dtype}", where="model", hint=hint)
