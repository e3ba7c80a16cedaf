"""Export of models that make images: a graph that gives the noise, and all that a sampler needs beside it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from pydantic import model_validator
from torch import Tensor, nn

from vitrail.checks import refuse_given
from vitrail.deploy.export.artefact import Description, Sides
from vitrail.errors import ModelFileError
from vitrail.models.registry import architecture, architecture_of
from vitrail.runtime.observer import Note, Observer
from vitrail.tasks.diffusion.process import Process
from vitrail.tasks.diffusion.weights import TrainedDiffusion

FLOATS = "a model that makes images is exported in floats"
"""Reason why `auto` stands for floats alone."""


class GraphDenoiser(nn.Module):
    """A graph in the place of the model that it was made of: noisy images, times and classes to the noise.

    Args:
        run: runs the graph.
        config: the model's configuration.
        engine: engine and precision.
    """

    def __init__(self, run: Callable[..., Tensor], config: Any, engine: str):
        super().__init__()
        self.run, self.config, self.engine = run, config, engine
        self.device_holder = nn.Parameter(torch.empty(0), requires_grad=False)  # samplers put noise where the parameters are

    def forward(self, images: Tensor, times: Tensor, labels: Tensor | None = None) -> Tensor:
        """(B, C, H, W), (B,) and, of a model with classes, (B,) to the same as the model."""
        return self.run(images, times, *([] if labels is None else [labels]))


class DiffusionDescription(Description):
    """Description of a graph that gives the noise in images."""

    task: ClassVar[str] = "diffusion"
    gives: ClassVar[str] = "noise"
    each: ClassVar[str] = "noise of the shape of images"
    title: ClassVar[str] = "Classes, process"
    commands: ClassVar[str] = "vitrail sample . --out samples\nvitrail serve ."

    denoiser: str
    """Architecture of the model."""
    latents: str | None = None
    """Folder of the VAE that decodes what the model makes; None for a model of pixels."""
    fields: dict[str, Any]
    """The model's configuration: its size, objective, process, number of times and null class."""

    @model_validator(mode="after")
    def _of_a_denoiser(self) -> Self:
        if self.pixels or self.any_size or self.multi_label or self.config.answer != "noise":
            raise ValueError("the graph makes no images")
        if len(self.labels) != self.config.num_classes:
            raise ValueError("the labels are not the model's classes")
        return self

    @property
    def config(self) -> Any:
        """The model's configuration; raises `ConfigError` where there is no such model."""
        return architecture(self.denoiser).config.read(self.fields, where="fields")

    @property
    def inputs(self) -> dict[str, tuple[str, Sides]]:
        c = self.config
        labels: dict[str, tuple[str, Sides]] = {"labels": ("int64", (None,))} if c.num_classes else {}
        return {"images": ("float32", (None, c.channels, *c.image_size)), "times": ("float32", (None,)), **labels}

    @property
    def answer_shape(self) -> Sides:
        return (None, self.config.output_channels, *self.config.image_size)

    @property
    def signature(self) -> str:
        shapes = [f"`{name}` ({kind}, {_sides(shape)})" for name, (kind, shape) in self.inputs.items()]
        return f"takes {', '.join(shapes)}, and gives `{self.gives}`, {_sides(self.answer_shape)}"

    @classmethod
    def fields_of(cls, trained: Any, *, any_size: bool) -> dict[str, Any]:
        own = {"denoiser": architecture_of(trained.config).name, "fields": trained.config.model_dump(mode="json")}
        return {**super().fields_of(trained, any_size=any_size), **own, "latents": trained.latents}

    def network(self, session: Callable[..., Any]) -> Callable[..., Tensor]:
        """Return what runs the graph as a function of noisy images, times and classes to the noise, float32."""
        shape = self.answer_shape[1:]

        def network(*inputs: Tensor) -> Tensor:
            output = torch.from_numpy(session(*(tensor.contiguous().numpy() for tensor in inputs))).float()
            if output.shape != (len(inputs[0]), *shape):
                what = f"the graph gives {tuple(output.shape)} for {len(inputs[0])} images, where each has {shape}"
                raise ModelFileError(what, where=self.name, hint="export the model again")
            return output

        return network

    def predictor(self, network: Callable[..., Tensor], name: str) -> TrainedDiffusion:
        """Return the model with the graph in its place."""
        trained = TrainedDiffusion(GraphDenoiser(network, self.config, name), self.labels, self.preparation)
        trained.latents = self.latents
        return trained

    def examples(self, count: int, size: tuple[int, int], random: torch.Generator) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        c, process = self.config, Process.of(self.config)
        images = torch.randn(count, c.channels, *size, generator=random)
        shares = torch.rand(count, generator=random)
        times = process.model_times(shares if process.continuous else (shares * c.steps).floor())
        labels = [torch.randint(c.labels, (count,), generator=random)] if c.num_classes else []
        return [images, times, *labels], [images, times, *labels]


def _sides(shape: Sides) -> str:
    return f"({', '.join('batch' if side is None else str(side) for side in shape)})"


DESCRIPTION = DiffusionDescription


def require_exportable(trained: TrainedDiffusion, to: str, options: dict[str, bool], note: Note) -> None:
    """Raise `ConfigError` for options that need labels, pixels, or images of other sizes than the model's."""
    refuse_given(f"{FLOATS}, for noisy images of its own size", options)


def judging(predictor: Any, model: Any, data: str | Path | None, observer: Observer) -> None:
    """Raise `ConfigError` where data is named: nothing is judged."""
    refuse_given("how good samples are is what vitrail evaluate measures", {"--data": data is not None})
