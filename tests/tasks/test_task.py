"""What the loop promises every task: hooks around its steps, and parts beside its model that are trained or only carried."""

import copy

import pytest
import torch
from safetensors.torch import load_file
from shades import SHADES
from torch import nn

from vitrail.config.configuration import deep_merge, nested
from vitrail.config.settings import RunSettings
from vitrail.data.images.preparation import Preparation
from vitrail.models.vision.vit import ViT
from vitrail.runtime.observer import Observer
from vitrail.runtime.processes import ALONE
from vitrail.tasks.classification.labels.single_label import Classification
from vitrail.training.loop.trainer import Trainer
from vitrail.training.runs.run_folder import RunFolder

MOMENTUM = 0.9


class Taught(Classification):
    """A throw-away task: a predictor is trained beside the model, and a teacher of BatchNorm and weights follows it."""

    carried = ("teacher",)

    def __init__(self, model, preparation, classes):
        super().__init__(model, preparation, classes)
        self.predictor = nn.Linear(len(classes), len(classes))
        self.teacher = nn.Sequential(copy.deepcopy(model), nn.BatchNorm2d(1))
        self.calls = []

    def forward(self, batch):
        logits = self.predictor(self.network(self.images(batch)))
        with torch.no_grad():
            taught = self.teacher[0](self.images(batch))
        self.calls.append("forward")
        assert not any(module.training for module in self.teacher.modules())
        return {"loss": self.loss(logits, taught.softmax(dim=1)), "top1": self.hits(logits, batch["labels"])}

    def answer(self, batch):
        return {"logits": self.teacher[0](self.images(batch))}

    def before_step(self, progress):
        super().before_step(progress)
        self.calls.append(("before", progress.done, progress.total))

    def after_step(self, progress, group):
        super().after_step(progress, group)
        self.calls.append(("after", progress.done, group))
        for own, theirs in zip(self.teacher[0].parameters(), self.model.parameters(), strict=True):
            own.lerp_(theirs.detach(), 1 - MOMENTUM)


@pytest.fixture
def taught(shades, tmp_path):
    """``taught("name", **settings)``: a trainer of `Taught` with a run folder of that name, which may be there."""

    def make(name: str, **settings) -> Trainer:
        resolved = RunSettings.read(deep_merge(SHADES, nested(settings)))
        folder = RunFolder(tmp_path / name)
        if not folder.path.exists():
            folder = RunFolder.create(folder.path, resolved, None)
        torch.manual_seed(resolved.training.seed)
        preparation = Preparation.standard(resolved.model.image_size, resolved.model.channels)
        return Trainer(resolved, Taught(ViT(resolved.model.config), preparation, shades.classes), shades, folder)

    return make


def equal(one, other) -> bool:
    return one.keys() == other.keys() and all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def test_the_hooks_stand_around_every_step_with_where_the_run_is(taught):
    trainer = taught("run", **{"training.epochs": 2, "training.accumulate": 2})
    task = trainer.learner.task
    trainer.run()
    assert trainer.total == 6
    each = [[("before", n, 6), "forward", "forward", ("after", n, ALONE)] for n in range(6)]
    assert task.calls == [call for step in each for call in step]


def test_a_step_that_moves_nothing_is_not_followed(taught):
    trainer = taught("run")
    task = trainer.learner.task
    loss = task.loss
    task.loss = lambda *given, **more: loss(*given, **more) * (torch.nan if len(task.calls) < 5 else 1)
    teacher = copy.deepcopy(task.teacher.state_dict())
    batch = next(trainer.train_loader.epoch())
    assert trainer.learner.step(batch, done=0, size=8, own=8).failure
    assert equal(task.teacher.state_dict(), teacher) and not any("after" in call for call in task.calls)
    for done in (1, 2):
        trainer.learner.step(batch, done=done, size=8, own=8)
    assert not equal(task.teacher.state_dict(), teacher)


def test_what_is_carried_is_moved_by_its_task_alone(taught):
    trainer = taught("run", **{"training.ema": 0.5, "training.average": 0})
    learner, task = trainer.learner, trainer.learner.task
    optimized = {p for optimizer in learner.optimizers for group in optimizer.param_groups for p in group["params"]}
    assert optimized == {*task.model.parameters(), *task.predictor.parameters()}
    assert list(task.trained_parts()) == ["predictor"] and list(task.carried_parts()) == ["teacher"]
    expected = copy.deepcopy(task.teacher[0])
    follow = task.after_step

    def following(progress, group):
        for own, theirs in zip(expected.parameters(), task.model.parameters(), strict=True):
            own.data.lerp_(theirs.detach(), 1 - MOMENTUM)
        follow(progress, group)

    task.after_step = following
    trainer.run()
    assert equal(task.teacher[0].state_dict(), expected.state_dict())
    assert equal(learner.evaluated.teacher.state_dict(), task.teacher.state_dict())  # as it is, beside an average
    assert not equal(learner.evaluated.model.state_dict(), task.model.state_dict())
    assert not equal(learner.evaluated.predictor.state_dict(), task.predictor.state_dict())
    best = load_file(trainer.folder.path / "best" / "beside.safetensors")
    assert {name.split(".")[0] for name in best} == {"predictor", "teacher"}


def test_a_mean_of_the_last_epochs_has_the_last_of_what_is_carried(taught):
    trainer = taught("run", **{"training.average": 2, "training.epochs": 3})
    trainer.run()
    learner = trainer.learner
    mean, last = trainer.last_epochs.mean(learner.task.carried_parts().state_dict()), trainer.last_epochs.weights[-1]
    assert all(torch.equal(tensor, last[name]) == name.startswith("teacher.") for name, tensor in mean.items())


@pytest.mark.parametrize("ema", [0.0, 0.5])
def test_an_interrupted_run_goes_on_with_all_its_parts_to_the_same_bits(taught, ema):
    class Stopping(Observer):
        def step(self, epoch, sums):
            if broken.done == 4:
                raise KeyboardInterrupt

    settings = {"training.ema": ema, "training.checkpoint_every_steps": 1, "model.dropout": 0.1}
    whole, broken = taught("whole", **settings), taught("broken", **settings)
    torch.manual_seed(5)
    whole.run()
    torch.manual_seed(5)
    with pytest.raises(KeyboardInterrupt):
        broken.run(Stopping())
    resumed = taught("broken", **settings)
    resumed.restore()
    resumed.run()
    ours, theirs = resumed.state()[0], whole.state()[0]
    assert {"model", "beside", "carried"} <= ours.keys() and "average-carried" not in ours
    assert all(equal(ours[name], theirs[name]) for name in theirs)
