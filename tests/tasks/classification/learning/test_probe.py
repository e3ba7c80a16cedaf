"""A run that starts from a trained model: a head fitted to frozen features first, and training from there."""

import json
import shutil
import signal
import sys

import numpy as np
import pytest
import torch
from PIL import Image

import vitrail
from vitrail import api
from vitrail.data.loading.dataset import ImageDataset
from vitrail.data.loading.loader import EpochLoader
from vitrail.data.readers.sources import open_data
from vitrail.errors import ConfigError, DataError
from vitrail.models.inference import for_inference
from vitrail.models.registry import create_model
from vitrail.runtime.observer import Observer
from vitrail.runtime.processes import ALONE
from vitrail.runtime.signals import InterruptedRunError
from vitrail.tasks.classification.labels.single_label import Classification
from vitrail.tasks.classification.learning.probe import Probe, linear_layer
from vitrail.tasks.probe import Head
from vitrail.training.finetune import features as computing
from vitrail.training.finetune.features import FeatureFile, read_features
from vitrail.training.loop import clock as clocks
from vitrail.training.runs.run_folder import RunFolder
from vitrail.weights.reference import open_model

pytestmark = pytest.mark.usefixtures("unreported")

CPU = torch.device("cpu")
PROBE = {"recipe": "finetune", "training.batch_size": 8, "augmentation.crop": "none", "model.patch_dropout": 0}


@pytest.fixture(scope="module")
def known(pictures, tiny, tmp_path_factory) -> str:
    """A model that knows something of colours, by other names."""
    others = tmp_path_factory.mktemp("others")
    for name, channel in (("warm", 0), ("cold", 2)):
        (others / name).mkdir()
        for number in range(6):
            pixels = np.random.default_rng(number).integers(0, 80, (10, 10, 3), dtype=np.uint8)
            pixels[..., channel] += 120
            Image.fromarray(pixels).save(others / name / f"{number}.png")
    return str(api.train(others, others.parent / "known", **{**tiny, "training.epochs": 3}).folder)


def rows_of(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("fields", "possible"),
    [
        ({}, True),
        ({"head": "mlp"}, False),
        ({"head": "lecture"}, False),
        ({"distillation_token": True}, False),
        ({"pool": "mean"}, True),
    ],
)
def test_a_head_is_fitted_only_where_it_is_one_linear_layer(fields, possible):
    model = create_model("ViT-Ti/4", image_size=8, dim=16, depth=1, heads=2, mlp_dim=32, num_classes=3, **fields)
    assert (linear_layer(model) is not None) == possible
    assert linear_layer(create_model("ResNet-18", image_size=32, num_classes=3))


def test_features_are_what_the_head_reads(known, pictures):
    trained = open_model(known)
    items = open_data(str(pictures)).split("all")
    loader = EpochLoader(ImageDataset(items, trained.preparation), 5, shuffle=False)
    model, counts = for_inference(trained.model), []
    kept = FeatureFile(None, (len(items), 16), "")
    found = read_features(
        lambda pixels: model.vectors(trained.preparation.normalize(pixels)),
        loader, kept, device=CPU, view=0, on_batch=counts.append, group=ALONE,
    )  # fmt: skip
    images = torch.cat([trained.preparation.normalize(batch["images"]) for batch in loader.epoch()])
    torch.testing.assert_close(found, trained.model.vectors(images).detach(), atol=1e-5, rtol=1e-5)
    assert sum(counts) == len(items)


def test_an_interrupted_pass_goes_on_where_it_was_and_of_other_images_begins_anew(known, pictures, tmp_path, monkeypatch):
    monkeypatch.setattr(computing, "EVERY", 1)
    trained = open_model(known)
    items = open_data(str(pictures)).split("all")
    model, reads = for_inference(trained.model), []

    def counted(images):
        reads.append(len(images))
        return model.vectors(trained.preparation.normalize(images))

    def computed(mark, fails_after=99):
        reads.clear()
        loader = EpochLoader(ImageDataset(items, trained.preparation), 5, shuffle=False)

        def on_batch(images):
            if len(reads) == fails_after:
                raise KeyboardInterrupt

        kept = FeatureFile(tmp_path / "f" / "train", (len(items), 16), mark)
        return read_features(counted, loader, kept, device=CPU, view=0, on_batch=on_batch, group=ALONE).clone()

    whole = computed("other")
    with pytest.raises(KeyboardInterrupt):
        computed("mark", fails_after=2)
    assert torch.equal(computed("mark"), whole) and reads == [5, 5, 4]
    assert torch.equal(computed("mark"), whole) and reads == []
    assert torch.equal(computed("third"), whole) and len(reads) == 5


