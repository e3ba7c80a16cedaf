"""Evaluation of a model that makes images: its loss, how like real images its images are, and whether it copies."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from PIL import Image

from vitrail.data.items import Item
from vitrail.data.loading.prefetch import each_answer
from vitrail.deploy.embed import embed
from vitrail.deploy.predict import open_predictor
from vitrail.deploy.predictor import predict_each
from vitrail.errors import ConfigError, DataError
from vitrail.runtime.processes import ALONE, Processes
from vitrail.task_registry import Labels
from vitrail.tasks.diffusion import quality
from vitrail.tasks.diffusion.sampling import Sampling, class_indices, sample_pictures
from vitrail.tasks.diffusion.settings import DiffusionSettings
from vitrail.tasks.diffusion.task import Diffusion
from vitrail.tasks.diffusion.weights import TrainedDiffusion, require_diffusion
from vitrail.tasks.evaluation import EvaluationOptions, Request, StreamedEvaluation
from vitrail.tasks.options import OptionPath
from vitrail.tasks.task import Answers, Metrics
from vitrail.training.images import open_images
from vitrail.training.runs.data_of_model import scoring_run
from vitrail.weights.reference import open_model

FEWEST = 2 * (quality.NEIGHBOURS + 1)
"""Real images below which distances mean nothing."""


class SampleOptions(EvaluationOptions):
    """Options of the evaluation of a model that makes images."""

    count: int = 600
    """Images that are made; fewer where there are not twice as many real ones. 0 for the loss alone."""
    features: str | None = None
    """A MODEL whose vectors stand for the images; by default their pixels do."""
    classifier: str | None = None
    """A MODEL that says which class a made image shows."""
    steps: int = 50
    guidance: float = 1.0
    latents: OptionPath | None = None
    """Folder of the VAE of a model of latents, where it is not the one that the model names."""
    refusal: ClassVar[str] = "a model that makes images is evaluated in Python, in fp32"


SETTINGS = SampleOptions


def evaluation(request: Request) -> "SampleEvaluation":
    """Return the evaluation of a run's best model; raises `DataError` where there are too few real images."""
    run = scoring_run(request.reference)
    assert run is not None
    trained = require_diffusion(open_model(run.path), request.reference, latents=request.options.latents)
    if request.options.classifier is not None and not trained.labels:
        raise ConfigError("the model knows no classes", where="--classifier", hint="leave --classifier out")
    labels: Labels = "optional" if trained.labels else "none"
    source = open_images(labels, request.data or run.settings.data.source, assignment=None if request.data else run.assignment)
    if trained.labels and source.classes != trained.labels:
        hint = "evaluate on data of the run's classes"
        raise DataError(f"the data has the classes {', '.join(source.classes) or 'none'}", where=source.source, hint=hint)
    split = request.split or source.evaluation_split
    items, options = source.split(split), request.options
    settings = run.settings.task
    assert isinstance(settings, DiffusionSettings)
    settings = settings.changed(latents=trained.latents)
    task = Diffusion(trained.model, trained.preparation, trained.labels, settings)
    loss = StreamedEvaluation.of_task(task, items, split, options.batch_size)
    learned = source.split("train")
    names = {item.name for item in learned}
    return SampleEvaluation(loss, trained, options, learned, [item for item in source.split("all") if item.name not in names])


