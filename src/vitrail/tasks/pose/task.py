"""Pose estimation: a heatmap for each joint of a person (ViTPose; Xu et al. 2022, https://arxiv.org/abs/2204.12484)."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.data.images.augment import Augmentation
from vitrail.data.images.box_preparation import Box, BoxPreparation
from vitrail.data.images.transform import Transform
from vitrail.data.loading.batches import Batch
from vitrail.errors import ConfigError
from vitrail.models.base import ImageModel
from vitrail.runtime.processes import Processes
from vitrail.tasks.floor import Floor
from vitrail.tasks.image_task import ImageTask
from vitrail.tasks.pose.heatmaps import Network, encode, heatmaps_of, joints_in
from vitrail.tasks.pose.metrics import (
    Found,
    average_precision,
    coco_results,
    correct_shares,
    in_boxes,
    mean_pose,
    oks,
    pck,
    usual_length,
)
from vitrail.tasks.pose.people.dataset import PersonDataset
from vitrail.tasks.pose.people.people import PeopleData, Person, Pose
from vitrail.tasks.pose.people.skeleton import Skeleton
from vitrail.tasks.pose.settings import PoseSettings
from vitrail.tasks.pose.weights import TrainedPose
from vitrail.tasks.task import Answers, Metrics, Options


class PoseEstimation(ImageTask):
    """Pose estimation by heatmaps with a bell at every annotated joint.

    A heatmap's loss is its squared error, summed over cells and divided by that of an empty heatmap (π σ²): 1 for an empty
    heatmap, 0 for the exact bell. An image's loss is the mean over all joints, where joints without annotation count as 0.

    Args:
        model: maps images (B, C, H, W) to heatmaps (B, K, h, w).
        preparation: crops people and normalizes the pixels.
        skeleton: the joints.
        settings: width of the bells, and the use of mirror images.
    """

    name = "pose"
    scores_slower: ClassVar[bool] = True

    def __init__(self, model: ImageModel, preparation: BoxPreparation, skeleton: Skeleton, settings: PoseSettings):
        super().__init__(model, preparation)
        self.boxes, self.skeleton, self.settings = preparation, skeleton, settings
        if preparation.smaller_sizes:
            self.allow_any_size()

    @classmethod
    def create(cls, model: ImageModel, preparation: Any, data: Any, options: Options) -> Self:
        assert isinstance(options.task, PoseSettings) and isinstance(data, PeopleData)
        return cls(model, preparation, data.skeleton, options.task)

    def dataset(  # type: ignore[override]
        self,
        items: Sequence[Person],
        augmentation: Augmentation | None = None,
        *,
        seed: int = 0,
        transform: Transform | None = None,
    ) -> PersonDataset:
        if transform is not None:
            raise ConfigError("joints cannot be moved by a custom transform", where="transform", hint="leave transform out")
        return PersonDataset(items, self.boxes, self.skeleton, augmentation, seed)

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        images = self.images(batch)  # may be smaller than the model's size in this step
        high, wide = size = (images.shape[-2], images.shape[-1])
        scale = torch.tensor([wide / self.boxes.image_size[1], high / self.boxes.image_size[0]]).to(images)
        smaller = {"joints": (batch["joints"] + 0.5) * scale - 0.5, "weights": batch["weights"]}
        return {"loss": losses(self.network(images), smaller, size, self.settings.sigma).mean()}

    def answer(self, batch: Batch) -> Answers:
        """Return ``joints``, positions in the input (B, K, 2), ``scores``, their peaks' heights (B, K), and the ``loss`` (B,)."""
        return answers_of(self.network, self.images(batch), batch, self.boxes, self.skeleton, self.settings)

    def follow(self, batch: Batch) -> Answers:
        """Return the same as `answer`, with people in a single size."""
        boxes = self.boxes.changed(smaller_sizes=())
        return answers_of(self.network, self.images(batch), batch, boxes, self.skeleton, self.settings)

    def metrics(self, *, keep: bool = False) -> "PoseMetrics":
        return PoseMetrics(self.boxes, self.skeleton, keep=keep)

    def floor(self, metrics: Metrics, items: Sequence[Person], known: Sequence[Person]) -> Floor | None:
        """Return the scores of a constant pose, the mean pose of the ``known`` people in each person's box."""
        assert isinstance(metrics, PoseMetrics)
        people = metrics.people
        found = Found(in_boxes(mean_pose(known), people), np.ones((len(people), len(self.skeleton.joints))))
        return Floor("one pose for all", correct_shares(found, people, self.skeleton))

    def trained(self, model: ImageModel) -> TrainedPose:
        return TrainedPose(model, self.skeleton, self.boxes)


