"""An exported model: one graph that an engine runs, with its labels and its preparation inside."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from vitrail.data.images.box_preparation import BoxPreparation
from vitrail.data.images.preparation import Preparation
from vitrail.deploy.predictor import row_of
from vitrail.errors import ConfigError, ModelFileError
from vitrail.files import path_of
from vitrail.settings import Settings
from vitrail.task_registry import row_of_kind
from vitrail.tasks.metrics import metric_of
from vitrail.weights.formats.safe_files import GRAPHS, parse_json
from vitrail.weights.locate import has_weights
from vitrail.weights.model_folder.folder import TrainedModel

Target = Literal["onnx", "openvino", "torch"]
ExportPrecision = Literal["fp32", "bf16", "fp16", "int8"]
RUNS = {".onnx": ("onnxruntime", "openvino"), ".xml": ("openvino",)}
"""Engines for a graph by its suffix, the likeliest first; a ``.pt2`` may run code when it is loaded, and none reads it."""
ENGINE = {to: RUNS[Path(file).suffix][0] for to, file in GRAPHS.items() if Path(file).suffix in RUNS}
"""What runs each kind of graph."""
KEY = "vitrail"
"""Under which a graph keeps its `Description`."""
FIGURES = "export.json"
"""What was measured when it was exported."""
OF_BOXES = BoxPreparation.model_fields.keys() - Preparation.model_fields.keys()
"""Fields by which the preparation of boxes is known, and with it a graph that gives heatmaps."""
DENOISER = "denoiser"
"""The field by which a graph is known that gives the noise in images."""
Sides = tuple[int | None, ...]
"""The sides of a tensor; None for one that is not fixed."""


class Description(Settings):
    """Facts that a graph does not hold by itself; the room of each task that is exported has its own kind."""

    gives: ClassVar[str] = "logits"
    """Name of the graph's output, ..."""
    sides: ClassVar[tuple[str, ...]] = ()
    """... what it has behind the batch and the labels, ..."""
    each: ClassVar[str] = "a number for each of {} labels"
    """... and the same in words."""
    title: ClassVar[str] = "Labels"
    """What labels are called."""
    commands: ClassVar[str] = "vitrail predict . photo.jpg\nvitrail evaluate . --data photos\nvitrail serve ."
    """Commands that the card of an exported model shows."""

    name: str
    """What the model is."""
    labels: tuple[str, ...]
    """A name for every output, by index."""
    multi_label: bool
    """Whether an image may have several labels, or none."""
    thresholds: tuple[float, ...] = ()
    """Where there may be several, the probability from which on each is told, by index; none for one half each."""
    preparation: Preparation
    """What makes pixels of a picture."""
    precision: ExportPrecision
    """Of its products."""
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
        """Shape of the graph's output."""
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
        """Return the description of a graph that is to be made of a model."""
        kind: type[Description] = row_of(trained).module("export").DESCRIPTION
        own = kind.fields_of(trained, any_size=any_size)
        return kind(name=name, precision=precision, any_size=any_size, pixels=pixels, **own)

    @classmethod
    def fields_of(cls, trained: Any, *, any_size: bool) -> dict[str, Any]:
        """Return the fields that a model decides."""
        return {
            "labels": tuple(trained.labels),
            "multi_label": trained.multi_label,
            "thresholds": tuple(trained.thresholds),
            "preparation": trained.preparation,
        }

    def network(self, session: Callable[..., Any]) -> Callable[..., Tensor]:
        """Return what runs the graph as a function of prepared pixels, uint8 (B, C, H, W), to float32."""

        def network(pixels: Tensor) -> Tensor:
            found = torch.from_numpy(session(self.given(pixels).numpy())).float()
            expected = (len(pixels), len(self.labels))
            if found.shape[:2] != expected or found.ndim != len(self.answer_shape):
                what = f"the graph gives numbers of the shape {tuple(found.shape)}, where {expected} is images by labels"
                raise ModelFileError(what, where=self.name, hint="export the model again")
            return found

        return network

    def predictor(self, network: Callable[..., Tensor], name: str) -> Any:
        """Return what answers with the graph as its `network`; ``name`` is engine and precision."""
        raise NotImplementedError

    def examples(self, count: int, size: tuple[int, int], random: torch.Generator) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        """Return random inputs as the graph takes them, and the same as the model takes them, in the order of `inputs`."""
        pixels = torch.randint(0, 256, (count, self.preparation.channels, *size), generator=random, dtype=torch.uint8)
        return [self.given(pixels)], [self.preparation.normalize(pixels)]

    def given(self, pixels: Tensor) -> Tensor:
        """Prepared pixels, uint8 (B, C, H, W), as the graph takes them."""
        return (pixels if self.pixels else self.preparation.normalize(pixels)).contiguous()

    def to_json(self) -> str:
        """The text that a graph keeps."""
        return json.dumps(self.model_dump(mode="json"), ensure_ascii=False)

    @staticmethod
    def of(text: str | None, *, where: Path) -> Any:
        """Return what `to_json` wrote.

        Raises:
            ModelFileError: there is none, or it is damaged.
        """
        hint = "export the model again: vitrail export MODEL --to onnx --out FOLDER"
        if text is None:
            raise ModelFileError("the graph has no labels and no preparation", where=where, hint=hint)
        try:
            values: Any = parse_json(text)
            known = values if isinstance(values, dict) else {}
            preparation = known.get("preparation")
            boxes = isinstance(preparation, dict) and preparation.keys() >= OF_BOXES
            row = row_of_kind("images", "noise" if DENOISER in known else "heatmaps" if boxes else "vector")
            kind: type[Description] = row.module("export").DESCRIPTION
            return kind.read(known)
        except (ValueError, RecursionError, ConfigError) as error:
            reason = error.what if isinstance(error, ConfigError) else str(error)
            raise ModelFileError(f"what the graph says of itself is damaged: {reason}", where=where, hint=hint) from None


def graph_of(reference: str | Path) -> Path | None:
    """The graph that a MODEL means, or None where it means something else.

    Raises:
        ModelFileError: a graph that is refused.
    """
    path = path_of(reference)
    if path.is_dir():
        found = [path / name for name in GRAPHS.values() if path.joinpath(name).is_file() and Path(name).suffix in RUNS]
        return found[0] if found and not has_weights(path) else None
    if path.suffix.lower() == ".pt2" and path.is_file():
        hint = f"give the folder it lies in, {path.parent}, if vitrail export wrote it"
        raise ModelFileError("a .pt2 may run code when it is loaded, and is refused", where=path, hint=hint)
    return path if path.suffix.lower() in RUNS and path.is_file() else None


def artefact_card(about: Description, to: str, figures: Mapping[str, Any]) -> str:
    """``README.md`` of an exported model: what it takes, what it gives, how to ask it."""
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
