"""The training loop: what a step computes, what is kept, and that nothing but the seed decides the result."""

import copy
import hashlib
import json
import math

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from vitrail.data.images.augment import Augmentation
from vitrail.data.loading.dataset import ImageDataset
from vitrail.data.loading.loader import EpochLoader
from vitrail.errors import ConfigError, DivergedError
from vitrail.parts import last_layer
from vitrail.runtime import device
from vitrail.runtime.observer import Observer, Sums
from vitrail.training.loop.schedule import learning_rate_factor
from vitrail.training.loop.trainer import Trainer, shown_epochs
from vitrail.training.runs.checkpoint import checkpoints
from vitrail.weights.reference import load_model

CLOCK = ("seconds", "images_per_second")
RICH = {
    "model.dropout": 0.1, "model.stochastic_depth": 0.2, "model.patch_dropout": 0.25, "augmentation.horizontal_flip": 0.5,
    "augmentation.crop": "pad", "augmentation.padding": 1, "training.ema": 0.9, "training.label_smoothing": 0.1,
}  # fmt: skip
"""Settings under which every kind of randomness is used."""


def weights(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in trainer.learner.model.state_dict().items()}


def digest(trainer: Trainer, name: str) -> str:
    return hashlib.sha256((trainer.folder.path / name / "model.safetensors").read_bytes()).hexdigest()


def metrics(trainer: Trainer) -> list[dict]:
    """The rows of ``metrics.jsonl`` without what a clock says."""
    return [{k: v for k, v in row.items() if k not in CLOCK} for row in trainer.folder.rows]


def closest(one: dict, other: dict, tolerance: float) -> None:
    assert one.keys() == other.keys()
    for name in one:
        torch.testing.assert_close(one[name], other[name], rtol=0, atol=tolerance, msg=lambda m, n=name: f"{n}: {m}")


def test_a_row_tells_the_learning_rate_of_the_last_step(make_trainer):
    trainer = make_trainer.finished("run", **{"schedule.name": "linear", "schedule.final": 0.0, "schedule.warmup_epochs": 0})
    steps = [row["step"] for row in trainer.folder.rows]
    expected = [0.01 * (1 - (step - 1) / trainer.total) for step in steps]
    assert [row["lr"] for row in trainer.folder.rows] == pytest.approx(expected)


def test_weights_of_classes_are_those_of_the_training_images(make_trainer, shades, monkeypatch):
    train = [item for item in shades.splits["train"] if item.target or item.name in ("shade-0", "shade-3")]
    monkeypatch.setitem(shades.splits, "train", train)
    weights = make_trainer("run", **{"data.balance": "loss"}).learner.task.weights
    counts = [sum(item.target == label for item in train) for label in range(3)]
    assert counts[0] == 2 and weights.tolist() == pytest.approx([len(train) / (3 * count) for count in counts])


def by_hand(trainer: Trainer, steps: int, *, smoothing: float = 0.0, clip: float = 0.0):
    """The same steps written out with torch alone; yields the model and the loss after each of them."""
    settings, model = trainer.settings, copy.deepcopy(trainer.learner.model)
    matrices = [p for name, p in model.named_parameters() if p.ndim > 1 and "weight" in name]
    others = [p for p in model.parameters() if not any(p is m for m in matrices)]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.05}, {"params": others, "weight_decay": 0.0}], fused=True
    )
    dataset = ImageDataset(trainer.data.splits["train"], trainer.learner.task.preparation, Augmentation(horizontal_flip=0))
    loader = EpochLoader(dataset, settings.training.batch_size, shuffle=True)
    batches = [batch for epoch in range(settings.training.epochs) for batch in loader.epoch(epoch)]
    for step, batch in enumerate(batches[:steps]):
        pixels, labels = batch["images"], batch["labels"]
        for group in optimizer.param_groups:
            group["lr"] = settings.optimizer.lr * learning_rate_factor(settings.schedule, step, warmup=0, total=len(batches))
        loss = F.cross_entropy(model((pixels.float() / 255 - 0.5) / 0.5), labels, label_smoothing=smoothing)
        loss.backward()
        if clip:
            nn_norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
            for parameter in model.parameters():
                parameter.grad.mul_(min(1.0, clip / (nn_norm + 1e-6)))
        optimizer.step()
        optimizer.zero_grad()
        yield model, loss.item(), len(labels)