def losses(heatmaps: Tensor, batch: Batch, image_size: tuple[int, int], sigma: float) -> Tensor:
    """Return the loss of each image, (B,), from heatmaps (B, K, h, w) and the images' (height, width); see `PoseEstimation`."""
    targets, shown = encode(batch["joints"], image_size, (heatmaps.shape[-2], heatmaps.shape[-1]), sigma=sigma)
    errors = F.mse_loss(heatmaps.float(), targets, reduction="none").sum(dim=(2, 3))  # (B, K)
    return (errors * shown * batch["weights"]).mean(dim=1) / (math.pi * sigma**2)


def answers_of(
    network: Network, images: Tensor, batch: Batch, preparation: BoxPreparation, skeleton: Skeleton, settings: PoseSettings
) -> Answers:
    """Compute `PoseEstimation.answer` with any network from images (B, C, H, W), in its format, to heatmaps (B, K, h, w)."""
    heatmaps, plain = heatmaps_of(network, images, preparation, skeleton, mirror=settings.mirror)
    loss = losses(plain, batch, preparation.image_size, settings.sigma)
    joints, scores = joints_in(heatmaps, preparation)
    return {"joints": joints, "scores": scores, "loss": loss}


class PoseMetrics(Metrics):
    """PCK and OKS of predicted joints; with ``keep`` also COCO's average precision, which takes longer.

    Args:
        preparation: the preparation that cropped the people.
        skeleton: the joints.
        keep: computes all scores.
    """

    def __init__(self, preparation: BoxPreparation, skeleton: Skeleton, *, keep: bool = False):
        self.preparation, self.skeleton, self.keep = preparation, skeleton, keep
        self.rows: list[Row] = []

    def update(self, answers: Answers, batch: Batch) -> None:
        joints, scores, losses = (answers[name].cpu().double().numpy() for name in ("joints", "scores", "loss"))
        for place, number in enumerate(batch["number"].tolist()):
            marked = tuple((x, y, int(seen)) for x, y, seen in batch["marked"][place].tolist())
            box, area, picture = Box(*batch["box"][place].tolist()), batch["area"][place].item(), int(batch["picture"][place])
            person = Person(str(number), b"", Pose(box, marked, area, picture, number))
            found = self.preparation.warp(box).outside(joints[place])
            self.rows.append(Row(number, person, found, scores[place], float(losses[place])))

    def reduce(self, group: Processes) -> None:
        self.rows = sorted(group.gathered(self.rows), key=lambda row: row.number)

    @property
    def people(self) -> list[Person]:
        """The people; their names are item numbers here."""
        return [row.person for row in self.rows]

    @property
    def found(self) -> Found:
        """The predicted joints of all `people`, in image coordinates."""
        return Found(np.stack([row.joints for row in self.rows]), np.stack([row.scores for row in self.rows]))

    def scores(self) -> dict[str, float | int]:
        if not self.rows:
            return {"loss": 0.0, "people": 0}
        found, people, skeleton = self.found, self.people, self.skeleton
        scores = {**correct_shares(found, people, skeleton), "oks": float(np.nanmean(oks(found, people, skeleton)))}
        if self.keep:
            results = coco_results([person.target.image for person in people], found)
            scores |= average_precision(results, people, skeleton)
        return {**scores, "loss": float(np.mean([row.loss for row in self.rows])), "people": len(self.rows)}

    def details(self) -> dict[str, Any]:
        """Return `scores`, the length of PCK (``pck_by``), people without it (``pck_left_out``), and the PCK of each joint.

        ``joints`` has None for a joint without any annotation.
        """
        if not self.rows:
            return dict(self.scores())
        by = usual_length(self.people, self.skeleton)
        near = pck(self.found, self.people, self.skeleton, by=by)
        shares = zip(self.skeleton.joints, near.per_joint.tolist(), strict=True)
        joints = {name: None if math.isnan(share) else share for name, share in shares}
        return {**self.scores(), "pck_by": by, "pck_left_out": near.left_out, "joints": joints}

    def lines(self, details: Mapping[str, Any]) -> list[str]:
        shares = details.get("joints", {}).items()
        return [f"{joint:<20} {'unknown' if share is None else f'{100 * share:.2f} %'}" for joint, share in shares]

    def remarks(self, details: Mapping[str, Any]) -> list[str]:
        if not (left_out := details.get("pck_left_out")):
            return []
        return [f"left out of PCK: {left_out:,} people, of whom the length of the {details['pck_by']} is not known"]


class Row(NamedTuple):
    """A person with predicted joints in the image (K, 2), their scores (K,), and the loss."""

    number: int
    person: Person
    joints: np.ndarray
    scores: np.ndarray
    loss: float


create = PoseEstimation.create
