"""The mean of the last epochs' weights: what it is, when it is kept, and that it survives an interruption."""

import pytest
import torch
from test_resume import outcome

from vitrail.config.configuration import nested, resolve
from vitrail.errors import ConfigError
from vitrail.runtime.observer import Observer
from vitrail.runtime.signals import InterruptedRunError
from vitrail.tasks.metrics import described
from vitrail.training.loop.trainer import Trainer
from vitrail.weights.reference import load_model

pytestmark = pytest.mark.usefixtures("unreported")

ASKED = {"training.average": 3, "training.epochs": 5, "model.embedding": "pooled-stem", "optimizer.lr": 0.03}
"""With BatchNorm, which is in the stem."""


class Noting(Observer):
    """Copies the weights at the end of each epoch; a signal comes once the mean is looked at."""

    def __init__(self, trainer: Trainer, *, stops: bool = False):
        self.trainer, self.stops, self.ends, self.said = trainer, stops, [], []

    def epoch(self, row):
        self.ends.append({name: value.clone() for name, value in self.trainer.learner.model.state_dict().items()})

    def begin(self, what, count):
        if "mean" in what and self.stops:
            self.trainer.signals.received = 15

    def note(self, text):
        self.said.append(text)


def scored(monkeypatch, *losses: float) -> None:
    """Validations that come to these losses, one after another."""
    scores = iter([{"top1": 0.5, "loss": loss} for loss in losses])
    monkeypatch.setattr("vitrail.tasks.classification.labels.single_label.LabelMetrics.scores", lambda self: next(scores))


def test_what_is_kept_is_the_plain_mean_of_the_last_epochs_and_the_last_model_stays_its_own(make_trainer, monkeypatch):
    trainer = make_trainer(**ASKED)
    noting = Noting(trainer)
    scored(monkeypatch, 1, 1, 1, 1, 1, 0.5)
    trainer.run(noting)
    best, last = (load_model(trainer.folder.path / name).model.state_dict() for name in ("best", "last"))
    for name, value in best.items():
        three = [end[name] for end in noting.ends[-3:]]
        expected = torch.stack(three).mean(0) if value.is_floating_point() else three[-1]
        torch.testing.assert_close(value, expected, rtol=0, atol=1e-6)
        assert torch.equal(last[name], three[-1]) and torch.equal(trainer.learner.model.state_dict()[name], three[-1])
    assert trainer.best == trainer.rows[-1] | {"val_loss": 0.5, "averaged": 3}
    assert "5 of 5, the mean of the last 3" in (trainer.folder.path / "best/README.md").read_text()
    assert len(trainer.folder.rows) == 5 and "the mean of the last 3 epochs: kept" in noting.said[-1]


def test_the_scores_of_the_mean_are_its_own(make_trainer):
    trainer = make_trainer(**ASKED)
    trainer.run(noting := Noting(trainer))
    with trainer.learner.holding(trainer.last_epochs.mean()):
        scores = trainer._validation().scores()
    assert described({f"val_{name}": value for name, value in scores.items()}, "val_") in noting.said[-1]
    assert trainer._validation().scores()["loss"] == trainer.rows[-1]["val_loss"] != scores["loss"]


def test_it_is_not_kept_where_an_epoch_is_as_good(make_trainer, monkeypatch):
    trainer = make_trainer(**ASKED)
    scored(monkeypatch, 1, 0.4, 1, 1, 1, 0.4)
    trainer.run(noting := Noting(trainer))
    assert trainer.best == trainer.rows[1] and "no better" in noting.said[-1]


@pytest.mark.parametrize(("loss", "kept"), [(0.9, True), (1.0, True), (1.1, False)])
def test_a_run_that_keeps_its_last_epoch_keeps_the_mean_unless_its_loss_is_higher(loss, kept, make_trainer, monkeypatch):
    """Its first epochs may have been nearly untrained, and the epochs before the last do not count."""
    trainer = make_trainer(**ASKED, **{"training.keep": "last"})
    scored(monkeypatch, 1, 0.4, 1, 1, 1, loss)
    trainer.run(noting := Noting(trainer))
    assert trainer.best == (trainer.rows[-1] | {"val_loss": loss, "averaged": 3} if kept else trainer.rows[-1])
    assert ("3 epochs: kept" if kept else "no better") in noting.said[-1]


def test_a_run_stopped_over_its_mean_equals_the_unbroken_one_to_the_bit(make_trainer):
    unbroken, broken = make_trainer.finished("unbroken", **ASKED), make_trainer("broken", **ASKED)
    with pytest.raises(InterruptedRunError):
        broken.run(Noting(broken, stops=True))
    resumed = make_trainer.reopen(broken)
    resumed.restore()
    assert resumed.done == unbroken.total and len(resumed.last_epochs) == 3
    resumed.run()
    assert outcome(resumed) == outcome(unbroken)
    assert resumed.best.get("averaged") == unbroken.best.get("averaged")


def test_patience_counts_from_the_best_epoch_also_when_the_mean_is_kept(make_trainer, monkeypatch):
    trainer = make_trainer(**{**ASKED, "training.patience": 2, "training.epochs": 9})
    scored(monkeypatch, 0.9, 1, 1, 0.5)
    trainer.run()
    assert trainer.best["averaged"] == 3 and trainer.epoch == 3
    resumed = make_trainer.reopen(trainer)
    resumed.restore()
    assert resumed.is_over


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({}, (0, 4, "last", 0)),
        ({"ema": 0.9}, (0.9, 0, "last", 0)),
        ({"patience": 2}, (0, 4, "best", 2)),
        ({"average": 2}, (0, 2, "last", 0)),
        ({"ema": 0, "patience": 0}, (0, 4, "last", 0)),
    ],
)
def test_a_flag_stands_in_place_of_what_the_recipe_has_and_does_not_go_with_it(told, expected):
    recipe = {"model": {"name": "ViT-Ti/16"}, "data": {"source": "digits"}, "training": {"average": 4, "keep": "last"}}
    t = resolve(recipe, {}, {"training": told}).training
    assert (t.ema, t.average, t.keep, t.patience) == expected


def test_patience_is_refused_where_the_last_epoch_is_kept():
    with pytest.raises(ConfigError, match="is worse than its best one"):
        resolve({}, {}, nested({"data": "digits", "model": "ViT-Ti/16", "patience": 2, "training.keep": "last"}))
