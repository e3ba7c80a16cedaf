"""Promises of the library for every task. They are found in the table: none is without its row here."""

import itertools
import json

import pytest
import torch
from PIL import Image

from captioned import write_captions
from masked import write_masks
from stick_figures import write_people
from tiny_segmenter import FIELDS as SEGMENTER
from vitrail import api
from vitrail.config.configuration import nested
from vitrail.data.loading.loader import EpochLoader
from vitrail.models.registry import build
from vitrail.runtime.observer import Observer
from vitrail.runtime.processes import Processes
from vitrail.task_registry import TASKS
from vitrail.tasks.evaluation import answering, evaluate
from vitrail.tasks.floor import is_no_better
from vitrail.tasks.metrics import COUNTS, METRICS, main_metric
from vitrail.tasks.task import Task
from vitrail.training.loop.learner import Learner
from vitrail.training.run_data import run_data_of
from vitrail.training.runs import setup as preparing
from vitrail.training.runs.create_task import create_task

MODEL = {
    "model.name": "ViT-Ti/4", "model.image_size": 8, "model.dim": 16, "model.depth": 1, "model.heads": 2, "model.mlp_dim": 32,
    "augmentation.crop": "none", "augmentation.horizontal_flip": 0, "training.batch_size": 8, "training.epochs": 2,
    "optimizer.lr": 0.01, "schedule.warmup_epochs": 0,
}  # fmt: skip
TEXT_MODEL = {
    "model.name": "Transformer-tiny", "model.dim": 16, "model.depth": 1, "model.decoder_depth": 1, "model.heads": 2,
    "model.mlp_dim": 32, "training.batch_size": 40, "training.epochs": 2, "optimizer.lr": 0.01, "schedule.warmup_epochs": 0,
    "training.label_smoothing": 0,
}  # fmt: skip
ENCODER = {"patch_size": 8, "dim": 16, "depth": 1, "heads": 2, "mlp_dim": 32}
CAPTIONER = {
    "model.name": "Captioner-Ti/16", "model.image_size": 24, "model.encoder": ENCODER, "model.dim": 16, "model.decoder_depth": 1,
    "model.heads": 2, "model.mlp_dim": 32, "model.dropout": 0.1, "augmentation.horizontal_flip": 0, "training.batch_size": 8,
    "training.epochs": 2, "training.tune": "all", "training.label_smoothing": 0, "training.precision": "fp32",
    "optimizer.lr": 0.01, "schedule.warmup_epochs": 0,
}  # fmt: skip
WORDS = {"one": "eins", "red": "rot", "cat": "Katze", "and": "und", "dog": "Hund"}
DINO = {
    "task": "dino", "task.hidden_dim": 32, "task.bottleneck_dim": 16, "task.out_dim": 32, "task.frozen_epochs": 0.5,
    "task.teacher_temperature": 0.02, "augmentation.crop": "resized", "optimizer.lr": 0.001,
}  # fmt: skip
KINDS = {
    "Classification": {},
    "MultiLabel": {},
    "Distillation": {"distillation.kind": "soft", "distillation.weight": 0.3},
    "Ordinal": {"task": "ordinal"},
    "Reconstruction": {"task": "mae", "task.decoder_dim": 8, "task.decoder_depth": 1, "task.decoder_heads": 2},
    "Diffusion": {
        "task": "diffusion",
        "model.name": "DiT-S/2",
        "model.patch_size": 4,
        "model.channels": 3,
        "model.learned_variance": True,
        "model.objective": "velocity",
        "model.steps": 50,
    },
    "Diffusion with masks": {
        "task": "diffusion",
        "model.name": "MDTv2-S/2",
        "model.channels": 3,
        "model.depth": 3,
        "model.decoder_depth": 1,
        "model.learned_variance": True,
        "task.min_snr": 5,
    },
    "Dino": {**DINO, "task.small_crops": 2, "task.koleo": 0.1},
    "Dino with masks": {**DINO, "task.small_crops": 1, "task.patches": 0.5},
    "Distill": {"task": "distill", "task.maps": 0.5},
    "PoseEstimation": {
        "task": "pose",
        "model.name": "ViTPose-Ti",
        "model.patch_size": 8,
        "model.image_size": [32, 24],
        "model.patch_padding": 0,
        "model.decoder": "simple",
        "augmentation.rotation": 0,
        "augmentation.scale": 0,
    },
    "Segmentation": {
        "task": "segment",
        "model.name": "ViT-Adapter-Ti",
        **{f"model.{name}": value for name, value in SEGMENTER.items()},
        "model.maps": "pyramid",
        "model.head": "mlp",
        "model.pyramid_dim": 16,
        "model.norm": "group",
        "model.head_dropout": 0.0,
        "task.dice": 0.5,
        "task.class_weights": "balanced",
    },
    "Captioning": {"task": "caption", "task.vocabulary": 280, "task.beams": 2, "task.max_length": 12},
    "Translation": {"task": "translate", "source": "en", "target": "de", "task.vocabulary": 280, "task.beams": 2},
}
"""What a run of every class that learns a task is told, beside `MODEL`; words after its name tell of a second way."""