# what a step computes


@pytest.mark.parametrize("clip", [0.0, 0.05])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_an_epoch_is_that_of_a_loop_written_by_hand(make_trainer, clip, smoothing):
    changes = {"training.label_smoothing": smoothing, "optimizer.clip_norm": clip, "training.epochs": 1}
    trainer = make_trainer(**changes)
    steps = list(by_hand(trainer, 3, smoothing=smoothing, clip=clip))
    trainer.run()
    closest(weights(trainer), steps[-1][0].state_dict(), 2e-6)
    mean = sum(loss * count for _, loss, count in steps) / 22
    assert trainer.rows[0]["train_loss"] == pytest.approx(mean, abs=1e-5)


@pytest.mark.parametrize("parts", [3, 50])
def test_accumulation_gives_the_weights_of_whole_batches(make_trainer, parts):
    whole, cut = make_trainer("whole"), make_trainer("cut", **{"training.accumulate": parts})
    for trainer in (whole, cut):
        trainer.learner.optimizers = [
            torch.optim.SGD(
                [{"params": list(trainer.learner.model.parameters()), "initial_lr": 0.1, "initial_weight_decay": 0}],
                lr=0.1,
                momentum=0.9,
            )
        ]
        trainer.run()
    closest(weights(whole), weights(cut), 1e-6)
    for one, other in zip(metrics(whole), metrics(cut), strict=True):
        assert one == pytest.approx(other, abs=1e-5)


@pytest.mark.parametrize("embedding", ["conv", "pooled-stem"])
def test_the_average_is_that_computed_by_hand(make_trainer, embedding):
    """Of what BatchNorm remembers, too; its count of batches is a number of steps, which is no thing to average."""
    trainer = make_trainer(**{"training.ema": 0.5, "model.embedding": embedding})
    average = {name: value.double() for name, value in weights(trainer).items()}

    class Averaging(Observer):
        def step(self, epoch, sums):
            made = trainer.done - 1
            decay = min(0.5, (1 + made) / (10 + made)) if made else 0.0
            for name, value in trainer.learner.model.state_dict().items():
                share = decay if value.is_floating_point() else 0
                average[name].mul_(share).add_(value, alpha=1 - share)

    trainer.run(Averaging())
    kept = load_model(trainer.folder.path / "last").model.state_dict()
    for name, value in average.items():
        torch.testing.assert_close(kept[name].float(), value.float(), rtol=0, atol=1e-6)


def test_the_average_is_what_is_evaluated_and_kept(make_trainer):
    trainer = make_trainer(**{"training.ema": 0.9})
    trainer.run()
    kept = load_model(trainer.folder.path / "last").model.state_dict()
    closest(kept, trainer.learner.evaluated.model.state_dict(), 0)
    assert any(not torch.equal(kept[name], value) for name, value in trainer.learner.model.state_dict().items())


@pytest.mark.parametrize("keep", ["best", "last"])
def test_the_best_epoch_is_kept_or_the_last_one(make_trainer, monkeypatch, keep):
    scores = iter([{"top1": top1, "loss": 1.0} for top1 in (0.5, 0.9, 0.6)])
    monkeypatch.setattr("vitrail.tasks.classification.labels.single_label.LabelMetrics.scores", lambda self: next(scores))
    trainer = make_trainer(**{"training.keep": keep, "training.epochs": 3})
    told: list[int] = []
    monkeypatch.setattr(Observer, "kept", lambda self, epoch: told.append(epoch))
    trainer.run()
    best, last = (load_model(trainer.folder.path / name).model.state_dict() for name in ("best", "last"))
    assert trainer.best == trainer.rows[1 if keep == "best" else 2]
    assert all(torch.equal(best[name], last[name]) for name in best) == (keep == "last")
    assert told == ([1, 2] if keep == "best" else [])
    purpose = {"best": "to choose the epoch by", "last": "to score it on"}[keep]
    assert purpose in (trainer.folder.path / "best/README.md").read_text()


