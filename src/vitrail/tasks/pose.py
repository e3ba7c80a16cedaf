"""Where the joints of a person are: a heatmap for each (ViTPose; Xu et al. 2022, https://arxiv.org/abs/2204.12484)."""

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.checks import refuse_given
from vitrail.data.augment import Augmentation
from vitrail.data.batches import Batch
from vitrail.data.poses.dataset import PersonDataset
from vitrail.data.poses.people import Box, PeopleData, Person, Pose
from vitrail.data.poses.preparation import BoxPreparation
from vitrail.data.poses.skeleton import Skeleton
from vitrail.data.transform import Transform
from vitrail.errors import ConfigError
from vitrail.models.base import ImageModel
from vitrail.runtime.processes import Processes
from vitrail.tasks.heatmaps import decode, encode, mirrored, pixels_per_place
from vitrail.tasks.image_task import ImageTask
from vitrail.tasks.pose_metrics import Found, average_precision, coco_results, correct_shares, oks, pck, usual_length
from vitrail.tasks.settings import PoseSettings
from vitrail.tasks.task import Answers, Metrics, Options
from vitrail.weights.poses import TrainedPose

Network = Callable[[Tensor], Tensor]
"""Images (B, C, H, W) to heatmaps (B, K, h, w)."""


class PoseEstimation(ImageTask):
    """Heatmaps with a bell at every joint that is marked.

    The loss is the squared error of a heatmap, summed over its places, divided by what the bell itself has (π σ²): 1 for an empty
    heatmap, 0 for the bell; of an image the mean over all joints, where those that are not marked count as 0.

    Args:
        model: images (B, C, H, W) to heatmaps (B, K, h, w).
        preparation: cuts people out and normalizes the pixels.
        skeleton: the joints.
        settings: the width of the bells, and whether mirror images are asked as well.
    """

    name = "pose"
    answers_slowly: ClassVar[bool] = True

    def __init__(self, model: ImageModel, preparation: BoxPreparation, skeleton: Skeleton, settings: PoseSettings):
        super().__init__(model, preparation)
        self.boxes, self.skeleton, self.settings = preparation, skeleton, settings

    @classmethod
    def create(cls, model: ImageModel, preparation: Any, data: Any, options: Options) -> Self:
        assert isinstance(options.task, PoseSettings) and isinstance(data, PeopleData)
        given = {"--teacher": options.teacher is not None, "--balance": options.balance != "none"}
        refuse_given("pose estimation has no classes and no teacher", given)
        return cls(model, preparation, data.skeleton, options.task)

    def dataset(  # type: ignore[override]
        self,
        items: Sequence[Person],
        augmentation: Augmentation | None = None,
        *,
        seed: int = 0,
        transform: Transform | None = None,
    ) -> PersonDataset:
        """People as the model sees them."""
        if transform is not None:
            hint = "leave transform out"
            raise ConfigError("joints cannot follow a transform of one's own", where="transform", hint=hint)
        return PersonDataset(items, self.boxes, self.skeleton, augmentation, seed)

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        images = self.images(batch)  # which may be smaller in this step
        high, wide = size = (images.shape[-2], images.shape[-1])
        scale = torch.tensor([wide / self.boxes.image_size[1], high / self.boxes.image_size[0]]).to(images)
        smaller = {"joints": (batch["joints"] + 0.5) * scale - 0.5, "weights": batch["weights"]}
        return {"loss": losses(self.network(images), smaller, size, self.settings.sigma).mean()}

    def answer(self, batch: Batch) -> Answers:
        """``joints``, places in the input (B, K, 2), ``scores``, the heights of their peaks (B, K), and the ``loss`` (B,)."""
        return answers_of(self.network, self.images(batch), batch, self.boxes, self.skeleton, self.settings)

    def metrics(self, *, keep: bool = False) -> "PoseMetrics":
        return PoseMetrics(self.boxes, self.skeleton, keep=keep)

    def trained(self, model: ImageModel) -> TrainedPose:
        return TrainedPose(model, self.skeleton, self.boxes)


def losses(heatmaps: Tensor, batch: Batch, image_size: tuple[int, int], sigma: float) -> Tensor:
    """The loss of each image, (B,), of heatmaps (B, K, h, w) of images of this height and width; see `PoseEstimation`."""
    targets, shown = encode(batch["joints"], image_size, (heatmaps.shape[-2], heatmaps.shape[-1]), sigma=sigma)
    errors = F.mse_loss(heatmaps.float(), targets, reduction="none").sum(dim=(2, 3))  # (B, K)
    return (errors * shown * batch["weights"]).mean(dim=1) / (math.pi * sigma**2)