BY_HEART = {kind: {"task.centring": False} for kind in ("Dino", "Dino with masks")}
"""Other settings to learn one batch: where outputs are centred, all of its images get the same ones."""


@pytest.fixture(params=list(KINDS))
def kind(request) -> str:
    return request.param


@pytest.fixture
def ask(kind, pictures, run, tmp_path_factory) -> dict:
    """The data and all settings of a run."""
    data = pictures
    if kind == "PoseEstimation":
        return {"data": str(write_people(tmp_path_factory.mktemp("people"), 30)), **MODEL, **KINDS[kind]}
    if kind == "Segmentation":
        of_a_vit = [name for name in MODEL if name.startswith("model.")]
        settings = {name: value for name, value in MODEL.items() if name not in of_a_vit}
        return {"data": str(write_masks(tmp_path_factory.mktemp("masks"), 24, 8)), **settings, **KINDS[kind]}
    if kind == "Captioning":
        return {"data": str(write_captions(tmp_path_factory.mktemp("captions"))), **CAPTIONER, **KINDS[kind]}
    if kind == "Translation":
        data = tmp_path_factory.mktemp("pairs") / "pairs.tsv"
        sentences = [words for length in (1, 2) for words in itertools.permutations(WORDS, length)]
        data.write_text("en\tde\n" + "".join(f"{' '.join(s)}\t{' '.join(WORDS[word] for word in s)}\n" for s in sentences))
        return {"data": str(data), **TEXT_MODEL, **KINDS[kind]}
    if kind == "MultiLabel":
        folder = tmp_path_factory.mktemp("several")
        lines = ["image,label"]
        for number, file in enumerate(sorted(pictures.rglob("*.png"))):
            Image.open(file).save(folder / f"{number}.png")
            lines.append(f"{number}.png,{file.parent.name};{('odd', 'even')[number % 2]}")
        (folder / "labels.csv").write_text("\n".join(lines) + "\n")
        data = folder / "labels.csv"
    teacher = {"teacher": str(run.folder)} if kind in ("Distillation", "Distill") else {}
    return {"data": str(data), **MODEL, **KINDS[kind], **teacher}


def made(ask) -> tuple[Task, EpochLoader]:
    """A task as a run makes it, and its training images in batches."""
    settings, start = preparing.resolve_run(None, None, nested(ask))
    inputs = run_data_of(settings)
    source = inputs.open_source(settings)
    settings = preparing.with_precision(inputs.complete(settings, source, start), Observer(), Processes())
    torch.manual_seed(0)
    preparation = inputs.preparation_of(settings, source)
    teacher = preparing.open_teacher(settings, None)
    task = create_task(settings, build(settings.model.config), preparation, source, teacher)
    task.test_settings, task.test_items = settings, source.split("train")
    return task, EpochLoader(task.dataset(task.test_items), settings.training.batch, shuffle=False)


def test_settings_have_the_name_of_a_task_by_default():
    assert {row.settings().name for row in TASKS.values()} <= TASKS.keys()


def test_every_task_has_settings_here():
    assert {given.get("task", "classification") for given in KINDS.values()} == TASKS.keys()


def test_the_loss_of_a_batch_reaches_every_parameter_and_counts_are_of_its_images(kind, ask):
    task, loader = made(ask)
    assert type(task).__name__ == kind.partition(" ")[0]
    batch = next(loader.epoch())
    found = task(batch)
    assert found.keys() == {"loss", *task.counts} and found["loss"].ndim == 0
    assert all(0 <= found[name] <= task.units(batch) for name in task.counts)
    assert set(task.counts) <= METRICS.keys()
    found["loss"].backward()
    assert all(parameter.grad is not None for parameter in task.parameters() if parameter.requires_grad)


def test_the_answer_to_an_image_does_not_depend_on_the_others(ask):
    task, loader = made(ask)
    batch = next(loader.epoch())
    with answering(task, torch.device("cpu")) as answer:
        whole, alone = answer(batch), answer({name: tensor[3:4] for name, tensor in batch.items()})
    for name, tensor in whole.items():
        torch.testing.assert_close(tensor[3:4], alone[name], rtol=1e-5, atol=1e-6)