def test_the_numbers_of_an_epoch_are_means_over_its_images():
    sums = Sums(loss=30.0, counts={"top1": 15}, units=20, seconds=4.0)
    assert sums.means == {"loss": 1.5, "top1": 0.75, "images_per_second": 5.0}
    assert set(Sums().means.values()) == {0.0}


# precision and compilation


@pytest.mark.parametrize(("precision", "optimizer"), [("fp32", "sgd"), ("bf16", "adam"), ("fp16", "adamw")])
def test_the_loss_falls_with_every_precision_and_optimizer(make_trainer, precision, optimizer):
    changes = {"training.precision": precision, "optimizer.name": optimizer, "training.epochs": 10}
    trainer = make_trainer(**changes, **({"optimizer.lr": 0.1} if optimizer == "sgd" else {}))
    trainer.run()
    assert trainer.rows[-1]["train_loss"] < 0.7 * trainer.rows[0]["train_loss"]
    assert trainer.rows[-1]["val_top1"] > 0.6
    assert all(value.dtype == torch.float32 and value.isfinite().all() for value in weights(trainer).values())


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_is_used_and_stays_near_full_precision(make_trainer, precision):
    kinds = set()
    half = make_trainer("half", **{"training.precision": precision, "training.epochs": 1})
    linear = next(m for m in half.learner.model.blocks.modules() if isinstance(m, torch.nn.Linear))
    linear.register_forward_hook(lambda module, given, result: kinds.add(result.dtype) if module.training else None)
    half.run()
    full = make_trainer.finished("full", **{"training.epochs": 1})
    assert kinds == {{"bf16": torch.bfloat16, "fp16": torch.float16}[precision]}
    assert half.rows[0]["train_loss"] == pytest.approx(full.rows[0]["train_loss"], rel=0.02)


@pytest.mark.parametrize("first", [4, 0.5])
def test_images_grow_from_their_first_size_to_the_models_own(make_trainer, first):
    trainer = make_trainer(**{"schedule.first_image_size": first, "training.epochs": 5})
    full, seen = trainer.settings.model.image_size, []
    model = trainer.learner.model
    model.embedding.register_forward_pre_hook(lambda _, given: seen.append(tuple(given[0].shape[2:])) if model.training else None)
    trainer.run()
    assert seen[0] == (4, 4) and seen[-3:] == [full] * 3 and seen == sorted(seen)
    assert trainer.rows[-1]["train_loss"] < trainer.rows[0]["train_loss"]


