"""Export of a trained model: as a graph, quantised, with merged tokens, verified and measured."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from vitrail.deploy.export.artefact import FIGURES, Description, ExportPrecision, Target, artefact_card, graph_of
from vitrail.deploy.export.export import IMPOSSIBLE, export_graph, require_possible
from vitrail.deploy.export.merging import TooMuchLostError, merging, require_tokens, weaker
from vitrail.deploy.export.triton import repository_name, write_config
from vitrail.deploy.predict import row_of_writer
from vitrail.deploy.predictor import in_python, row_of
from vitrail.deploy.problems import ExportError
from vitrail.errors import ConfigError
from vitrail.files import whole_folder, write_json, write_text
from vitrail.models.inference import in_evaluation_mode, quickest_precision, sharing_copy
from vitrail.runtime.observer import Observer
from vitrail.runtime.output import free_folder, name_of
from vitrail.weights.formats.checksums import write_sums
from vitrail.weights.locate import is_exported_translator
from vitrail.weights.model_folder.folder import TrainedModel
from vitrail.weights.model_folder.trained import fill_folder
from vitrail.weights.reference import from_pretrained


def export(model: Any, out: str | Path | None = None, **options: Any) -> tuple[Path, dict[str, Any]]:
    """Write a model for an inference engine; return the folder and the measurements.

    An image model is exported as a graph, see `export_model`; a model that writes text is exported by its task.
    """
    if isinstance(model, str | Path) and (is_exported_translator(model) or graph_of(model) is not None):
        raise ConfigError("the model is exported already", where=str(model), hint="give the model that it was exported from")
    row = row_of_writer(model)
    if row is not None and row.has("export"):
        written: tuple[Path, dict[str, Any]] = row.module("export").export_model(model, out, **options)
        return written
    return export_model(model, out, **options)


def export_model(
    model: str | Path | TrainedModel,
    out: str | Path | None = None,
    *,
    to: Target | Literal["triton"] = "onnx",
    precision: ExportPrecision | Literal["auto"] = "fp32",
    calibrate: str | Path | None = None,
    merge: int | tuple[int, ...] | None = 0,
    max_drop: float = 0.5,
    image_size: int | str | tuple[int, int] | None = None,
    fold: bool = False,
    full_size: bool = False,
    force: bool = False,
    observer: Observer | None = None,
) -> tuple[Path, dict[str, Any]]:
    """Write an image model as a graph with its labels and preparation; return the folder and the measurements.

    The graph is kept only if its outputs are the model's; see `vitrail.deploy.export.export.verify`.

    Args:
        model: a run folder, a model folder, a weights file, or a loaded model.
        out: the folder to write, which must not exist; ``exports/NAME-DATE-TIME`` by default.
        to: onnx; openvino; torch, a ``.pt2`` beside the model folder; or triton, a model repository with an ONNX graph.
        precision: fp32, bf16, fp16, int8 or auto. auto is int8 if it is faster than floats on this machine and keeps the
            accuracy, otherwise the fastest float precision; ``because`` in the measurements holds the reason.
        calibrate: images, as for `evaluate` or without labels; by default the images of the run. Training images calibrate int8,
            validation images decide between precisions, test images measure the reported accuracy; see `samples_of`.
        merge: number of patches that every block merges into similar ones, or a number for each block; None for as many as
            ``max_drop`` allows.
        max_drop: points of accuracy that the export, with merging, may lose on the validation images. The limit also holds for
            the mean probability of the correct label, which is more precise on few images.
        image_size: input size of the graph, height and width or one side of a square; ``any`` for any multiples of the patch;
            by default the model's size.
        fold: whether the graph takes pixels, uint8, and normalises them.
        full_size: whether the graph of a segmenter gives logits at the size of the images, not at the decoder's stride.
        force: keep int8 although `require_accuracy` refuses it, or auto finds it slower than floats.
        observer: gets the progress.

    Raises:
        ExportError: the graph cannot be created, or its outputs differ from the model's.
        VitrailError: other errors, with the exit code of the command.
    """
    triton, to = to == "triton", "onnx" if to == "triton" else to
    require_possible(to, precision)
    name = name_of(str(model)) if isinstance(model, str | Path) else "model"
    folder, observer = free_folder(out, "exports", name), observer or Observer()
    any_size = image_size == "any"
    trained = _to_export(model, None if any_size else image_size)
    if full_size:
        trained = sharing_copy(trained)
        trained.model = trained.model.at_full_size()
    room = row_of(trained).module("export")
    asked = {
        "--precision": precision == "int8", "--calibrate": calibrate is not None, "--merge": merge != 0,
        "--image-size": any_size, "--fold-normalization": fold, "--to triton": triton,
    }  # fmt: skip
    room.require_exportable(trained, to, asked, observer.note)
    if merge != 0:
        require_tokens(trained)
    precisions = _quickest(to, floats=room.FLOATS, force=force) if precision == "auto" else {precision: ""}
    judging = None
    if calibrate is not None or "int8" in precisions or merge is None:
        judging = room.judging(in_python(trained), model, calibrate, observer)
    limit = judging.limit(trained, max_drop) if merge is None and judging else None
    making = _Making(trained, name, to, triton, any_size, fold, force, precision == "auto", judging, limit, observer)
    schedules: list[int | tuple[int, ...]] = [*weaker(trained.config, limit.strongest())] if limit else [merge or 0]
    refused = ""
    for chosen, because in precisions.items():
        try:
            for counts in schedules:
                with suppress(TooMuchLostError), whole_folder(folder, replace=False) as draft:
                    return folder, making.write(draft, chosen, counts, because or refused)
        except ExportError as error:
            if chosen == [*precisions][-1]:
                raise
            refused = error.what
            observer.note(f"{quickest_floats(to)} is used: {refused}")
    raise AssertionError("the last precision and the last schedule are always kept")


def _quickest(to: Target, *, floats: str, force: bool) -> dict[ExportPrecision, str]:
    """Return the precisions to try for auto, in this order, each with the reason to keep it, if it is known.

    Args:
        to: kind of graph.
        floats: the reason why only floats are exported; if it is empty, int8 is tried first.
        force: whether int8 is kept however much accuracy it loses.
    """
    quick = quickest_floats(to)
    if (to, "int8") in IMPOSSIBLE:
        return {quick: f"{to} has no int8"}
    if floats:
        return {quick: floats}
    return {"int8": "--force keeps it" if force else "int8 is faster, and keeps the accuracy", quick: ""}


def quickest_floats(to: Target) -> ExportPrecision:
    """Return the fastest float precision of a kind of graph on this machine."""
    quick = quickest_precision(torch.device("cpu"))
    return "fp32" if (to, quick) in IMPOSSIBLE else quick


@dataclass(frozen=True)
class _Making:
    """Arguments of `export_model` that all graphs of one export share."""

    trained: TrainedModel
    name: str
    to: Target
    triton: bool
    """Whether a model repository for Triton is written."""
    any_size: bool
    fold: bool
    force: bool
    auto: bool
    """Whether int8 must be faster than floats."""
    judging: Any
    """The task's judge of graphs, as `vitrail.tasks.classification.judging.judging.Judging`; None if no accuracy is measured."""
    limit: Any
    """The limit on what merging may lose; None for no limit."""
    observer: Observer

    def write(self, draft: Path, precision: ExportPrecision, counts: int | tuple[int, ...], because: str) -> dict[str, Any]:
        """Write a graph of one precision and merging schedule; return the measurements.

        Raises:
            TooMuchLostError: the schedule loses more than the limit.
            ExportError: the graph cannot be created, loses too much accuracy, or is not faster.
        """
        to, judging = self.to, self.judging
        shown = merging(self.trained, counts) if counts else self.trained
        about = Description.of_model(self.trained, self.name, precision, any_size=self.any_size, pixels=self.fold)
        self.observer.begin("exporting", 0)
        place = draft / repository_name(self.name) / "1" if self.triton else draft
        place.mkdir(parents=True, exist_ok=True)
        written = export_graph(shown, about, to, place, judging.calibration if judging else None)
        if self.limit and any(shown.config.merged):
            self.limit.require(written.predictor)
        if self.triton:
            write_config(place.parent, about)
        if to == "torch":
            fill_folder(draft, shown, card=shown.card or shown.plain_card())
        figures: dict[str, Any] = {
            "model": self.name,
            "to": "triton" if self.triton else to,
            "precision": precision,
            "token_merging": counts,
        }
        figures |= {"because": because} if because else {}
        figures |= {"gives": about.gives, "verified": written.verified.to_dict()}
        if judging:
            drop = self.limit.max_drop if self.limit else 0
            figures |= judging.measured(written, self.trained, limit=drop, force=self.force, auto=self.auto)
        write_json(draft / FIGURES, figures)
        if to != "torch" and not self.triton:
            write_text(draft / "README.md", artefact_card(about, to, figures))
        write_sums(draft)
        return figures


def _to_export(model: str | Path | TrainedModel, image_size: int | str | tuple[int, int] | None) -> TrainedModel:
    """Return the PyTorch model."""
    if isinstance(model, TrainedModel):
        own = model.config.image_size
        if image_size is not None and model.config.read_field("image_size", image_size) != own:
            what = f"a loaded model can be exported for its own image size only, {own[0]}×{own[1]}"
            raise ConfigError(what, where="image_size", hint="load it with this size: vitrail.from_pretrained(…, image_size=…)")
        return in_evaluation_mode(model)
    return from_pretrained(model, image_size=image_size)