@dataclass
class SampleEvaluation:
    """The loss on some items, and images that are made to be compared with real ones."""

    loss: StreamedEvaluation
    trained: TrainedDiffusion
    options: SampleOptions
    learned: Sequence[Item]
    others: Sequence[Item]
    """Real images that the model has not learned from."""
    reads_here: bool = True

    @property
    def items(self) -> Sequence[Any]:
        """The items of the loss and the images that are made."""
        return [*self.loss.items, *range(self.count)]

    @property
    def split(self) -> str:
        """The split of the loss."""
        return self.loss.split

    @property
    def count(self) -> int:
        """Number of images that are made: no more than half of the real ones, or than are left of them for the floor."""
        real = len(self.learned) + len(self.others)
        return min(self.options.count, real // 2)

    def run(
        self, *, workers: int = 0, on_batch: Callable[[int], None] | None = None, group: Processes = ALONE
    ) -> "SampleMetrics":
        """Return the loss, and the distances of made images beside their floors."""
        metrics = self.loss.run(workers=workers, on_batch=on_batch, group=group)
        if not self.options.count:
            return SampleMetrics(metrics.scores(), {}, {})
        if self.count < FEWEST:
            what = f"{len(self.learned) + len(self.others)} real images; distances need {2 * FEWEST} or more"
            raise DataError(what, where="--data", hint="give more images, or --count 0 for the loss alone")
        labels = class_indices(self.trained, None, self.count)
        pictures = self.made(labels, on_batch)
        random = np.random.default_rng(0)
        order = random.permutation(len(self.learned))
        real = self.vectors([item.image for item in (*(self.learned[number] for number in order), *self.others)])
        first, more = real[: self.count], real[self.count :]
        made = self.vectors(pictures)
        scores = quality.figures(first, made)
        floors = quality.figures(first, more[random.permutation(len(more))[: self.count]])
        if self.others:
            learned, others = np.split(real, [len(self.learned)])
            scores["nearest_training_image"], floors["nearest_training_image"] = quality.copy_ratio(made, learned, others), 1.0
        if self.options.classifier is not None:
            scores["agreement"] = self.agreement(pictures, labels)
        return SampleMetrics(metrics.scores(), scores, floors)

    def made(self, labels: Sequence[int | None], on_batch: Callable[[int], None] | None) -> list[Image.Image]:
        """Make images of these classes."""
        sampling, pictures = Sampling(self.options.steps, self.options.guidance), list[Image.Image]()
        for picture in sample_pictures(self.trained, range(len(labels)), labels, sampling, batch_size=self.options.batch_size):
            pictures.append(picture)
            if on_batch is not None:
                on_batch(1)
        return pictures

    def vectors(self, images: Sequence[Any]) -> np.ndarray:
        """Return what images are compared by, float64 (N, D): a model's vectors, or pixels from 0 to 1 as our model has them."""
        if self.options.features is not None:
            return embed(self.options.features, images, batch_size=self.options.batch_size).astype(np.float64)
        return quality.pixel_vectors([self.trained.preparation.pixels(image) for image in images])

    def agreement(self, pictures: Sequence[Image.Image], labels: Sequence[int | None]) -> float:
        """Return the fraction of made images in which a classifier sees the class that they were made of."""
        assert self.options.classifier is not None
        predictor = open_predictor(self.options.classifier)
        answers = each_answer(predict_each(predictor, pictures, batch_size=self.options.batch_size))
        seen = [answer.to_json("")["predictions"][0]["label"] for answer in answers]
        wanted = [self.trained.labels[label] for label in labels if label is not None]
        return float(np.mean([a == b for a, b in zip(seen, wanted, strict=True)]))


class SampleMetrics(Metrics):
    """The loss, the distances of made images, and their floors, real images against others."""

    def __init__(self, loss: Mapping[str, float | int], made: Mapping[str, float], floors: Mapping[str, float]):
        self.loss, self.made, self.floors = loss, made, floors

    def update(self, answers: Answers, batch: Any) -> None:
        raise NotImplementedError

    def scores(self) -> dict[str, float | int]:
        return {**self.loss, **self.made}

    def details(self) -> dict[str, Any]:
        return {**self.scores(), **({"floor": dict(self.floors)} if self.floors else {})}

    def lines(self, details: Mapping[str, Any]) -> list[str]:
        lines = []
        for name, value in self.made.items():
            beside = f"   real images: {self.floors[name]:.4f}" if name in self.floors else ""
            lines.append(f"{name.replace('_', ' '):<24} {value:.4f}{beside}")
        return lines