def test_images_may_be_smaller_than_the_models_own_to_the_end(make_trainer):
    trainer = make_trainer(**{"schedule.last_image_size": 0.5, "training.epochs": 3})
    full, seen = trainer.settings.model.image_size, {True: set(), False: set()}
    model = trainer.learner.model
    model.embedding.register_forward_pre_hook(lambda _, given: seen[model.training].add(tuple(given[0].shape[2:])))
    trainer.run()
    assert seen == {True: {(full[0] // 2, full[1] // 2)}, False: {full}}  # and whole where they are answered
    assert trainer.rows[-1]["train_loss"] < trainer.rows[0]["train_loss"]


@pytest.mark.parametrize(
    ("sizes", "named", "whose"),
    [
        ({"first": 64}, "first", "the last ones' 8 × 8"),
        ({"first": 8, "last": 4}, "first", "the last ones' 4 × 4"),
        ({"first": 4, "last": 64}, "last", "the model's 8 × 8"),
        ({"last": (4, 9)}, "last", "the model's 8 × 8"),
    ],
)
def test_images_that_would_shrink_or_be_enlarged_are_refused(make_trainer, sizes, named, whose):
    with pytest.raises(ConfigError, match=rf"is larger than {whose}\nwhere: schedule.{named}_image_size"):
        make_trainer(**{f"schedule.{name}_image_size": size for name, size in sizes.items()})


def test_the_faster_ways_of_half_precision_train_as_torch_by_itself_does(make_trainer, monkeypatch):
    """The attention that is written out and the last block's short cut, against torch's kernel and every token."""
    changes = {"training.precision": "bf16", "training.epochs": 3, "training.batch_size": 11}
    fast = make_trainer.finished("fast", **changes)
    monkeypatch.setattr("vitrail.parts.attention.dot_product.explicit_is_faster", lambda query, key, bias: False)
    plain = make_trainer("plain", **changes)
    plain.learner.model.tokens_read = None
    plain.run()
    full = make_trainer.finished("full", **changes | {"training.precision": "fp32"})
    for row, other, exact in zip(fast.rows, plain.rows, full.rows, strict=True):
        assert row["train_loss"] == pytest.approx(other["train_loss"], rel=0.02)
        assert row["train_loss"] == pytest.approx(exact["train_loss"], rel=0.02)


@pytest.mark.soak
def test_a_compiled_model_trains_as_the_plain_one(make_trainer):
    changes = {"training.batch_size": 11, "training.epochs": 1, "model.depth": 1, "optimizer.name": "sgd"}
    plain = make_trainer.finished("plain", **changes)
    compiled = make_trainer.finished("compiled", **changes, **{"training.compile": True})
    assert compiled.learner.forward is not compiled.learner.model
    closest(weights(plain), weights(compiled), 1e-6)
    assert metrics(compiled)[0] == pytest.approx(metrics(plain)[0], abs=1e-5)
    assert load_model(compiled.folder.path / "best").labels == ["dark", "grey", "bright"]


# divergence


def finite_everywhere(folder) -> bool:
    files = list(folder.rglob("*.safetensors"))
    return all(t.isfinite().all() for file in files for t in load_file(file).values() if t.is_floating_point())


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_run_that_diverges_says_so_and_keeps_nothing_that_is_not_finite(make_trainer, precision):
    trainer = make_trainer(**{"optimizer.lr": 1e30, "optimizer.clip_norm": 0, "training.precision": precision})
    with pytest.raises(DivergedError, match=r"training diverged.*\n.*step \d+ of 6") as caught:
        trainer.run()
    assert caught.value.exit_code == 5
    assert finite_everywhere(trainer.folder.path)


def test_a_loss_that_is_not_finite_is_never_learned_from(make_trainer, monkeypatch):
    trainer = make_trainer(**{"training.checkpoint_every_steps": 1, "training.ema": 0.9})
    cross_entropy, seen = F.cross_entropy, []

    def breaking(*args, **kwargs):
        if trainer.done >= 3 and "label_smoothing" in kwargs:  # no evaluation
            seen.append(weights(trainer))
            return cross_entropy(*args, **kwargs) * math.nan
        return cross_entropy(*args, **kwargs)

    monkeypatch.setattr(F, "cross_entropy", breaking)
    with pytest.raises(DivergedError, match="the loss is nan"):
        trainer.run()
    closest(weights(trainer), seen[0], 0)
    assert finite_everywhere(trainer.folder.path)
    assert len(seen) == 3 and checkpoints(trainer.folder.path)[0].name == "step-000000005"


def test_a_step_that_is_left_out_leaves_what_batch_norm_remembers(make_trainer, monkeypatch):
    trainer = make_trainer(**{"model.embedding": "pooled-stem"})
    batch = next(trainer.train_loader.epoch(0))
    size = len(batch["images"])
    before, cross_entropy = weights(trainer), F.cross_entropy
    monkeypatch.setattr(F, "cross_entropy", lambda *args, **kwargs: cross_entropy(*args, **kwargs) * math.nan)
    assert trainer.learner.step(batch, done=0, size=size, own=size).failure
    closest(weights(trainer), before, 0)
    monkeypatch.undo()
    assert trainer.learner.step(batch, done=0, size=size, own=size).failure is None
    assert any(not torch.equal(value, before[name]) for name, value in weights(trainer).items() if "running" in name)


def test_a_gradient_that_is_not_finite_is_never_learned_from(make_trainer):
    trainer = make_trainer()
    before = weights(trainer)
    last_layer(trainer.learner.model.head).weight.register_hook(lambda gradient: gradient * math.inf)
    with pytest.raises(DivergedError, match="the gradient's norm is"):
        trainer.run()
    closest(weights(trainer), before, 0)


def late(trainer: Trainer) -> Trainer:
    """The trainer, whose steps are made in the order of a GPU: the optimizer's before anything is read."""
    trainer.learner.asks_late = True
    return trainer


@pytest.mark.parametrize("more", [RICH, {"training.accumulate": 2, "optimizer.clip_norm": 0.1, "optimizer.name": "adam"}])
def test_a_step_that_is_read_late_is_the_same_step(make_trainer, more):
    one = make_trainer.finished("one", **more)
    other = late(make_trainer("other", **more))
    other.run()
    assert metrics(one) == metrics(other)
    assert digest(one, "last") == digest(other, "last")


@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_a_step_that_is_read_late_changes_nothing_where_it_is_not_finite(make_trainer, monkeypatch, what):
    trainer = late(make_trainer(**{"training.ema": 0.9, "model.embedding": "pooled-stem"}))
    batches, cross_entropy = trainer.train_loader.epoch(0), F.cross_entropy
    trainer._step(next(batches))
    before = {name: copy.deepcopy(tensors) for name, tensors in trainer.learner.tensors().items()}
    if what == "loss":
        monkeypatch.setattr(F, "cross_entropy", lambda *args, **more: cross_entropy(*args, **more) * math.nan)
    else:
        last_layer(trainer.learner.model.head).weight.register_hook(lambda gradient: gradient * math.inf)
    trainer._step(next(batches))
    assert trainer.not_finite == 1
    after = trainer.learner.tensors()
    assert after.keys() == before.keys() >= {"model", "average", "optimizer"}
    for name, tensors in before.items():
        closest(after[name], tensors, 0)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("clip", [0, 1])
def test_fp16_steps_over_a_gradient_that_overflows(make_trainer, optimizer, clip):
    more = {"optimizer.name": optimizer, "optimizer.clip_norm": clip}
    trainer = make_trainer(**{"training.precision": "fp16", "training.epochs": 1, **more})
    calls = []

    def overflowing(gradient):
        calls.append(1)
        return gradient * math.inf if len(calls) == 1 else gradient

    scale, before = trainer.learner.scaler.get_scale(), weights(trainer)
    last_layer(trainer.learner.model.head).weight.register_hook(overflowing)
    trainer._step(next(iter(trainer.train_loader.epoch(0))))
    closest(weights(trainer), before, 0)  # no part of the model moves, whichever optimizer it belongs to
    trainer.run()
    assert trainer.learner.scaler.get_scale() < scale
    assert finite_everywhere(trainer.folder.path)


# the seed alone decides


def test_the_same_seed_gives_the_same_run_to_the_bit_and_another_seed_another(make_trainer):
    one, same = make_trainer.finished("one", **RICH), make_trainer.finished("same", **RICH)
    other = make_trainer.finished("other", **RICH, **{"training.seed": 1})
    assert metrics(one) == metrics(same)
    assert digest(one, "best") == digest(same, "best")
    assert digest(one, "last") == digest(same, "last")
    assert metrics(one) != metrics(other)
    assert digest(one, "best") != digest(other, "best")


@pytest.mark.parametrize(("given", "expected"), [({}, 3), ({"data.workers": 1}, 1), ({"data.workers": 0}, 0)])
def test_a_run_has_as_many_processes_read_images_as_are_worth_it_beside_its_device(make_trainer, monkeypatch, given, expected):
    monkeypatch.setattr(device, "workers_beside", lambda device: 3)
    assert make_trainer(**given).train_loader._loader.num_workers == expected


# what is kept


def test_epochs_are_compared_by_what_the_task_answers_for_that(make_trainer):
    trainer, asked = make_trainer(**{"training.epochs": 2}), []
    task = trainer.learner.task
    task.follow = lambda batch: asked.append(len(batch["images"])) or task.answer(batch)
    trainer.run()
    assert sum(asked) == 2 * len(trainer.validation)


def test_best_is_the_best_epoch_by_validation_and_last_is_the_last(make_trainer):
    trainer = make_trainer(**{"training.epochs": 6, "optimizer.lr": 0.05, "schedule.name": "constant"})
    digests = []

    class Noting(Observer):
        def epoch(self, row):
            trainer.save_model("now", trainer.rows[-1])
            digests.append(digest(trainer, "now"))

    trainer.run(Noting())
    ranks = [(row["val_top1"], -row["val_loss"]) for row in trainer.rows]
    best = max(range(6), key=lambda i: (ranks[i], i))
    assert len(set(digests)) == 6
    assert digest(trainer, "best") == digests[best]
    assert digest(trainer, "last") == digests[-1]
    assert json.loads((trainer.folder.path / "status.json").read_text())["best"]["epoch"] == best + 1


def test_best_stays_when_later_epochs_are_worse(make_trainer, monkeypatch):
    trainer = make_trainer(**{"training.epochs": 4})
    scores = iter([{"top1": a, "loss": b} for a, b in ((0.2, 1.0), (0.9, 0.5), (0.9, 0.6), (0.1, 0.1))])
    monkeypatch.setattr("vitrail.tasks.classification.labels.single_label.LabelMetrics.scores", lambda self: next(scores))
    trainer.run()
    assert trainer.best["epoch"] == 2


def test_the_numbers_of_a_kept_model_are_those_of_its_row(make_trainer):
    trainer = make_trainer(**{"training.ema": 0.9, "training.epochs": 4})
    trainer.run()
    kept = load_model(trainer.folder.path / "best")
    items = trainer.data.splits["val"]
    logits = torch.cat([kept.model(kept.preparation(item.image)) for item in items]).detach()
    labels = torch.tensor([item.target for item in items])
    assert F.cross_entropy(logits, labels).item() == pytest.approx(trainer.best["val_loss"], abs=1e-5)
    assert (logits.argmax(dim=1) == labels).double().mean().item() == pytest.approx(trainer.best["val_top1"])


def test_a_fast_run_for_developers_makes_two_batches_of_one_epoch(make_trainer):
    trainer = make_trainer(**{"training.fast_dev_run": True, "training.epochs": 50, "training.batch_size": 4})
    trainer.run()
    assert trainer.done == trainer.total == 2
    assert len(trainer.rows) == 1


def test_an_observer_hears_of_every_step_and_every_epoch(make_trainer):
    trainer, heard = make_trainer(), []

    class Listening(Observer):
        def start(self, epochs, steps, done):
            heard.append(("start", epochs, steps, done))

        def step(self, epoch, sums):
            heard.append(("step", epoch, sums.units))

        def begin(self, what, images):
            heard.append((what, images))

        def epoch(self, row):
            heard.append(("epoch", row["epoch"], row["step"]))

    trainer.run(Listening())
    assert heard == [
        ("start", 2, 6, 0),
        ("step", 0, 8), ("step", 0, 16), ("step", 0, 22), ("evaluating val", 9), ("epoch", 1, 3),
        ("step", 1, 8), ("step", 1, 16), ("step", 1, 22), ("evaluating val", 9), ("epoch", 2, 6),
    ]  # fmt: skip


def test_pictured_epochs_are_few_and_closer_to_each_other_at_the_beginning():
    assert shown_epochs(1) == {1} and shown_epochs(2) == {1, 2}
    assert sorted(shown_epochs(240)) == [1, 2, 3, 6, 11, 21, 39, 71, 131, 240]