def test_a_probe_alone_is_a_whole_run_without_a_step(reported, known, pictures, tmp_path):
    run = api.train(pictures, tmp_path / "run", start=known, tune="head", **PROBE)
    (row,) = rows_of(run.folder)
    assert (row["epoch"], row["step"]) == (0, 0) and row["val_top1"] >= 0.5
    report = (run.folder / "report.html").read_text()
    assert run.scores["images"] and "of reading features" in report and "there are no curves" in report
    assert report.count("all of it learns") == 1  # in the settings: it is what the recipe would do without --tune head
    assert "kept is epoch 0: a head" in (run.folder / "train.log").read_text()
    (compared,) = api.compare([run.folder])
    assert (compared.epochs, compared.to_dict()["epochs"]) == (0, 0) and compared.rate > 0
    before, after = open_model(known).model.state_dict(), open_model(str(run.folder / "best")).model.state_dict()
    assert [name for name in before if not torch.equal(before[name], after[name])] == ["head.linear.weight", "head.linear.bias"]
    assert not (run.folder / "features").exists()
    scores = vitrail.evaluate(run.folder, split="val")[0].scores()
    assert scores["loss"] == pytest.approx(row["val_loss"], abs=1e-4) and scores["top1"] == row["val_top1"]
    status = json.loads((run.folder / "status.json").read_text())
    assert (status["state"], status["epoch"], status["best"]["epoch"]) == ("finished", 0, 0)


@pytest.mark.parametrize("options", [{}, {"training.ema": 0.5}, {"training.tune": "lora"}], ids=str)
def test_training_goes_on_from_the_probe_and_is_never_worse(options, known, pictures, tmp_path):
    run = api.train(pictures, tmp_path / "run", start=known, **{**PROBE, "training.epochs": 2, "optimizer.lr": 1e-7, **options})
    probe, first, second = rows_of(run.folder)
    assert (probe["epoch"], first["epoch"], second["epoch"]) == (0, 1, 2)
    assert first["val_loss"] == pytest.approx(probe["val_loss"], abs=1e-3)  # at this learning rate nothing moves
    best = json.loads((run.folder / "status.json").read_text())["best"]
    assert best["val_top1"] == max(row["val_top1"] for row in (probe, first, second))


def test_a_bad_training_leaves_the_probe_in_place(known, pictures, tmp_path):
    run = api.train(pictures, tmp_path / "run", start=known, **{**PROBE, "training.epochs": 2, "optimizer.lr": 5.0})
    assert json.loads((run.folder / "status.json").read_text())["best"]["epoch"] == 0
    assert vitrail.evaluate(run.folder, split="val")[0].scores()["top1"] == rows_of(run.folder)[0]["val_top1"]


def test_the_better_head_is_kept(known, pictures, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "vitrail.tasks.classification.learning.probe.linear_heads", lambda *_, **__: [Head(torch.zeros(3, 16), torch.zeros(3))]
    )
    run = api.train(pictures, tmp_path / "run", start=known, tune="head", **PROBE)
    assert "probe: ridge" in (run.folder / "train.log").read_text()
    assert rows_of(run.folder)[0]["val_top1"] > 0.4


def test_several_labels_are_probed_by_average_precision(known, tmp_path, pictures):
    lines = ["image,label"]
    for number, file in enumerate(sorted(pictures.rglob("*.png"))):
        lines.append(f"{file},{file.parent.name};{'even' if number % 2 else 'odd'}")
    (tmp_path / "labels.csv").write_text("\n".join(lines))
    run = api.train(tmp_path / "labels.csv", tmp_path / "run", start=known, tune="head", **PROBE)
    assert rows_of(run.folder)[0]["val_map"] > 0.4


@pytest.mark.parametrize("balance", ["sampling", "loss"])
def test_rare_classes_count_as_much_where_they_are_to(balance, known, pictures, tmp_path):
    run = api.train(
        pictures, tmp_path / "run", start=known, tune="head", **{**PROBE, "data.balance": balance, "training.views": 2}
    )
    assert rows_of(run.folder)[0]["val_top1"] >= 0.5


def test_views_are_of_each_image_by_itself(known, pictures, tmp_path, monkeypatch):
    """However the recipe mixes and repeats: labels stand apart from the images."""
    seen = []
    real = ImageDataset.__init__

    def remember(self, items, preparation, augmentation=None, *others, **more):
        seen.append(augmentation)
        real(self, items, preparation, augmentation, *others, **more)

    monkeypatch.setattr(ImageDataset, "__init__", remember)
    mixing = {"augmentation.mixup": 0.5, "augmentation.repeats": 2, "training.views": 2}
    run = api.train(pictures, tmp_path / "run", start=known, tune="head", **{**PROBE, **mixing})
    assert [(a.mixup, a.repeats) for a in seen[:3] if a] == [(0.0, 1)]
    assert rows_of(run.folder)[0]["val_top1"] >= 0.5


def test_a_damaged_feature_file_begins_anew(tmp_path):
    file = tmp_path / "f" / "train"
    FeatureFile(file, (4, 2), "mark").save(2)
    assert FeatureFile(file, (4, 2), "mark").done == 2
    assert FeatureFile(file, (5, 2), "mark").done == 0
    FeatureFile(file, (4, 2), "mark").save(2)
    file.with_suffix(".npy").write_bytes(b"\x93NUMPY damaged")
    assert FeatureFile(file, (4, 2), "mark").done == 0
    file.with_suffix(".json").write_text("{")
    assert FeatureFile(file, (4, 2), "mark").done == 0


