"""A run of self-distillation: its teacher is the run's average, with schedules, and a collapse ends it."""

import json
import math

import pytest
import torch

from vitrail import api
from vitrail.config.configuration import nested, resolve
from vitrail.data.images.preparation import Preparation
from vitrail.data.items import ImageData, Item
from vitrail.errors import ConfigError, DivergedError
from vitrail.models.registry import build
from vitrail.tasks.dino.settings import DinoSettings
from vitrail.tasks.dino.task import Dino
from vitrail.training.loop.learner import Learner
from vitrail.training.runs.create_task import create_task
from vitrail.weights.formats.tensor_files import read_tensors

TINY = {
    "task": "dino", "model.name": "ViT-Ti/4", "model.image_size": 8, "model.dim": 16, "model.depth": 1, "model.heads": 2,
    "model.mlp_dim": 32, "task.hidden_dim": 32, "task.bottleneck_dim": 16, "task.out_dim": 32, "task.small_crops": 2,
    "augmentation.crop": "resized", "training.batch_size": 8, "training.epochs": 2, "data.source": "digits",
}  # fmt: skip


def learner(**changes) -> Learner:
    settings = resolve({}, {}, nested({**TINY, **changes}))
    settings = settings.changed(model=settings.model.changed(num_classes=0))
    torch.manual_seed(0)
    data = ImageData("none", [], {"train": [Item(f"{n}.png", None, 0) for n in range(100)], "val": [], "test": []})
    task = create_task(settings, build(settings.model.config), Preparation.standard((8, 8)), data)
    return Learner(settings, task, total=40, warmup=0, epoch=10)


def batch(seed: int = 0, count: int = 6) -> dict[str, torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    return {
        "images": torch.randint(0, 256, (count, 2, 3, 8, 8), dtype=torch.uint8, generator=random),
        "small": torch.randint(0, 256, (count, 2, 3, 4, 4), dtype=torch.uint8, generator=random),
    }


def step(one: Learner, done: int, seed: int = 0) -> None:
    one.step(batch(seed), done=done, size=6, own=6)


def test_the_teacher_is_the_average_of_the_run_and_is_what_is_saved():
    one = learner()
    (teacher,) = one.task._teacher
    assert teacher is one.average.module is one.evaluated
    assert not any(name.startswith("_teacher") for name, _ in one.task.named_modules())
    step(one, 0)  # the average begins with the first weights that it gets
    expected = {name: p.clone() for name, p in teacher.named_parameters()}
    for done in range(1, 4):
        step(one, done, done)
        decay = 1 - 0.004 * (math.cos(math.pi * done / 40) + 1) / 2
        own = dict(one.task.named_parameters())
        expected = {name: decay * p + (1 - decay) * own[name] for name, p in expected.items()}
    for name, p in teacher.named_parameters():
        torch.testing.assert_close(p, expected[name], rtol=1e-5, atol=1e-6)


def test_the_centre_is_the_average_of_what_the_teacher_says_of_large_crops():
    one = learner(**{"task.centre_decay": 0.8, "training.accumulate": 3})
    expected = torch.zeros(32)
    for done in range(3):
        images = batch(done)["images"].flatten(0, 1)
        with torch.no_grad():
            said = one.average.module.project(one.task.preparation.normalize(images))[1]
        step(one, done, done)
        expected = 0.8 * expected + 0.2 * said.mean(dim=0)
        torch.testing.assert_close(one.task.centre.mean, expected)
        torch.testing.assert_close(one.evaluated.centre.mean, expected)
    bare = learner(**{"task.centring": False})
    step(bare, 0)
    assert not bare.task.centre.mean.any()


def test_schedules_of_temperature_weight_decay_and_the_last_layer():
    one = learner(**{"schedule.final_weight_decay": 10.0, "optimizer.weight_decay": 0.04})
    last = one.task.head.last.weight
    before = torch.nn.functional.normalize(last.detach().clone(), dim=1)
    seen = []
    for done in (0, 6, 9, 10, 20, 39):
        step(one, done)
        seen.append((done, one.task.temperature, max(group["weight_decay"] for group in one.optimizers[0].param_groups)))
        paused = not any(last in optimizer.state for optimizer in one.optimizers)
        assert paused == (done < 10)  # the optimizer's averages begin with the first step that counts
        moved = (torch.nn.functional.normalize(last.detach(), dim=1) - before).abs().max() > 1e-5
        assert moved == (done >= 10)  # an epoch has ten steps
    for done, temperature, decay in seen:
        assert temperature == pytest.approx(0.04 + 0.03 * min(1, done / 12))
        assert decay == pytest.approx(0.04 * (1 + 9 * (1 - math.cos(math.pi * done / 40)) / 2))


def test_the_projection_has_as_many_outputs_as_the_images_are_worth():
    outputs = DinoSettings().outputs_for
    assert [outputs(n) for n in (10, 5_000, 50_000, 1_281_167, 10**8)] == [1024, 1024, 4096, 65536, 65536]
    assert DinoSettings(out_dim=100).outputs_for(10**6) == 100


def test_views_of_one_size_are_one_batch():
    one, calls = learner(), []
    one.task.project = lambda images, *mask, **how: (
        calls.append(tuple(images.shape)) or Dino.project(one.task, images, *mask, **how)
    )
    one.task(batch())
    assert calls == [(12, 3, 8, 8), (12, 3, 4, 4)]


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"augmentation.crop": "pad"}, "crops of an image"),
        ({"task.small_area": 0.5}, "small crops of at least 0.5"),
        ({"data.balance": "loss"}, "no classes"),
        ({"schedule.first_image_size": 4}, "crops have the model's size"),
        ({"task.patches": 1.0, "model.pool": "attention"}, "the loss on masked patches needs"),
    ],
)
def test_what_does_not_go_together_is_refused(changes, what, tmp_path):
    settings = {name: value for name, value in TINY.items() if name != "data.source"}
    with pytest.raises(ConfigError, match=what):
        api.train("digits", tmp_path / "run", recipe="dino", **{**settings, **changes})


