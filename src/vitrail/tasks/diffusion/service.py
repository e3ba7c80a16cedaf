"""What a model of diffusion contributes to a server: images from noise, whose steps are computed together."""

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, get_args

from torch import Tensor

from vitrail.deploy.server.http.bodies import Json
from vitrail.deploy.server.http.limits import Limits
from vitrail.deploy.server.http.pages import Page
from vitrail.deploy.server.http.problems import ProblemError
from vitrail.deploy.server.opening import Model
from vitrail.deploy.server.operation import Computed, Operation, Prepared, ServerSettings
from vitrail.deploy.server.queue import UNFINISHED
from vitrail.errors import ConfigError
from vitrail.tasks.diffusion import schema
from vitrail.tasks.diffusion.sampling.making import class_indices, open_diffusion, require_possible_guidance
from vitrail.tasks.diffusion.sampling.options import Sampling
from vitrail.tasks.diffusion.sampling.samplers import SamplerName
from vitrail.tasks.diffusion.sampling.shared import ImageInProgress, share_pass
from vitrail.tasks.diffusion.weights import TrainedDiffusion

USUAL_STEPS = 50
"""Passes of a usual image."""


class Settings(ServerSettings):
    """Options of a server of images from noise."""

    engine: str = "auto"


def open_served(model: Model, settings: Settings) -> "ServedSamples":
    """Open a model of diffusion for a server."""
    return ServedSamples(open_diffusion(model, engine=settings.engine).for_sampling(), settings.limits)


class ServedSamples:
    """Images from noise. What waits and is computed together are passes, one of each image at a time.

    Args:
        trained: makes the images; used by one thread.
        limits: what is taken on.
    """

    summary, items = "Images from noise, each by its seed and its class.", "passes"
    document, tensors = schema.SampleModel, None

    def __init__(self, trained: TrainedDiffusion, limits: Limits):
        self.trained, self.limits = trained, limits
        example = schema.EXAMPLE if trained.labels else '{"seed": 7}'
        self.page = Page(
            Path(__file__).parent / "page", "samples", f"--json '{example}' ADDRESS/sample", pictures=False, sent="Requests"
        )
        self.guides = self._possible(Sampling(guidance=2))
        self.samplers = [name for name in get_args(SamplerName) if self._possible(Sampling(sampler=name))]
        self.operations = (
            Operation(
                path="/sample",
                summary="Make images",
                description="Images of one class or of all. Each depends on its seed, its class and the options alone.",
                body=Json(schema.ToSample, example),
                document=schema.Samples,
                understand=self._require_possible,
                prepare=self._begun,
                rows=lambda fields: fields.count * fields.steps * (2 if fields.sampler == "heun" else 1),
                run=self._advanced,
                turns=USUAL_STEPS,
                answer=self._images,
            ),
        )

    def described(self) -> dict[str, Any]:
        """Return the model's classes, its choices, and the limits of a request."""
        limits, config = self.limits, self.trained.preparation
        return {
            "engine": getattr(self.trained.model, "engine", "torch fp32"),
            "classes": self.trained.labels,
            "size": list(config.image_size),
            "guidance": self.guides,
            "samplers": self.samplers,
            "limits": {
                "body": limits.body,
                "images": limits.items,
                "steps": schema.MOST_STEPS,
                "guidance": schema.MOST_GUIDANCE,
                "deadline": limits.deadline,
            },
        }

    def blank(self) -> ImageInProgress:
        """Return an image of any class, with guidance where there can be some: it takes two passes."""
        sampling = Sampling(guidance=2.0 if self.guides else 1.0)
        return ImageInProgress(self.trained, 0, 0 if self.trained.labels else None, sampling)

    def _possible(self, sampling: Sampling) -> bool:
        try:
            require_possible_guidance(self.trained, sampling)
        except ConfigError:
            return False
        return True

    def _require_possible(self, fields: schema.ToSample) -> schema.ToSample:
        """Return the fields; raises `ProblemError` for what the model cannot do, and for more than the limits."""
        if fields.count > self.limits.items:
            what = f"the request is for {fields.count:,} images, and {self.limits.items} are made at a time"
            raise ProblemError(413, what, hint="ask for them in several requests")
        with _as_problem():
            require_possible_guidance(self.trained, _sampling(fields))
            self._labels(fields)
        return fields

    def _labels(self, fields: schema.ToSample) -> list[int | None]:
        """Return the class of each image; raises `ConfigError` where there is none of that name or index."""
        labels, chosen = self.trained.labels, fields.class_
        if isinstance(chosen, int) and labels:
            if not 0 <= chosen < len(labels):
                raise ConfigError(f"there is no class {chosen}", where="class", hint=f"give 0 to {len(labels) - 1}, or a name")
            return [chosen] * fields.count
        return class_indices(self.trained, None if chosen is None else [str(chosen)], fields.count)

    def _begun(self, content: bytes, fields: schema.ToSample) -> Prepared[ImageInProgress]:
        labels, sampling = self._labels(fields), _sampling(fields)
        rows = [ImageInProgress(self.trained, fields.seed + number, label, sampling) for number, label in enumerate(labels)]
        return Prepared(rows, labels)

    def _advanced(self, rows: list[ImageInProgress]) -> list[Any]:
        return [UNFINISHED if image is None else image for image in share_pass(self.trained, rows)]

    def _images(self, fields: schema.ToSample, documents: list[Computed[Tensor]]) -> dict[str, Any]:
        ((_, labels, outputs),) = documents
        images = []
        for number, (label, output) in enumerate(zip(labels, outputs, strict=True)):
            (picture,) = self.trained.pictures(output)
            file = BytesIO()
            picture.save(file, "PNG")
            images.append(
                {
                    "class": self.trained.class_name(label),
                    "seed": fields.seed + number,
                    "png": base64.b64encode(file.getvalue()).decode(),
                }
            )
        return {"images": images}


def _sampling(fields: schema.ToSample) -> Sampling:
    return Sampling(fields.steps, fields.guidance, fields.sampler)


@contextmanager
def _as_problem() -> Iterator[None]:
    """Raise an error of the options as a `ProblemError`, without the dashes of the command line."""
    try:
        yield
    except ConfigError as error:
        raise ProblemError(422, error.what.replace("--", ""), hint=error.hint and error.hint.replace("--", "")) from None
