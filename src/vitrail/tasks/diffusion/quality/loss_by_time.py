"""The loss of images at times of their own, on the whole and by time."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from vitrail.data.loading.batches import Batch
from vitrail.tasks.task import Answers, Means

BINS = 10
"""Parts of the way from the image, 0, to the noise, 1."""


class LossByTime(Means):
    """The mean loss, and in its details the mean in each tenth of the way from image to noise."""

    def __init__(self) -> None:
        super().__init__(_of_bins)

    def scores(self) -> dict[str, float | int]:
        means = super().scores()
        return {name: means[name] for name in ("loss", "images") if name in means}

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The bins in order: ``from`` and ``to``, shares of the way, number of ``images``, and ``loss``, None without images."""
        sums = (self.sums.get(f"images {number}", 0.0) for number in range(BINS))
        return [
            {
                "from": number / BINS,
                "to": (number + 1) / BINS,
                "images": int(images),
                "loss": self.sums[f"loss {number}"] / images if images else None,
            }
            for number, images in enumerate(sums)
        ]

    def details(self) -> dict[str, Any]:
        return {**self.scores(), "loss_by_time": self.rows}

    def lines(self, details: Mapping[str, Any]) -> list[str]:
        losses = ("–" if row["loss"] is None else f"{row['loss']:.3f}" for row in details["loss_by_time"])
        return [f"{'loss by time':<24} {' '.join(losses)}   tenths of the way from image to noise"]


def _of_bins(answers: Answers, batch: Batch) -> Mapping[str, Tensor]:
    """Return the loss of each image, and for each bin its loss there, 0 elsewhere, and 1 where it is in the bin."""
    losses, bins = answers["loss"].cpu(), (batch["times"].cpu() * BINS).long().clamp(max=BINS - 1)
    inside = {number: bins == number for number in range(BINS)}
    by_time = {f"loss {number}": torch.where(here, losses, 0.0) for number, here in inside.items()}
    return {"loss": losses, **by_time, **{f"images {number}": here for number, here in inside.items()}}
