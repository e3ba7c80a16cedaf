"""How metrics are shown, and which decides."""

import pytest

from vitrail.tasks.metrics import METRICS, described, main_metric, metric_of, metrics_in, rank


def test_shares_are_shown_in_per_cent_and_losses_as_they_are():
    accuracy, loss = METRICS["top1"], METRICS["loss"]
    assert (accuracy.factor, accuracy.label, accuracy.shown(0.98061)) == (100, "accuracy, %", "98.06 %")
    assert (loss.factor, loss.label, loss.shown(0.98061)) == (1, "loss", "0.9806")
    assert described({"val_loss": 0.5, "val_top1": 0.25}, "val_") == "loss 0.500 top-1 25.0 %"


@pytest.mark.parametrize(
    ("scores", "name"),
    [
        ({"top1": 1, "loss": 1, "map": 1}, "map"),
        ({"loss": 1, "top5": 1, "top1": 1}, "top1"),
        ({"loss": 1, "ap": 1, "oks": 1, "pck": 1}, "pck"),
        ({"loss": 1}, "loss"),
        ({}, "loss"),
    ],
)
def test_the_first_metric_of_the_table_that_a_model_has_decides(scores, name):
    assert main_metric(scores).name == name
    assert main_metric({f"val_{key}": value for key, value in scores.items()}, "val_").name == name
    assert [metric.name for metric in metrics_in(scores)] == [key for key in METRICS if key in scores]


def test_an_epoch_is_better_by_its_main_metric_and_then_by_its_loss():
    assert rank({"val_top1": 0.5, "val_loss": 9}) > rank({"val_top1": 0.4, "val_loss": 1})
    assert rank({"val_top1": 0.5, "val_loss": 1}) > rank({"val_top1": 0.5, "val_loss": 2})
    assert rank({"val_loss": 1}) > rank({"val_loss": 2})


def test_a_metric_that_nobody_listed_is_a_plain_number():
    assert metric_of("val_frames_lost").title == "frames lost" and metric_of("train_top1") is METRICS["top1"]