def answers_of(
    network: Network, images: Tensor, batch: Batch, preparation: BoxPreparation, skeleton: Skeleton, settings: PoseSettings
) -> Answers:
    """`PoseEstimation.answer` of any network: images (B, C, H, W), as it takes them, to heatmaps (B, K, h, w)."""
    heatmaps, plain = heatmaps_of(network, images, preparation, skeleton, mirror=settings.mirror)
    loss = losses(plain, batch, preparation.image_size, settings.sigma)
    joints, scores = joints_in(heatmaps, preparation)
    return {"joints": joints, "scores": scores, "loss": loss}


def heatmaps_of(
    network: Network, images: Tensor, preparation: BoxPreparation, skeleton: Skeleton, *, mirror: bool
) -> tuple[Tensor, Tensor]:
    """What a network answers to images (B, C, H, W), in as many views as it needs: (B, K, h, w), and the same without ``mirror``.

    Where it has learned from people who were turned upright, the answer in the quarter turn of which it is the surest; with
    ``mirror`` the mean of the answers to this view and to its mirror image.
    """
    heatmaps, turns = surest(network, images) if preparation.upright else (network(images), torch.zeros(len(images)))
    plain = turned(heatmaps, -turns)
    if not mirror:
        return plain, plain
    other = mirrored(network(turned(images, turns).flip(-1)), skeleton.order_mirrored)
    return turned((heatmaps + other) / 2, -turns), plain


def surest(network: Network, images: Tensor) -> tuple[Tensor, Tensor]:
    """Of square images (B, C, H, H) the heatmaps (B, K, h, h) of each in the quarter turn in which their peaks are the highest.

    And by how many quarter turns against the clock that is, (B,).
    """
    answers = torch.stack([network(torch.rot90(images, turns, (-2, -1))) for turns in range(4)])  # (4, B, K, h, h)
    turns = answers.flatten(3).amax(dim=3).mean(dim=2).argmax(dim=0)
    return answers[turns, torch.arange(len(images))], turns.cpu()


def turned(images: Tensor, turns: Tensor) -> Tensor:
    """Square images (B, C, H, H), each turned by its own number of quarter turns against the clock (B,)."""
    if not turns.any():
        return images
    return torch.stack([torch.rot90(image, int(count), (-2, -1)) for image, count in zip(images, turns, strict=True)])


def joints_in(heatmaps: Tensor, preparation: BoxPreparation) -> tuple[Tensor, Tensor]:
    """The joints that heatmaps (B, K, h, w) of prepared inputs show: places in the input (B, K, 2), and scores (B, K)."""
    places, scores = decode(heatmaps.float(), sigma=preparation.smoothing)
    size = (heatmaps.shape[-2], heatmaps.shape[-1])
    return places * pixels_per_place(preparation.image_size, size).to(places), scores


class PoseMetrics(Metrics):
    """Whether joints are where they are marked; with ``keep`` also COCO's average precision.

    Args:
        preparation: by which people were cut out.
        skeleton: the joints.
        keep: whether to compute what takes longer.
    """

    def __init__(self, preparation: BoxPreparation, skeleton: Skeleton, *, keep: bool = False):
        self.preparation, self.skeleton, self.keep = preparation, skeleton, keep
        self.rows: list[Row] = []

    def update(self, answers: Answers, batch: Batch) -> None:
        joints, scores, losses = (answers[name].double().cpu().numpy() for name in ("joints", "scores", "loss"))
        for place, number in enumerate(batch["number"].tolist()):
            marked = tuple((x, y, int(seen)) for x, y, seen in batch["marked"][place].tolist())
            box, area, picture = Box(*batch["box"][place].tolist()), batch["area"][place].item(), int(batch["picture"][place])
            person = Person(str(number), b"", Pose(box, marked, area, picture, number))
            found = self.preparation.warp(box).outside(joints[place])
            self.rows.append(Row(number, person, found, scores[place], float(losses[place])))

    def reduce(self, group: Processes) -> None:
        if group.count > 1:
            self.rows = [row for part in group.all_gather(self.rows) for row in part]
        self.rows.sort(key=lambda row: row.number)

    @property
    def people(self) -> list[Person]:
        """The people by their numbers, which are their names here."""
        return [row.person for row in self.rows]

    @property
    def found(self) -> Found:
        """The joints of all `people` in their pictures."""
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
        """The `scores`, and PCK of each joint by its name, None of one that is nowhere marked."""
        if not self.rows:
            return dict(self.scores())
        shares = pck(self.found, self.people, self.skeleton, by=usual_length(self.skeleton)).per_joint.tolist()
        joints = {name: None if math.isnan(share) else share for name, share in zip(self.skeleton.joints, shares, strict=True)}
        return {**self.scores(), "joints": joints}


class Row(NamedTuple):
    """What is kept of a person."""

    number: int
    person: Person
    joints: np.ndarray
    """In the picture, (K, 2)."""
    scores: np.ndarray
    """(K,)."""
    loss: float
