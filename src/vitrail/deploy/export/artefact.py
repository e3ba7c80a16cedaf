"""An exported model: one graph file that holds its labels and its preparation, too."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import torch
from torch import Tensor

from vitrail.data.images.box_preparation import BoxPreparation
from vitrail.data.images.preparation import Preparation
from vitrail.deploy.predictor import row_of
from vitrail.errors import ConfigError, ModelFileError
from vitrail.files import path_of
from vitrail.settings import Settings
from vitrail.task_registry import Answers, row_of_kind
from vitrail.tasks.metrics import metric_of
from vitrail.weights.formats.safe_files import GRAPHS, parse_json
from vitrail.weights.locate import has_weights
from vitrail.weights.model_folder.folder import TrainedModel

Target = Literal["onnx", "openvino", "torch"]
ExportPrecision = Literal["fp32", "bf16", "fp16", "int8"]
RUNS = {".onnx": ("onnxruntime", "openvino"), ".xml": ("openvino",)}
"""Engines for a graph by its suffix, the default first. No engine reads ``.pt2``, which can run code when it is loaded."""
ENGINE = {to: RUNS[Path(file).suffix][0] for to, file in GRAPHS.items() if Path(file).suffix in RUNS}
"""Default engine of each kind of graph."""
KEY = "vitrail"
"""Metadata key of a graph for its `Description`."""
FIGURES = "export.json"
"""File with the measurements of the export."""
OF_BOXES = BoxPreparation.model_fields.keys() - Preparation.model_fields.keys()
"""Fields that only the preparation of boxes has; a graph with them returns heatmaps."""
DENOISER = "denoiser"
"""A field that only graphs have that return the noise in images."""
COLORS = "colors"
"""A field that only graphs have that return masks."""
Sides = tuple[int | None, ...]
"""The sides of a tensor; None for a side that is not fixed."""


class Description(Settings):
    """Metadata that is stored in a graph; each task that can be exported has a subclass."""

    gives: ClassVar[str] = "logits"
    """Name of the graph's output."""
    rounding: ClassVar[float] = 1e-5
    """Largest difference from the model in fp32, as a fraction of the range of its numbers."""
    sides: ClassVar[tuple[str, ...]] = ()
    """Names of the output's dimensions after batch and labels."""
    each: ClassVar[str] = "a number for each of {} labels"
    """The output in words, for messages."""
    title: ClassVar[str] = "Labels"
    """Word for the labels in the card of an exported model."""
    commands: ClassVar[str] = "vitrail predict . photo.jpg\nvitrail evaluate . --data photos\nvitrail serve ."
    """Commands that the card of an exported model shows."""

    name: str
    """Name of the model."""
    labels: tuple[str, ...]
    """A name for every output, by index."""
    multi_label: bool
    """Whether an image may have several labels, or none."""
    thresholds: tuple[float, ...] = ()
    """With several labels: the least probability at which each label is accepted, by index; empty means 0.5 for each."""
    preparation: Preparation
    """Preparation of images."""
    precision: ExportPrecision
    """Precision of the graph's matrix products."""
    any_size: bool = False
    """Whether the graph takes images of any height and width that are multiples of the patch."""
    pixels: bool
    """Whether the graph takes pixels, uint8 (B, C, H, W), and normalises them; else it takes them normalised, float32."""

    @property
    def inputs(self) -> dict[str, tuple[str, Sides]]:
        """Type and shape of the graph's inputs, by name."""
        size = (None, None) if self.any_size else self.preparation.image_size
        return {"images": ("uint8" if self.pixels else "float32", (None, self.preparation.channels, *size))}

    @property
    def answer_shape(self) -> Sides:
        """Shape of the graph's output; None for sides that are not known."""
        return (None, len(self.labels), *(None for _ in self.sides))

    @property
    def signature(self) -> str:
        """A sentence about what the graph takes and gives, for its card."""
        kind = "uint8, 0 to 255" if self.pixels else f"float32, {self.preparation}"
        sides = ", ".join(map(str, (self.preparation.channels, *self.preparation.image_size)))
        shape = ", ".join((str(len(self.labels)), *self.sides))
        return f"takes `images` ({kind}), (batch, {sides}), and gives `{self.gives}`, (batch, {shape})"

    @staticmethod
    def of_model(
        trained: TrainedModel, name: str, precision: ExportPrecision, *, any_size: bool = False, pixels: bool = False
    ) -> Any:
        """Return the description for a graph of this model."""
        kind: type[Description] = row_of(trained).module("export").DESCRIPTION
        own = kind.fields_of(trained, any_size=any_size)
        return kind(name=name, precision=precision, any_size=any_size, pixels=pixels, **own)

    @classmethod
    def fields_of(cls, trained: Any, *, any_size: bool) -> dict[str, Any]:
        """Return the fields that depend on the model."""
        return {
            "labels": tuple(trained.labels),
            "multi_label": trained.multi_label,
            "thresholds": tuple(trained.thresholds),
            "preparation": trained.preparation,
        }

    def network(self, session: Callable[..., Any]) -> Callable[..., Tensor]:
        """Return a function that runs the graph: prepared pixels, uint8 (B, C, H, W), to float32."""

        def network(pixels: Tensor) -> Tensor:
            found = torch.from_numpy(session(self.given(pixels).numpy())).float()
            expected = (len(pixels), len(self.labels))
            if found.shape[:2] != expected or found.ndim != len(self.answer_shape):
                what = f"found an output of shape {tuple(found.shape)}; expected {expected}: images by labels"
                raise ModelFileError(what, where=self.name, hint="export the model again")
            return found

        return network

    def predictor(self, network: Callable[..., Tensor], name: str) -> Any:
        """Return a predictor with the graph as its `network`; ``name`` is engine and precision."""
        raise NotImplementedError

    def examples(self, count: int, size: tuple[int, int], random: torch.Generator) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        """Return random inputs as the graph takes them, and the same as the model takes them, in the order of `inputs`."""
        pixels = torch.randint(0, 256, (count, self.preparation.channels, *size), generator=random, dtype=torch.uint8)
        return [self.given(pixels)], [self.preparation.normalize(pixels)]

    def given(self, pixels: Tensor) -> Tensor:
        """Convert prepared pixels, uint8 (B, C, H, W), to the graph's input: unchanged, or normalised to float32."""
        return (pixels if self.pixels else self.preparation.normalize(pixels)).contiguous()

    def to_json(self) -> str:
        """Return the description as JSON, to be stored in a graph."""
        return json.dumps(self.model_dump(mode="json"), ensure_ascii=False)

    @staticmethod
    def of(text: str | None, *, where: Path) -> Any:
        """Parse the text of `to_json`.

        Raises:
            ModelFileError: there is no text, or it is damaged.
        """
        hint = "export the model again: vitrail export MODEL --to onnx --out FOLDER"
        if text is None:
            raise ModelFileError("the graph has no labels and no preparation", where=where, hint=hint)
        try:
            values: Any = parse_json(text)
            known = values if isinstance(values, dict) else {}
            preparation = known.get("preparation")
            boxes = isinstance(preparation, dict) and preparation.keys() >= OF_BOXES
            answers = {DENOISER in known: "noise", COLORS in known: "masks", boxes: "heatmaps"}.get(True, "vector")
            row = row_of_kind("images", cast(Answers, answers))
            kind: type[Description] = row.module("export").DESCRIPTION
            return kind.read(known)
        except (ValueError, RecursionError, ConfigError) as error:
            reason = error.what if isinstance(error, ConfigError) else str(error)
            raise ModelFileError(f"the graph's description is damaged: {reason}", where=where, hint=hint) from None


