"""Segmentation: a class for every pixel of an image."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.data.images.augment import Augmentation
from vitrail.data.images.preparation import Preparation
from vitrail.data.images.transform import Transform
from vitrail.data.items import Item
from vitrail.data.loading.batches import Batch
from vitrail.data.loading.loader import EpochLoader
from vitrail.errors import ConfigError
from vitrail.models.base import ImageModel
from vitrail.tasks.evaluation import answering
from vitrail.tasks.floor import Floor
from vitrail.tasks.image_task import ImageTask
from vitrail.tasks.segmentation.files.coding import Coding
from vitrail.tasks.segmentation.files.data import SegmentationData
from vitrail.tasks.segmentation.judging.metrics import SegmentationMetrics, iou, mean
from vitrail.tasks.segmentation.learning.crops import SegmentationDataset
from vitrail.tasks.segmentation.learning.losses import IGNORED, mask_loss
from vitrail.tasks.segmentation.settings import SegmentationSettings
from vitrail.tasks.segmentation.weights import TrainedSegmenter, multiple_of, view_of
from vitrail.tasks.segmentation.windows import Network, View, logits_in_bands
from vitrail.tasks.task import Answers, Metrics, Options


class Segmentation(ImageTask):
    """Segmentation by a model that gives logits for a grid of places in the image.

    In training, images are crops of the model's size. In evaluation they have their own size.

    Args:
        model: a segmenter: maps images (B, C, H, W) to logits (B, K, h, w), and with ``separate`` also to those of an auxiliary
            head, or None.
        preparation: normalizes the pixels.
        coding: the classes, and their values in the masks.
        settings: the losses, and the windows of evaluation.
    """

    name = "segment"
    model: Any

    def __init__(self, model: ImageModel, preparation: Preparation, coding: Coding, settings: SegmentationSettings):
        super().__init__(model, preparation)
        self.coding, self.settings = coding, settings
        self.view = view_of(preparation, settings, multiple_of(model))

    @classmethod
    def create(cls, model: ImageModel, preparation: Any, data: Any, options: Options) -> Self:
        assert isinstance(options.task, SegmentationSettings) and isinstance(data, SegmentationData)
        return cls(model, preparation, data.coding, options.task)

    def dataset(
        self,
        items: Sequence[Item],
        augmentation: Augmentation | None = None,
        *,
        seed: int = 0,
        transform: Transform | None = None,
    ) -> SegmentationDataset:
        if transform is not None:
            raise ConfigError("masks cannot follow a custom transform", where="transform", hint="leave transform out")
        return SegmentationDataset(items, self.preparation, self.coding, augmentation, seed)

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        logits, auxiliary = self.network(self.images(batch), separate=True)
        masks = batch["masks"]
        loss = mask_loss(self.model.enlarged(logits, *masks.shape[-2:]), masks, self.settings)
        if auxiliary is not None:
            loss = loss + self.settings.auxiliary * mask_loss(auxiliary, masks, self.settings)
        return {"loss": loss}

    def answer(self, batch: Batch) -> Answers:
        """Return ``masks``, the predicted class of every pixel, int64 (B, H, W), and of each image (B,) the ``loss``.

        The loss is the plain cross-entropy, summed over the known pixels; ``pixels`` is their number.
        """
        return answers_of(self.logits, batch, self.view)

    def logits(self, pixels: Tensor) -> Tensor:
        """Return the logits (B, K, h, w) of pixels, uint8 (B, C, H, W)."""
        logits: Tensor = self.model(self.preparation.normalize(pixels))
        return logits.float()

    def mask(self, item: Item) -> np.ndarray:
        """Return the predicted class of every pixel of an image, (H, W)."""
        batch = next(EpochLoader(self.dataset([item]), 1, shuffle=False).epoch())
        device = next(self.model.parameters()).device
        with answering(self, device) as answer:
            mask: np.ndarray = answer(batch)["masks"][0].cpu().numpy()
        return mask

    def metrics(self, *, keep: bool = False) -> SegmentationMetrics:
        return SegmentationMetrics(self.coding.classes, keep=keep)

    def floor(self, metrics: Metrics, items: Sequence[Item], known: Sequence[Item]) -> Floor | None:
        """Return the scores of the commonest class of the scored pixels, everywhere."""
        assert isinstance(metrics, SegmentationMetrics)
        true = metrics.confusion.sum(axis=1)
        everywhere = np.zeros_like(metrics.confusion)
        commonest = int(true.argmax())
        everywhere[:, commonest] = true
        return Floor(f"{self.coding.classes[commonest]} everywhere", {"miou": mean(iou(everywhere))})

    def trained(self, model: ImageModel) -> TrainedSegmenter:
        return TrainedSegmenter(model, self.coding.classes, self.coding.colors, self.preparation)


def answers_of(network: Network, batch: Batch, view: View) -> Answers:
    """Compute `Segmentation.answer` with any network, for ``images`` (B, C, H, W) and ``masks`` (B, H, W) of one size."""
    images, masks = batch["images"], batch["masks"]
    predicted = torch.zeros_like(masks)
    losses, pixels = torch.zeros(2, len(masks), dtype=torch.float64)
    for rows, logits in logits_in_bands(network, images, view):
        predicted[:, rows] = logits.argmax(dim=1).to(predicted)
        truth = masks[:, rows].to(logits.device)
        targets = truth.where(truth < logits.shape[1], IGNORED)
        entropy = F.cross_entropy(logits, targets, ignore_index=IGNORED, reduction="none")  # (B, rows, W)
        losses += entropy.sum(dim=(1, 2)).to(losses)
        pixels += (targets != IGNORED).sum(dim=(1, 2)).to(pixels)
    return {"masks": predicted, "loss": losses, "pixels": pixels}


create = Segmentation.create
