"""A model that finds joints, in the one form that predictions and evaluations know."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from vitrail.data.images.box_preparation import Box, BoxPreparation
from vitrail.data.loading.batches import Batch
from vitrail.data.loading.loader import EpochLoader
from vitrail.deploy.predictor import OnBatch, Predictor, answering, in_python, no_classes, require_finite
from vitrail.runtime.device import Precision
from vitrail.runtime.memory import kept_memory
from vitrail.runtime.processes import ALONE, Processes
from vitrail.tasks.answer_table import Row
from vitrail.tasks.evaluation import evaluate
from vitrail.tasks.pose.metrics import CATEGORY, Found
from vitrail.tasks.pose.people.dataset import PersonDataset
from vitrail.tasks.pose.people.people import Person
from vitrail.tasks.pose.people.skeleton import Skeleton
from vitrail.tasks.pose.settings import PoseSettings
from vitrail.tasks.pose.table import found_rows
from vitrail.tasks.pose.task import PoseMetrics, answers_of, heatmaps_of, joints_in, surest_turns
from vitrail.tasks.pose.weights import TrainedPose, no_joints
from vitrail.tasks.task import Answers
from vitrail.weights.model_folder.folder import TrainedModel


class FoundPerson(NamedTuple):
    """A person in a picture, as a model finds the joints."""

    box: Box
    """In which they were looked for."""
    joints: np.ndarray
    """float64 (K, 2): x and y in pixels of the upright picture, where the centre of the first pixel is (0, 0)."""
    scores: np.ndarray
    """float64 (K,): how sure the model is of each."""
    score: float
    """How sure it is of the person; see `vitrail.tasks.pose.metrics.person_score`."""

    def to_json(self, skeleton: Skeleton) -> dict[str, Any]:
        """As in COCO's results of keypoints, and the joints by their names.

        Without ``bbox``: where results have one, COCO's evaluators take the size of a person from it, and not from the joints.
        """
        rows = np.column_stack([self.joints, self.scores])  # (K, 3)
        return {
            "category_id": CATEGORY,
            "keypoints": rows.ravel().tolist(),
            "score": self.score,
            "joints": dict(zip(skeleton.joints, rows.tolist(), strict=True)),
        }


def people_rows(pictures: Sequence[tuple[str, Sequence[FoundPerson]]], skeleton: Skeleton) -> list[Row]:
    """Return a head and a row for each person in some pictures: as `found_rows`, with the person's number in the picture."""
    found = [(name, number, one) for name, people in pictures for number, one in enumerate(people, 1)]
    people, count = [one for *_, one in found], len(skeleton.joints)
    places = np.array([one.joints for one in people]).reshape(-1, count, 2)  # there may be nobody
    joints = Found(places, np.array([one.scores for one in people]).reshape(-1, count))
    scores = np.array([one.score for one in people])
    (head, *rows) = found_rows([name for name, *_ in found], [one.box for one in people], joints, scores, skeleton)
    numbered = [[name, str(number), *row] for (name, *row), (_, number, _) in zip(rows, found, strict=True)]
    return [[head[0], "person", *head[1:]], *numbered]


@dataclass(frozen=True)
class PosePredictor:
    """A model that only answers with joints, in Python or behind an engine."""

    name: str
    """What runs it, in which precision: ``torch fp32``."""
    skeleton: Skeleton
    """The joints, one for each heatmap."""
    preparation: BoxPreparation
    """What cuts a person out of a picture."""
    heatmaps: Callable[[Tensor], Tensor]
    """Prepared pixels, uint8 (B, C, H, W), to float32 (B, K, h, w), on the CPU; for one thread at a time. They may be smaller
    than the model's own size, where the preparation has smaller sizes."""

    def run(self, pixels: Tensor) -> Tensor:
        """What it computes of some boxes, by a name that all predictors have: heatmaps, after a look in every turn."""
        return heatmaps_of(self.heatmaps, pixels, self.preparation, self.skeleton, mirror=False)[0]

    def joints(self, pixels: Tensor, *, mirror: bool = False) -> tuple[Tensor, Tensor]:
        """Prepared pixels, uint8 (B, C, H, W), to places in them, float64 (B, K, 2), and scores (B, K).

        Args:
            pixels: of people that were cut out.
            mirror: whether the answers to the mirror images are taken into the mean, which takes twice the time; where boxes are
                looked at in eight turns, they are left out.

        Raises:
            ModelFileError: the model's answers are not finite.
        """
        heatmaps, _ = heatmaps_of(self._finite, pixels, self.preparation, self.skeleton, mirror=mirror)
        places, scores = joints_in(heatmaps, self.preparation)
        return places.double(), scores.double()

    def smoothed_by(self, smoothing: float | None) -> Self:
        """The same with another deviation by which heatmaps are smoothed, in places; with None as the model keeps it."""
        return self if smoothing is None else replace(self, preparation=self.preparation.changed(smoothing=smoothing))

    def turns(self, pixels: Tensor) -> Tensor:
        """By how many quarter turns against the clock each of some pixels (B, C, H, W) is looked at: (B,)."""
        return surest_turns(self._finite, pixels) if self.preparation.upright else torch.zeros(len(pixels))

    def _finite(self, pixels: Tensor) -> Tensor:
        return require_finite(self.heatmaps(pixels))

    def evaluate(
        self,
        people: Sequence[Person],
        settings: PoseSettings,
        *,
        batch_size: int,
        workers: int = 0,
        on_batch: OnBatch | None = None,
        group: Processes = ALONE,
    ) -> PoseMetrics:
        """Its metrics on people with its own joints, all scores among them; `vitrail.evaluate` describes the arguments."""

        def answer(batch: Batch) -> Answers:
            return answers_of(self._finite, batch["images"], batch, self.preparation, self.skeleton, settings)

        dataset = PersonDataset(people, self.preparation, self.skeleton)
        loader = EpochLoader(dataset, batch_size, shuffle=False, workers=workers, part=(group.rank, group.count))
        metrics = PoseMetrics(self.preparation, self.skeleton, keep=True)
        with kept_memory():
            return evaluate(answer, loader, metrics, on_batch=on_batch, group=group)


AnyPredictor = Predictor | PosePredictor


def any_in_python(
    trained: TrainedModel, precision: Precision = "fp32", device: torch.device | str = "cpu", *, prepacked: bool = True
) -> AnyPredictor:
    """A trained model as it is; see `vitrail.deploy.predictor.in_python`."""
    if not isinstance(trained, TrainedPose):
        return in_python(trained, precision, device, prepacked=prepacked)
    any_size = bool(trained.preparation.smaller_sizes)
    heatmaps = answering(trained, precision, device, prepacked=prepacked, any_size=any_size)
    return PosePredictor(f"torch {precision}", trained.skeleton, trained.preparation, heatmaps)


def of_classes(predictor: AnyPredictor) -> Predictor:
    """A predictor of classes; raises `ModelFileError` for any other."""
    if isinstance(predictor, PosePredictor):
        raise no_classes()
    return predictor


def of_joints(predictor: AnyPredictor, where: object) -> PosePredictor:
    """A predictor of joints; raises `ModelFileError` for any other."""
    if isinstance(predictor, PosePredictor):
        return predictor
    raise no_joints(where)
