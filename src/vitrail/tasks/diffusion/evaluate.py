"""Evaluation of a model that makes images: its loss, how like real images its images are, and whether it copies."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from PIL import Image

from vitrail.data.items import Item
from vitrail.data.loading.batches import on_device
from vitrail.data.loading.prefetch import each_answer
from vitrail.data.loading.sampler import some_items, spread
from vitrail.deploy.embed import embed
from vitrail.deploy.predict import open_predictor
from vitrail.deploy.predictor import predict_each
from vitrail.errors import ConfigError, DataError
from vitrail.files import whole_folder
from vitrail.models.inference import evaluation_mode
from vitrail.runtime.output import require_free
from vitrail.runtime.processes import ALONE, Processes
from vitrail.study.page import figures
from vitrail.tasks.diffusion.quality import distances
from vitrail.tasks.diffusion.quality.bound import bits_per_value
from vitrail.tasks.diffusion.quality.copies import Copies
from vitrail.tasks.diffusion.quality.real_images import RealImages
from vitrail.tasks.diffusion.sampling.making import class_indices, require_possible_guidance, sample_pictures
from vitrail.tasks.diffusion.sampling.options import Sampling
from vitrail.tasks.diffusion.sampling.sheet import copy_sheet
from vitrail.tasks.diffusion.settings import DiffusionSettings
from vitrail.tasks.diffusion.task import Diffusion
from vitrail.tasks.diffusion.weights import TrainedDiffusion, require_diffusion
from vitrail.tasks.evaluation import EvaluationOptions, Request, StreamedEvaluation
from vitrail.tasks.options import OptionPath
from vitrail.tasks.task import Answers, Metrics
from vitrail.training.runs.data_of_model import scoring_run
from vitrail.weights.model_folder.folder import TrainedModel, require_of_images
from vitrail.weights.reference import open_model

FEWEST = 2 * (distances.NEIGHBOURS + 1)
"""Real images below which distances mean nothing."""
COPIES = "copies.png"


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
    bits: int = 32
    """Images whose bits per dimension are counted, where the model has learned a variance: a pass for each of its times."""
    pictures: OptionPath | None = None
    """A new folder for the samples that are nearest to a training image, each beside it."""
    latents: OptionPath | None = None
    """Folder of the VAE of a model of latents, where it is not the one that the model names."""
    refusal: ClassVar[str] = "the evaluation of a diffusion model has no such option: it runs in Python, in fp32"


SETTINGS = SampleOptions


def evaluation(request: Request) -> "SampleEvaluation":
    """Return the evaluation of a run's best model.

    Raises:
        ConfigError: an option that cannot be, or a classifier of other classes.
        DataError: the data has other classes, or too few images.
    """
    run, options = scoring_run(request.reference), request.options
    assert run is not None
    trained = require_diffusion(open_model(run.path), request.reference, latents=options.latents)
    sampling = Sampling(options.steps, options.guidance)
    require_possible_guidance(trained, sampling)
    if options.pictures is not None:
        require_free(options.pictures, where="--pictures")
    features = None if options.features is None else open_model(options.features)
    if features is not None:
        require_of_images(features.model)
    judge = _judge(trained, options.classifier)
    real = RealImages.open(request, run, trained)
    split = request.split or real.source.evaluation_split
    settings = run.settings.task
    assert isinstance(settings, DiffusionSettings)
    settings = settings.changed(latents=trained.latents)
    task = Diffusion(trained.model, trained.preparation, trained.labels, settings)
    loss = StreamedEvaluation.of_task(task, real.source.split(split), split, options.batch_size)
    result = SampleEvaluation(loss, task, trained, options, sampling, real, features, judge)
    if options.count and result.count < FEWEST:
        what = f"{real.count:,} real images; distances need {2 * FEWEST} or more"
        raise DataError(what, where="--data", hint="give more images, or --count 0 for the loss alone")
    return result


def _judge(trained: TrainedDiffusion, classifier: str | None) -> Any:
    """Return the predictor of a classifier, if there is one; raises `ConfigError` where it does not know the model's classes."""
    if classifier is None:
        return None
    if not trained.labels:
        raise ConfigError("the model knows no classes", where="--classifier", hint="leave --classifier out")
    judge: Any = open_predictor(classifier)
    if missing := [label for label in trained.labels if label not in getattr(judge, "labels", ())]:
        what = f"the classifier does not know the class {missing[0]!r}"
        raise ConfigError(what, where="--classifier", hint="give a classifier of the same classes")
    return judge