def graph_of(reference: str | Path) -> Path | None:
    """Return the graph file of a MODEL; None if the MODEL is not an exported graph.

    Raises:
        ModelFileError: the MODEL is a ``.pt2`` file, which is never opened.
    """
    path = path_of(reference)
    if path.is_dir():
        found = [path / name for name in GRAPHS.values() if path.joinpath(name).is_file() and Path(name).suffix in RUNS]
        return found[0] if found and not has_weights(path) else None
    if path.suffix.lower() == ".pt2" and path.is_file():
        hint = f"give the folder it lies in, {path.parent}, if vitrail export wrote it"
        raise ModelFileError("a .pt2 file can run code when it is loaded, so it is refused", where=path, hint=hint)
    return path if path.suffix.lower() in RUNS and path.is_file() else None


def artefact_card(about: Description, to: str, figures: Mapping[str, Any]) -> str:
    """Return ``README.md`` for an exported model: inputs, outputs, commands and measurements."""
    lines = [
        f"# {about.name}: {to}, {about.precision}",
        f"`{GRAPHS[to]}` {about.signature}. {about.title} and preparation are in the file, under the key `{KEY}`.",
        f"```sh\n{about.commands}\n```",
    ]
    if about.any_size:
        lines.append("Height and width may be any multiples of the patch.")
    if "metric" in figures:
        metric, score = metric_of(figures["metric"]), figures[figures["metric"]]
        after, before = metric.shown(score["after"], 1), metric.shown(score["before"], 1)
        lines.append(f"{metric.title.capitalize()} on {figures['images']} images: {after}, before {before}.")
        rates = ", ".join(f"{name} {rate:.0f}" for name, rate in figures["images_per_second"].items())
        lines.append(f"Images per second where it was exported: {rates}.")
    return "\n\n".join(lines) + "\n"
