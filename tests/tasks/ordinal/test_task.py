"""Ordered classes: the loss against its definition, and a run from the data to its scores."""

import math

import numpy as np
import pytest
import torch
from PIL import Image

import vitrail
from vitrail import api
from vitrail.errors import ConfigError
from vitrail.tasks.ordinal.task import OrdinalMetrics, cumulative_logits, cumulative_loss

TINY = {
    "task": "ordinal", "model.name": "ViT-Ti/16", "image_size": 16, "model.patch_size": 8, "model.dim": 16, "model.depth": 1,
    "model.heads": 2, "model.mlp_dim": 32, "epochs": 12, "batch_size": 16, "lr": 0.01, "training.min_steps": 0,
    "augmentation.horizontal_flip": 0, "seed": 1, "recipe": "scratch", "training.label_smoothing": 0,
}  # fmt: skip


def test_cumulative_logits_are_the_log_odds_of_the_softmax():
    logits = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    p = logits.softmax(dim=1)
    for k in range(3):
        above = p[:, k + 1 :].sum(dim=1)
        torch.testing.assert_close(cumulative_logits(logits)[:, k], (above / (1 - above)).log())


def test_the_loss_is_the_mean_cross_entropy_of_whether_it_is_above_each_class():
    p = torch.tensor([[0.5, 0.3, 0.2]], dtype=torch.float64)
    of = [-(math.log(0.5) + math.log(0.8)) / 2, -(math.log(0.5) + math.log(0.8)) / 2, -(math.log(0.5) + math.log(0.2)) / 2]
    for label, expected in enumerate(of):
        shares = torch.nn.functional.one_hot(torch.tensor([label]), 3).double()
        assert cumulative_loss(p.log(), shares).item() == pytest.approx(expected)


def test_a_wrong_class_costs_more_the_further_it_is():
    logits, one = 4 * torch.eye(5)[:1], torch.eye(5)
    losses = [cumulative_loss(logits, one[k : k + 1]).item() for k in range(5)]
    assert losses == sorted(losses) and len(set(losses)) == 5


def test_scores_follow_the_order_and_not_the_index():
    metrics = OrdinalMetrics(torch.tensor([2, 0, 1]), keep=True)  # from the lowest: class 2, 0, 1
    logits = torch.eye(3)[[2, 2, 1]]
    metrics.update({"logits": logits}, {"images": torch.zeros(3), "labels": torch.tensor([1, 0, 1])})
    scores = metrics.scores()
    assert scores["mean_absolute_error"] == pytest.approx((2 + 1 + 0) / 3) and scores["top1"] == pytest.approx(1 / 3)
    assert [ranks.tolist() for ranks in metrics.guesses] == [[0, 0, 2], [2, 1, 2]]


@pytest.fixture(scope="module")
def greys(tmp_path_factory):
    """Images that are the brighter the higher their class is."""
    folder, random = tmp_path_factory.mktemp("greys"), np.random.default_rng(0)
    for level, name in ((40, "low"), (120, "medium"), (200, "high")):
        (folder / name).mkdir()
        for number in range(24):
            pixels = (level + random.normal(0, 20, (16, 16, 3))).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    return folder


@pytest.fixture(scope="module")
def run(greys, tmp_path_factory):
    return api.train(greys, tmp_path_factory.mktemp("runs") / "run", **TINY, **{"task.order": ("low", "medium", "high")})


def test_a_run_learns_the_order_and_is_reported(run):
    assert run.scores["mean_absolute_error"] <= 0.2 and run.scores["top1"] >= 0.8
    page = (run.folder / "report.html").read_text()
    assert "mean absolute error" in page
    assert page.index(">low<") < page.index(">medium<") < page.index(">high<")
    assert (run.folder / "predictions.csv").read_text(encoding="utf-8-sig").startswith("image,label,prediction")


def test_a_run_is_evaluated_by_its_order_on_its_own_and_on_other_images(run, greys, tmp_path):
    metrics, split = api.evaluate(run.folder)
    assert metrics.scores() == pytest.approx(run.scores) and split == run.split
    (tmp_path / "other" / "high").mkdir(parents=True)
    Image.new("RGB", (16, 16), (0, 0, 0)).save(tmp_path / "other" / "high" / "dark.png")
    metrics, _ = api.evaluate(run.folder, tmp_path / "other")
    assert metrics.scores()["mean_absolute_error"] == 2


def test_its_model_is_an_ordinary_classifier(run, greys):
    ((best, *_),) = vitrail.predict(run.folder, greys / "high" / "0.png")
    assert best[0] == "high"


def test_an_order_of_other_classes_and_what_needs_a_plain_classifier_are_refused(greys, tmp_path):
    with pytest.raises(ConfigError, match="name every class once"):
        api.train(greys, tmp_path / "a", **TINY, **{"task.order": "low,high"})
    with pytest.raises(ConfigError, match="ordered classes"):
        api.train(greys, tmp_path / "b", **TINY, balance="loss")