def test_an_image_that_a_probe_cannot_read_leaves_what_was_computed_and_the_run_goes_on(known, pictures, tmp_path, monkeypatch):
    folder = shutil.copytree(pictures, tmp_path / "pictures")
    file = open_data(str(folder)).split("train")[-1].image
    whole = file.read_bytes()

    class Breaking(Observer):
        def begin(self, what, images):
            if what == "features of train":
                file.write_bytes(whole[:-30])

    settings = {**PROBE, "training.epochs": 1, "training.batch_size": 2}
    with pytest.raises(DataError) as caught:
        api.train(folder, tmp_path / "run", start=known, observer=Breaking(), **settings)
    assert caught.value.hint == f"bring it back as it was, then vitrail resume {tmp_path / 'run'}"
    assert RunFolder(tmp_path / "run").standing["state"] == "failed"
    computed = json.loads((tmp_path / "run/features/train-0.json").read_text())["batches"]
    file.write_bytes(whole)
    read = []
    monkeypatch.setattr(Probe, "_advance", lambda self, images: read.append(images))
    assert api.resume(tmp_path / "run").scores["images"] > 0
    splits = open_data(str(folder)).splits
    assert computed > 0 and sum(read) == len(splits["train"]) + len(splits["val"]) - 2 * computed


class Began(Observer):
    """Keeps what was begun."""

    def __init__(self):
        self.begun = []

    def begin(self, what, images):
        self.begun.append(what)


def test_a_signal_is_heard_within_the_fit_of_a_head(known, pictures, tmp_path, monkeypatch):
    evaluated, loss = [], Classification.loss

    def interrupted(self, *args, **options):
        if torch.is_grad_enabled():
            evaluated.append(signal.raise_signal(signal.SIGTERM))
        return loss(self, *args, **options)

    monkeypatch.setattr(Classification, "loss", interrupted)
    with pytest.raises(InterruptedRunError):
        api.train(pictures, tmp_path / "run", start=known, **PROBE)
    assert len(evaluated) == 1 and RunFolder(tmp_path / "run").standing["state"] == "interrupted"


@pytest.mark.parametrize(("limit", "steps"), [(10, 1), (2, 0)], ids=["half gone", "all gone"])
def test_a_probe_that_has_had_its_time_leaves_out_what_is_not_needed(limit, steps, known, pictures, tmp_path, monkeypatch):
    """By a clock that moves with the features alone, a third of a second each: 6 or 7 in all."""
    observer, now = Began(), [0.0]

    class Reading:
        def monotonic(self):
            return now[0]

    advance = Probe._advance
    monkeypatch.setattr(
        Probe, "_advance", lambda self, images: (now.__setitem__(0, now[0] + 8 * images / 24), advance(self, images))
    )
    monkeypatch.setattr(clocks, "time", Reading())
    options = {**PROBE, "training.views": 3, "training.epochs": 1, "training.time_limit": limit}
    run = api.train(pictures, tmp_path / "run", start=known, observer=observer, **options)
    status = json.loads((run.folder / "status.json").read_text())
    assert [what for what in observer.begun if "features" in what] == ["features of train", "features of val"]
    log = (run.folder / "train.log").read_text()
    assert "probe: ridge" in log and "linear" not in log and "neighbours" not in log
    assert (status["state"], status["step"] > 0) == ("finished", bool(steps)) and ("the time is up" in log) == (not steps)
    if not steps:
        with pytest.raises(ConfigError, match="a probe has no epochs"):
            api.resume(run.folder, epochs=3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"optimizer.layers": {"hed": {"lr": 0.1}}}, "unknown part of the model 'hed'"),
        ({"schedule.first_image_size": 64}, "64 × 64 is larger"),
        ({"track": "mlflow"}, "mlflow is not installed"),
    ],
    ids=["part", "image size", "tracker"],
)
def test_what_training_would_refuse_is_told_before_a_probe_takes_time(settings, message, pictures, known, tmp_path, monkeypatch):
    monkeypatch.setattr(Probe, "run", lambda *_: pytest.fail("a probe began"))
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(ConfigError, match=message):
        api.train(pictures, tmp_path / "run", start=known, **{**PROBE, **settings})
    assert not (tmp_path / "run").exists()


class Stops(Observer):
    """Sends a signal in the middle of the features."""

    def begin(self, what, images):
        if what.startswith("features of val"):
            signal.raise_signal(signal.SIGTERM)


def test_a_run_stopped_in_its_probe_goes_on_to_the_same_model(known, pictures, tmp_path):
    settings = {**PROBE, "training.epochs": 1}
    whole = api.train(pictures, tmp_path / "whole", start=known, **settings)
    with pytest.raises(InterruptedRunError):
        api.train(pictures, tmp_path / "broken", start=known, observer=Stops(), **settings)
    assert (tmp_path / "broken/features/train-0.npy").exists() and RunFolder(tmp_path / "broken").standing[
        "state"
    ] == "interrupted"
    again = api.resume(tmp_path / "broken")
    one, other = (open_model(str(run.folder / "last")).model.state_dict() for run in (whole, again))
    assert all(torch.equal(one[name], other[name]) for name in one)
