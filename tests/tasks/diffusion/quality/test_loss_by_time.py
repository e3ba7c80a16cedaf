"""The loss by time beside sums by hand."""

import json

import pytest
import torch

from vitrail.tasks.diffusion.quality.loss_by_time import LossByTime


class Two:
    """Two processes with the same numbers."""

    def all_reduce(self, numbers):
        return 2 * numbers


def measured():
    metrics = LossByTime()
    times = torch.tensor([0.0, 0.05, 0.55, 0.999, 1.0])
    metrics.update({"loss": torch.tensor([1.0, 2.0, 3.0, 4.0, 6.0])}, {"images": times, "times": times})
    metrics.update({"loss": torch.tensor([5.0])}, {"images": times[:1], "times": torch.tensor([0.5])})
    metrics.update({"loss": torch.zeros(0)}, {"images": times[:0], "times": times[:0]})
    return metrics


@pytest.mark.parametrize("processes", [1, 2])
def test_the_loss_is_a_mean_in_each_tenth_of_the_way(processes):
    metrics = measured()
    if processes == 2:
        metrics.reduce(Two())
    assert metrics.scores() == {"loss": 3.5, "images": 6 * processes}
    details = json.loads(json.dumps(metrics.details()))
    rows = details["loss_by_time"]
    assert [(row["images"], row["loss"]) for row in rows if row["images"]] == [
        (2 * processes, 1.5),
        (2 * processes, 4.0),
        (2 * processes, 5.0),
    ]
    assert [row["from"] for row in rows if row["images"]] == [0, 0.5, 0.9] and rows[1]["loss"] is None
    assert "1.500 – – – – 4.000 – – – 5.000" in metrics.lines(details)[0]
