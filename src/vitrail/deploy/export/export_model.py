"""What a trained model becomes on its way to those who use it: exported, quantised, with merged tokens, verified, measured."""

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
from vitrail.models.inference import in_evaluation_mode, quickest_precision
from vitrail.runtime.observer import Observer
from vitrail.runtime.output import free_folder, name_of
from vitrail.weights.formats.checksums import write_sums
from vitrail.weights.locate import is_exported_translator
from vitrail.weights.model_folder.folder import TrainedModel
from vitrail.weights.model_folder.trained import fill_folder
from vitrail.weights.reference import from_pretrained


def export(model: Any, out: str | Path | None = None, **options: Any) -> tuple[Path, dict[str, Any]]:
    """Write a model of images or of texts for an engine; gives its folder and what was measured.

    A model of images becomes a graph, see `export_model`; of a model that writes texts its task's room says what is written.
    """
    if isinstance(model, str | Path) and (is_exported_translator(model) or graph_of(model) is not None):
        raise ConfigError("that is exported already", where=str(model), hint="give the model that it was made from")
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
    force: bool = False,
    observer: Observer | None = None,
) -> tuple[Path, dict[str, Any]]:
    """Write a model as a graph that an engine runs, with labels and preparation inside; gives its folder and what was measured.

    It is kept only if it answers as the model does; see `vitrail.deploy.export.export.verify`.

    Args:
        model: a run folder, a model folder, a file of weights, or a loaded model.
        out: the folder to write, which must not exist; ``exports/NAME-DATE-TIME`` by default.
        to: onnx; openvino; torch, a ``.pt2`` beside the model folder; or triton, a model repository with ONNX inside.
        precision: fp32, bf16, fp16 or int8; or auto, int8 where it is faster than floats on this machine and holds the accuracy,
            else the quickest floats. The figures say under ``because`` why it is so.
        calibrate: images, as for `evaluate` or without labels; by default the images of the run. Training images calibrate int8,
            validation images decide what is chosen, and accuracy is reported on test images; see `samples_of`.
        merge: patches that every block merges into others like them, or a number for each block; None for as many as
            ``max_drop`` allows.
        max_drop: points of accuracy that merging, with all else, may lose on the judging images; beside accuracy itself also
            of the mean probability of the correct label, which shows more on few images.
        image_size: height and width that the graph takes, or one side of a square; ``any`` for any multiples of the patch; the
            model's own by default.
        fold: whether the graph takes pixels, uint8, and normalises them.
        force: keep int8 also where `require_accuracy` refuses it, or auto finds it slower than floats.
        observer: gets the progress.

    Raises:
        ExportError: the graph cannot be made, or does not answer as the model does.
        VitrailError: others with the exit code of the command.
    """
    triton, to = to == "triton", "onnx" if to == "triton" else to
    require_possible(to, precision)
    name = name_of(str(model)) if isinstance(model, str | Path) else "model"
    folder, observer = free_folder(out, "exports", name), observer or Observer()
    any_size = image_size == "any"
    trained = _to_export(model, None if any_size else image_size)
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
            observer.note(f"{quickest_floats(to)} is taken: {refused}")
    raise AssertionError("the last precision and the last schedule are always kept")


def _quickest(to: Target, *, floats: str, force: bool) -> dict[ExportPrecision, str]:
    """The precisions that auto stands for, in the order in which they are tried, and why each is kept where that is known.

    Args:
        to: kind of graph.
        floats: why only floats are exported; int8 is tried first where there is no reason.
        force: whether int8 is kept whatever it loses.
    """
    quick = quickest_floats(to)
    if (to, "int8") in IMPOSSIBLE:
        return {quick: f"{to} has no int8"}
    if floats:
        return {quick: floats}
    return {"int8": "--force keeps it" if force else "int8 is the faster, and holds the accuracy", quick: ""}


def quickest_floats(to: Target) -> ExportPrecision:
    """Return the fastest precision of a kind of graph without quantization."""
    quick = quickest_precision(torch.device("cpu"))
    return "fp32" if (to, quick) in IMPOSSIBLE else quick


@dataclass(frozen=True)
class _Making:
    """The arguments that all graphs of one export share; see `export_model`."""

    trained: TrainedModel
    name: str
    to: Target
    triton: bool
    """Whether the graph becomes a repository of Triton."""
    any_size: bool
    fold: bool
    force: bool
    auto: bool
    """Whether int8 has to be faster than floats."""
    judging: Any
    """What the room judges graphs by, as `vitrail.tasks.classification.judging.judging.Judging`; None where nothing is judged."""
    limit: Any
    """What merging may lose; None where that is not limited."""
    observer: Observer

    def write(self, draft: Path, precision: ExportPrecision, counts: int | tuple[int, ...], because: str) -> dict[str, Any]:
        """Write a graph of one precision and schedule of merging; what was measured.

        Raises:
            TooMuchLostError: so much merging loses more than the limit.
            ExportError: it cannot be made, or is not worth it.
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
    """The model in Python."""
    if isinstance(model, TrainedModel):
        own = model.config.image_size
        if image_size is not None and model.config.read_field("image_size", image_size) != own:
            what = f"a model that is open is exported for images of its own size, {own[0]}×{own[1]}"
            raise ConfigError(what, where="image_size", hint="open it for the other: vitrail.from_pretrained(…, image_size=…)")
        return in_evaluation_mode(model)
    return from_pretrained(model, image_size=image_size)
