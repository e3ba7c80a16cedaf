"""Which part of a model a run trains: a linear probe is a linear layer on what the model says."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from test_contract import TINY, tiny
from vitrail import create_model
from vitrail.config.configuration import nested, resolve
from vitrail.errors import ConfigError
from vitrail.training.finetune.adapters import load_adapter, merge_lora
from vitrail.training.finetune.freezing import choose_parts, require_nothing_fresh
from vitrail.training.loop.schedule import learning_rate_factor
from vitrail.weights.reference import load_model

PROBE = {"training.tune": "head"}
NOISY = {"model.dropout": 0.5, "model.stochastic_depth": 0.5, "model.attention_dropout": 0.5, "model.patch_dropout": 0.5}


def state(model) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


@pytest.mark.parametrize("fields", [{}, {"model.head": "mlp"}, {"model.distillation_token": True}], ids=str)
def test_a_probe_changes_the_head_and_nothing_else(make_trainer, fields):
    trainer = make_trainer(**PROBE, **fields, **{"training.ema": 0.9, "model.pool": "class"})
    before = state(trainer.learner.model)
    trainer.run()
    changed = {name for name, value in trainer.learner.model.state_dict().items() if not torch.equal(value, before[name])}
    heads = {name for name in before if name.startswith(("head.", "head_distillation."))}
    assert changed == heads
    kept = trainer.learner.evaluated.model.state_dict()
    assert {name for name, value in kept.items() if not torch.equal(value, before[name])} == heads


@pytest.mark.parametrize(("share", "left"), [(0, 0), (0.1, 0), (0.3, 1), (0.5, 2), (0.99, 4)])
def test_the_first_layers_and_what_precedes_them_stay_as_they_are(make_trainer, share, left):
    trainer = make_trainer(**{"start": "model", "training.frozen_share": share, "model.depth": 4, "model.pool": "class"})
    before = state(trainer.learner.model)
    trainer.run()
    same = {name for name, value in trainer.learner.model.state_dict().items() if torch.equal(value, before[name])}
    first = ("embedding.", "position", "class_token", *(f"blocks.{number}." for number in range(left)))
    assert same == {name for name in before if left and name.startswith(first)}


@pytest.mark.parametrize("name", sorted(TINY))
def test_a_share_of_the_layers_of_any_model_stays_as_it_is(name):
    model, asked = tiny(name), {"data": "digits", "model": "ViT-Ti/16", "start": "model", "training.frozen_share": 0.5}
    choose_parts(model, resolve({}, {}, nested(asked)))
    layers = model.layers()
    trained = [any(p.requires_grad for p in layer.parameters()) for layer in layers]
    half = round(0.5 * len(layers))
    assert trained == [False] * half + [True] * (len(layers) - half)
    assert not next(model.parameters()).requires_grad
    assert all(p.requires_grad for head in model.heads().values() for p in head.parameters())


def test_a_probe_is_a_linear_layer_trained_on_what_the_model_says_in_evaluation(make_trainer):
    trainer = make_trainer(**PROBE, **NOISY)
    layer = nn.Linear(16, 3)
    layer.load_state_dict(trainer.learner.model.head.linear.state_dict())
    optimizer = torch.optim.AdamW([{"params": [layer.weight], "weight_decay": 0.05}, {"params": [layer.bias], "weight_decay": 0}])
    trainer.learner.model.eval()
    for step in range(trainer.total):
        batch = list(trainer.train_loader.epoch(step // 3))[step % 3]
        pixels, labels = batch["images"], batch["labels"]
        with torch.no_grad():
            vectors = trainer.learner.model.encode(trainer.learner.task.preparation.normalize(pixels))[:, 0]
        for group in optimizer.param_groups:
            group["lr"] = 0.01 * learning_rate_factor(trainer.settings.schedule, step, warmup=0, total=trainer.total)
        optimizer.zero_grad()
        F.cross_entropy(layer(vectors), labels).backward()
        nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
        optimizer.step()
    trainer.run()
    for name, value in layer.state_dict().items():
        torch.testing.assert_close(trainer.learner.model.head.linear.state_dict()[name], value, rtol=0, atol=1e-6)


BATCH_NORM = {"model.embedding": "pooled-stem"}


@pytest.mark.parametrize("ema", [0.0, 0.9])
def test_adapters_on_the_model_they_began_with_answer_as_the_model_that_was_kept(make_trainer, ema):
    trainer = make_trainer(**BATCH_NORM, **{"training.tune": "lora", "training.ema": ema})
    base, images = merge_lora(trainer.learner.model).eval(), torch.randn(9, 1, 8, 8)
    before = base(images)
    trainer.run()
    load_adapter(base, trainer.folder.path / "last/adapter")
    torch.testing.assert_close(base(images), load_model(trainer.folder.path / "last").model(images), rtol=0, atol=1e-6)
    assert (base(images) - before).abs().max() > 0.01


@pytest.mark.parametrize(
    "more", [{}, {"training.ema": 0.9}, {"training.accumulate": 2}, {"schedule.first_image_size": 4}], ids=str
)
def test_a_frozen_part_keeps_what_its_batch_norm_remembers(make_trainer, more):
    trainer = make_trainer(**BATCH_NORM, **more, **{"optimizer.layers": {"embedding": {"lr": 0}}})
    before = state(trainer.learner.model)
    trainer.run()
    for model in (trainer.learner.model, trainer.learner.evaluated.model):
        after = model.state_dict()
        assert all(torch.equal(after[name], before[name]) for name in before if name.startswith("embedding."))


def test_batch_norm_beside_a_frozen_part_goes_on(make_trainer):
    trainer = make_trainer(**BATCH_NORM, **{"optimizer.layers": {"embedding.first": {"lr": 0}}})
    before = state(trainer.learner.model)
    trainer.run()
    statistics = {name for name in before if name.endswith(("running_mean", "running_var"))}
    kept = {name for name in statistics if torch.equal(trainer.learner.model.state_dict()[name], before[name])}
    assert kept == {name for name in statistics if name.startswith("embedding.first.")} != statistics


def test_a_part_of_a_new_model_cannot_be_all_that_is_trained():
    model = {"model": {"name": "ViT-Ti/16"}, "data": {"source": "somewhere"}}
    with pytest.raises(ConfigError, match="training a part of a model needs") as error:
        resolve(model, {}, nested({"tune": "head"}))
    assert error.value.where == "--tune" and "--from" in error.value.hint
    assert resolve(model, {}, nested({"tune": "head", "start": "runs/one"})).training.tune == "head"


@pytest.mark.parametrize("tune", ["head", "lora"])
def test_a_share_of_the_layers_is_refused_where_none_is_trained(tune):
    asked = {"data": "digits", "model": "ViT-Ti/16", "start": "model", "training.frozen_share": 0.5, "training.tune": tune}
    with pytest.raises(ConfigError, match=f"--tune {tune} freezes all layers") as refused:
        resolve({}, {}, nested(asked))
    assert refused.value.where == "training.frozen_share"


def test_the_layers_of_a_new_model_cannot_be_left_as_they_are_drawn():
    with pytest.raises(ConfigError, match="frozen layers need") as refused:
        resolve({}, {}, nested({"data": "digits", "model": "ViT-Ti/16", "training.frozen_share": 0.5}))
    assert refused.value.where == "training.frozen_share" and "--from" in refused.value.hint


@pytest.mark.parametrize(
    ("told", "said"),
    [({"tune": "lora"}, "--tune lora"), ({"tune": "head"}, "--tune head"), ({"frozen_share": 0.5}, "frozen_share")],
)
def test_new_registers_are_refused_where_they_would_stay_as_they_are_drawn(told, said):
    base = {"image_size": 16, "patch_size": 8, "dim": 16, "depth": 2, "heads": 2, "mlp_dim": 32, "num_classes": 3}
    old, new = (create_model("ViT-Ti/16", **base, registers=count) for count in (0, 2))
    asked = {
        "data": "digits",
        "model": "ViT-Ti/16",
        "start": "model",
        **{f"training.{name}": value for name, value in told.items()},
    }
    settings = resolve({}, {}, nested(asked))
    with pytest.raises(ConfigError, match=f"registers.* is new and random, and .*{said}"):
        require_nothing_fresh(new, old, settings)
    require_nothing_fresh(new, new, settings)