def test_metrics_are_names_and_numbers_that_json_can_hold_whatever_the_batches(ask):
    task, loader = made(ask)
    few, all_kept = task.metrics(), task.metrics(keep=True)
    for metrics in (few, all_kept):
        metrics.take_items(task.test_items)
    with answering(task, torch.device("cpu")) as answer:
        scores = evaluate(answer, loader, few).scores()
        others = evaluate(answer, EpochLoader(loader.dataset, 5, shuffle=False), all_kept).scores()
    kept = {name: others[name] for name in scores}  # what is kept may tell of more
    assert json.loads(json.dumps(scores)) == scores == pytest.approx(kept, rel=1e-5)
    assert [scores[name] for name in COUNTS if name in scores] == [len(loader.dataset)]
    assert "loss" in scores and main_metric(others).name in others and json.dumps(others)


def test_one_batch_is_learned_by_heart(kind, ask):
    task, loader = made({**ask, **BY_HEART.get(kind, {})})
    steps = 80
    learner = Learner(task.test_settings, task, total=steps, warmup=0)
    batch = next(loader.epoch())
    size, units = loader.size(0), loader.units(0)
    losses = [learner.step(batch, done=number, size=size, own=size, units=units).loss / units for number in range(steps)]
    assert sum(losses[-10:]) < 0.75 * sum(losses[:10])


def test_an_interrupted_run_goes_on_to_the_same_bits_and_is_evaluated_and_reported(ask, tmp_path, monkeypatch):
    class Stopping(Observer):
        def step(self, epoch, sums):
            if len(seen) == 3:
                raise KeyboardInterrupt
            seen.append(epoch)

    recipe = TASKS[ask.get("task", "classification")].recipe
    ema = {} if ask.get("task") == "dino" else {"training.ema": 0.5}  # DINO has an average of its own
    settings, seen = {**ask, "training.checkpoint_every_steps": 1, **ema, "recipe": recipe or "scratch"}, []
    with monkeypatch.context() as patch:  # the resumed run shows that there is a report
        patch.setattr(api, "write_report", lambda finished: None)
        whole = api.train(out=tmp_path / "whole", **settings)
    with pytest.raises(KeyboardInterrupt):
        api.train(out=tmp_path / "broken", observer=Stopping(), **settings)
    resumed = api.resume(tmp_path / "broken")
    ours, theirs = resumed.trained.model.state_dict(), whole.trained.model.state_dict()
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())
    rows = [json.loads(line) for line in (resumed.folder / "metrics.jsonl").read_text().splitlines()]
    assert len(rows) == 2 and all(f"val_{main_metric(row, 'val_').name}" in row for row in rows)
    metrics, split = api.evaluate(resumed.folder)
    numbers = resumed.scores.items()
    expected = {name: value if isinstance(value, str) else pytest.approx(value, rel=1e-4) for name, value in numbers}
    scores = metrics.scores()  # samples tell more than the loss, and take longer than a run has for its report
    assert split == resumed.split and {name: scores[name] for name in expected} == expected
    assert (resumed.folder / "report.html").stat().st_size > 10_000
    monkeypatch.setattr(api, "write_report", lambda finished: None)
    started = api.train(
        out=tmp_path / "next", start=str(whole.folder), **{**ask, "training.epochs": 1, "recipe": recipe or "finetune"}
    )
    assert any(started.scores.get(name) for name in COUNTS)


def test_a_model_that_has_hardly_learned_is_warned_of_wherever_it_is_reported(ask, tmp_path, unreported):
    recipe = TASKS[ask.get("task", "classification")].recipe
    limit = {"training.epochs": 50, "training.time_limit": 1e-3, "optimizer.lr": 1e-9, "recipe": recipe or "scratch"}
    run = api.train(out=tmp_path / "run", **{**ask, **limit})
    status = json.loads((run.folder / "status.json").read_text())
    assert status["step"] == 1 and status["warnings"] == list(run.warnings)
    assert run.warnings[0].startswith("the model is hardly trained: the time was up after 1 of ")
    assert run.longer.startswith("vitrail resume") and "--epochs 50 --training.time-limit " in run.longer
    log = (run.folder / "train.log").read_text()
    assert log.index("the time is up after 1 of") < log.index("warning: the model is hardly trained")


def test_one_answer_for_all_items_is_scored_by_the_metric_that_decides(ask):
    task, loader = made(ask)
    metrics = task.metrics(keep=True)
    metrics.take_items(task.test_items)
    with answering(task, torch.device("cpu")) as answer:
        evaluate(answer, loader, metrics)
    floor = task.floor(metrics, task.test_items, task.test_items)
    assert floor is not None and floor.name
    assert main_metric(metrics.scores()) is main_metric(floor.scores)
    assert is_no_better({**metrics.scores(), **floor.scores}, floor.scores)
