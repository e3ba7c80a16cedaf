"""Evaluation batch by batch, in one process and in several."""

import numpy as np
import pytest
import torch
from torch import nn

from vitrail.data.images.preparation import Preparation
from vitrail.data.items import Item
from vitrail.data.loading.dataset import ImageDataset
from vitrail.data.loading.loader import EpochLoader
from vitrail.data.targets import class_targets
from vitrail.runtime.processes import ALONE, Processes
from vitrail.tasks.classification.labels.multi_label import MultiLabel
from vitrail.tasks.classification.labels.single_label import Classification
from vitrail.tasks.evaluation import answering, evaluate

PREPARATION = Preparation.standard((2, 2), 1)


class Network(nn.Sequential):
    """Answers of five classes."""

    config = Preparation.standard((2, 2), 1)

    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(4, 5), nn.Dropout(0.9))


def task_of(model: nn.Module, *, several: bool) -> Classification:
    return (MultiLabel if several else Classification)(model, PREPARATION, list("abcde"))


def looked_at(model, *, several: bool, group=ALONE, sizes=None, images=5):
    """Grey images 0, 1, 2, … of the class of that number, in batches of two."""
    items = [Item(f"{i}", np.full((2, 2), i, np.uint8), (i,) if several else i) for i in range(images)]
    dataset = ImageDataset(items, PREPARATION, targets=class_targets(5, shares=several))
    loader = EpochLoader(dataset, 2, shuffle=False, part=(group.rank, group.count))
    task = task_of(model, several=several)
    with answering(task, torch.device("cpu")) as answer:
        metrics = task.metrics(keep=True)
        return evaluate(answer, loader, metrics, on_batch=sizes.append if sizes == [] else None, group=group)


@pytest.mark.parametrize("several", [False, True], ids=["one label", "several"])
def test_batches_of_either_kind_come_out_in_their_order_and_the_model_goes_on_as_it_was(several):
    model, sizes = Network().train(), []
    model[1].eval()
    result = looked_at(model, several=several, sizes=sizes)
    pixels = torch.arange(5, dtype=torch.float32).view(5, 1).expand(5, 4)
    torch.testing.assert_close(result.logits, model[1]((pixels / 255 - 0.5) / 0.5))
    assert torch.equal(result.labels, torch.eye(5) if several else torch.arange(5))
    assert sizes == [2, 2, 1]
    assert [module.training for module in (model, model[1], model[2])] == [True, False, True]


class Parts(Processes):
    """One of several processes, run one after another: what each hands in is summed and put together afterwards."""

    def all_reduce(self, values):
        self.sums = values.clone()
        return values

    def all_gather(self, value):
        self.gathered = value
        return [value]


@pytest.mark.parametrize("several", [False, True], ids=["one label", "several"])
@pytest.mark.parametrize("parts", [2, 3])
def test_the_parts_of_several_processes_add_up_to_the_whole(several, parts, monkeypatch):
    model = Network()
    whole = looked_at(model, several=several)
    monkeypatch.setattr(Processes, "in_step", lambda self, batches, count: batches)
    groups = [Parts(i, parts) for i in range(parts)]
    for group in groups:
        looked_at(model, several=several, group=group)
    assert sum(group.sums for group in groups).tolist() == pytest.approx([*whole.sums.values(), 5])
    logits = torch.cat([part[0] for batch in zip(*(group.gathered for group in groups), strict=True) for part in batch])
    torch.testing.assert_close(logits, whole.logits)