def test_masked_patches_are_learned_from_what_the_teacher_sees():
    one = learner(**{"task.patches": 1.0, "task.small_crops": 0})
    assert one.task.carried == ("centre", "patch_centre") and "mask" in one.task.trained_parts()
    images = one.task.preparation.normalize(batch()["images"].flatten(0, 1))
    masked = torch.zeros(6, 2, 4, dtype=torch.bool)
    masked[:4, 0, 1] = masked[0, 1, 2:] = True
    given = {"images": batch()["images"], "masked": masked}
    one.step({**given, "masked": torch.zeros_like(masked)}, done=0, size=6, own=6)  # nothing to learn of patches
    with torch.no_grad():
        seen, blind = (one.evaluated.project(images, masked.flatten(0, 1), hidden=hidden) for hidden in (False, True))
    assert seen.patches.shape == (6, 32) and not torch.allclose(seen.patches, blind.patches)
    token = one.task.mask.token.detach().clone()
    one.step(given, done=1, size=6, own=6)
    torch.testing.assert_close(one.task.patch_centre.mean, 0.1 * seen.patches.mean(dim=0))
    assert not torch.equal(one.task.mask.token, token)


@pytest.mark.parametrize("setting", ["training.ema", "training.average"])
def test_a_second_average_is_refused(setting):
    with pytest.raises(ConfigError, match="averages the weights itself"):
        learner(**{setting: 0.5 if setting == "training.ema" else 2})


def test_a_model_of_one_size_needs_a_run_without_small_crops():
    mixer = {"model.name": "Mixer-S/16", "model.patch_size": 4, "model.token_dim": 8, "model.channel_dim": 16}
    fields = {name: value for name, value in TINY.items() if name not in ("model.name", "model.heads", "model.mlp_dim")}
    settings = resolve({}, {}, nested({**fields, **mixer}))
    model = build(settings.model.changed(num_classes=0).config)
    data = ImageData("none", [], {"train": [Item("0.png", None, 0)], "val": [], "test": []})
    with pytest.raises(ConfigError, match="takes only images of") as caught:
        create_task(settings, model, Preparation.standard((8, 8)), data)
    assert "--task.small-crops 0" in caught.value.hint


def test_batch_norms_of_the_teacher_see_its_own_batch():
    """The student's statistics do not fit the teacher's weights, and an average of them would long stay near the first ones."""
    one = learner(**{"model.embedding": "pooled-stem", "task.batch_norm": True})
    for done in range(3):
        step(one, done, done)
    own, teacher = dict(one.task.named_buffers()), dict(one.evaluated.named_buffers())
    means = [name for name in own if name.endswith("running_mean")]
    assert {name.split(".")[0] for name in means} == {"model", "head"}
    assert all(teacher[name].any() and not torch.equal(own[name], teacher[name]) for name in means)
    one.task.before_step(one.progress)
    before = one.task(batch())["loss"]
    for name in means:
        teacher[name].add_(100)
    assert torch.equal(one.task(batch())["loss"], before)
    one.evaluated.eval()
    assert not torch.allclose(one.task(batch())["loss"], before)