@dataclass
class SampleEvaluation:
    """The loss on some items, and images that are made to be compared with real ones."""

    loss: StreamedEvaluation
    task: Diffusion
    trained: TrainedDiffusion
    options: SampleOptions
    sampling: Sampling
    real: RealImages
    features: TrainedModel | None
    judge: Any
    reads_here: bool = True

    @property
    def items(self) -> Sequence[Any]:
        """The items of the loss, the images whose bits are counted, and the images that are made."""
        return [*self.loss.items, *range(self.bits + self.count)]

    @property
    def split(self) -> str:
        """The split of the loss."""
        return self.loss.split

    @property
    def count(self) -> int:
        """Number of images that are made: no more than half of the real ones, or none would be left for the floor."""
        return min(self.options.count, self.real.count // 2)

    @property
    def bits(self) -> int:
        """Number of images whose bits are counted; the bound of latents says nothing of pixels."""
        config: Any = self.trained.config
        counted = self.options.count and config.learned_variance and self.trained.latents is None
        return min(self.options.bits, len(self.loss.items)) if counted else 0

    def run(
        self, *, workers: int = 0, on_batch: Callable[[int], None] | None = None, group: Processes = ALONE
    ) -> "SampleMetrics":
        """Return the loss, and the distances of made images beside their floors."""
        on_batch = on_batch or (lambda images: None)
        metrics = SampleMetrics(self.loss.run(workers=workers, on_batch=on_batch, group=group))
        if self.bits:
            metrics.made["bits_per_dimension"] = self.bits_per_dimension(on_batch)
        if not self.count:
            return metrics
        labels = class_indices(self.trained, None, self.count)
        pictures = self.sampled(labels, on_batch)
        made, (first, second) = self.vectors(pictures), self.real.two_sets(self.count)
        real, others = (self.vectors([item.image for item in items]) for items in (first, second))
        metrics.made |= distances.figures(real, made)
        metrics.floors |= distances.figures(real, others)
        if self.real.learned and self.real.held_out:
            held_out = some_items(self.real.held_out, self.count, seed=0)
            copies = Copies.search(made, held_out, self.real.learned, self.vectors)
            metrics.made["nearest_training_image"], metrics.floors["nearest_training_image"] = copies.ratio, 1.0
            metrics.copies = [self._row(labels, *worst) for worst in copies.worst()]
            if self.options.pictures is not None and group.first:
                with whole_folder(self.options.pictures, replace=False) as folder:
                    figures.save(copy_sheet(copies, pictures, self.trained.preparation), folder / COPIES)
        if self.judge is not None:
            metrics.made["agreement"] = self.agreement(pictures, labels)
            metrics.floors["agreement"] = self.agreement([item.image for item in second], [item.target for item in second])
        return metrics

    def _row(self, labels: Sequence[int | None], number: int, item: Item, distance: float) -> dict[str, Any]:
        """Return what JSON has of a sample and the training image nearest to it."""
        shown = self.trained.class_name(labels[number])
        return {"seed": number, "class": shown, "training_image": item.name, "distance": distance}

    def sampled(self, labels: Sequence[int | None], on_batch: Callable[[int], None]) -> list[Image.Image]:
        """Make images of these classes."""
        pictures = list[Image.Image]()
        for picture in sample_pictures(
            self.trained.for_sampling(), range(len(labels)), labels, self.sampling, batch_size=self.options.batch_size
        ):
            pictures.append(picture)
            on_batch(1)
        return pictures

    def bits_per_dimension(self, on_batch: Callable[[int], None]) -> float:
        """Return the mean of `bits_per_value` over some items of the split."""
        items = [self.loss.items[place] for place in spread(len(self.loss.items), self.bits)]
        samples, device = self.task.dataset(items), next(self.task.parameters()).device
        batch, steps, done = samples.batch([(0, number) for number in range(len(items))]), self.task.process.steps, [0]

        def on_time() -> None:
            done[0] += 1
            on_batch(done[0] * len(items) // steps - (done[0] - 1) * len(items) // steps)

        with evaluation_mode(self.task):
            return bits_per_value(self.task, on_device(batch, device), on_time).double().mean().item()

    def vectors(self, images: Sequence[Any]) -> np.ndarray:
        """Return what images are compared by, float64 (N, D): a model's vectors, or pixels from 0 to 1 as our model has them."""
        if self.features is not None:
            return embed(self.features, images, batch_size=self.options.batch_size).astype(np.float64)
        return distances.pixel_vectors(images, self.trained.preparation)

    def agreement(self, images: Sequence[Any], labels: Sequence[int | None]) -> float:
        """Return the fraction of images in which the classifier sees the class that they are of."""
        answers = each_answer(predict_each(self.judge, images, batch_size=self.options.batch_size))
        seen = [answer.to_json("")["predictions"][0]["label"] for answer in answers]
        wanted = [self.trained.labels[label] for label in labels if label is not None]
        return float(np.mean([a == b for a, b in zip(seen, wanted, strict=True)]))


class SampleMetrics(Metrics):
    """The loss, the figures of made images, and their floors, real images against others."""

    def __init__(self, loss: Metrics):
        self.loss = loss
        self.made, self.floors = dict[str, float](), dict[str, float]()
        self.copies: list[dict[str, Any]] = []
        """The samples nearest to a training image, the nearest first."""

    def update(self, answers: Answers, batch: Any) -> None:
        raise NotImplementedError

    def scores(self) -> dict[str, float | int]:
        return {**self.loss.scores(), **self.made}

    def details(self) -> dict[str, Any]:
        more = {"floor": dict(self.floors), "copies": self.copies} if self.floors else {}
        return {**self.loss.details(), **self.made, **more}

    def lines(self, details: Mapping[str, Any]) -> list[str]:
        lines = self.loss.lines(details)
        for name, value in self.made.items():
            beside = f"   real images: {self.floors[name]:.4f}" if name in self.floors else ""
            lines.append(f"{name.replace('_', ' '):<24} {value:.4f}{beside}")
        return lines