def test_the_largest_batch_is_not_searched(vitrail, pictures, tmp_path):
    answer = vitrail("train", "--task", "dino", "--data", pictures, "--batch-size", "auto", "--out", tmp_path / "run")
    assert answer.code == 2 and "--batch-size auto does not go with crops" in answer.err and not (tmp_path / "run").exists()


@pytest.mark.usefixtures("unreported")
def test_a_run_that_collapses_is_ended_within_two_epochs_and_says_what_to_change(pictures, tmp_path):
    """Without centring, and with a warm teacher, one answer for all images has the least loss."""
    collapsing = {"task.centring": False, "task.teacher_temperature": 1.0, "task.last_teacher_temperature": 1.0}
    settings = {name: value for name, value in TINY.items() if name != "data.source"} | {
        "optimizer.lr": 0.01,
        "training.epochs": 9,
    }
    with pytest.raises(DivergedError, match="collapsed") as caught:
        api.train(pictures, tmp_path / "run", recipe="dino", **settings, **collapsing)
    assert "--task.teacher-temperature" in caught.value.hint
    rows = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines() if (tmp_path / "run" / "metrics.jsonl").exists() else []
    assert len(rows) < 2


def test_a_run_from_another_goes_on_with_its_projection_on_other_images(pictures, tmp_path):
    settings = {name: value for name, value in TINY.items() if name not in ("data.source", "task.out_dim")}
    first = api.train(pictures, tmp_path / "first", recipe="dino", **settings, **{"task.out_dim": 48})
    others = {**settings, "start": str(first.folder), "training.epochs": 1, "optimizer.lr": 1e-30, "recipe": "dino"}
    again = api.train("digits", tmp_path / "again", **{**others, "task.teacher_decay": 0.0, "data.train_share": 0.01})
    beside = [read_tensors(run.folder / "best" / "beside.safetensors") for run in (first, again)]
    assert beside[1]["head.last.weight"].shape[0] == 48  # the first run's, and not that of so many images
    torch.testing.assert_close(beside[0]["head.last.weight"], beside[1]["head.last.weight"])
    assert f"head: continued from {first.folder}" in (again.folder / "train.log").read_text()
    wider = api.train(pictures, tmp_path / "wider", **{**others, "task.hidden_dim": 24, "task.patches": 1.0})
    log = (wider.folder / "train.log").read_text()
    assert "head: new, as it has another shape" in log and "centre: continued" in log and "mask: new" in log


def test_a_damaged_image_is_named_and_can_be_skipped(vitrail, pictures, tmp_path):
    nested_folder = tmp_path / "images" / "2024" / "holiday"
    nested_folder.mkdir(parents=True)
    for number, file in enumerate(sorted(pictures.rglob("*.png"))):
        (nested_folder / f"{number}.png").write_bytes(file.read_bytes())
    (nested_folder / "damaged.png").write_bytes(b"no image")
    words = [f"--{name.replace('_', '-')}={value}" for name, value in TINY.items() if name not in ("data.source", "task")]
    words = ["train", "--task", "dino", "--data", tmp_path / "images", "--fast-dev-run", *words]
    refused = vitrail(*words, "--out", tmp_path / "refused")
    assert refused.code == 3 and "damaged.png" in refused.err and not (tmp_path / "refused").exists()
    skipped = vitrail(*words, "--bad-images", "skip", "--out", tmp_path / "skipped")
    assert skipped.code == 0 and "damaged.png" in (tmp_path / "skipped" / "bad_images.json").read_text()
    assert "1,024 outputs" not in skipped.err and "32 outputs of the projection for" in skipped.err


def test_labels_only_measure(pictures, tmp_path):
    settings = {name: value for name, value in TINY.items() if name != "data.source"}
    run = api.train(pictures, tmp_path / "run", recipe="dino", **settings)
    assert 0 <= run.scores["knn"] <= 1 and 0 <= run.scores["linear_accuracy"] <= 1 and run.trained.labels == []
    assert run.trained.config.num_classes == 0
    for name in ("neighbours", "image-map", "attention"):
        assert (run.folder / "plots" / f"{name}.png").stat().st_size > 2000
    rows = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    assert all({"val_knn", "val_rankme", "val_loss"} <= row.keys() for row in rows)
    unlabelled = tmp_path / "flat"
    unlabelled.mkdir()
    for number, file in enumerate(sorted(pictures.rglob("*.png"))):
        (unlabelled / f"{number}.png").write_bytes(file.read_bytes())
    flat = api.train(unlabelled, tmp_path / "flat-run", recipe="dino", **settings)
    assert "knn" not in flat.scores and flat.scores["rankme"] > 1
    probed = api.train(unlabelled, tmp_path / "probed", recipe="dino", **settings, **{"task.probe": str(pictures)})
    assert 0 <= probed.scores["knn"] <= 1
