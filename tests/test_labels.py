"""From a table of labels to answers: several labels an image, rare classes, a transform of one's own."""

import csv
import json
import shutil
from collections import Counter

import numpy as np
import pytest
import torch
from PIL import Image

import vitrail
from vitrail import ConfigError, DataError
from vitrail.errors import DivergedError
from vitrail.training.loop.learner import Learner
from vitrail.training.loop.trainer import Trainer

pytestmark = pytest.mark.usefixtures("unreported")

COLOURS = {"red": 0, "green": 1, "blue": 2}
TINY = {
    "model": "ViT-Ti/8", "image_size": 16, "epochs": 8, "batch_size": 16, "lr": 3e-3,
    "model.dim": 32, "model.depth": 1, "model.heads": 2, "model.mlp_dim": 32, "schedule.warmup_epochs": 0,
}  # fmt: skip


@pytest.fixture(scope="session")
def several(tmp_path_factory):
    """``labels.csv`` of 90 pictures whose channels are bright or dark, with a label for each bright one; some have none."""
    folder = tmp_path_factory.mktemp("several")
    random = np.random.default_rng(0)
    rows = []
    for i in range(90):
        bright = [bool((i >> c) & 1) for c in range(3)]
        pixels = random.integers(0, 100, (16, 16, 3)) + 150 * np.array(bright)
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{i}.png")
        labels = ";".join(name for name, c in COLOURS.items() if bright[c])
        rows.append((f"{i}.png", labels, "train" if i < 50 else "val" if i < 66 else "test"))
    with (folder / "labels.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("image", "label", "split"), *rows])
    return folder


@pytest.fixture(scope="session")
def run(several, tmp_path_factory):
    return vitrail.train(several / "labels.csv", tmp_path_factory.mktemp("runs") / "several", **TINY)


def test_several_labels_an_image_are_learned_and_measured_by_mean_average_precision(run):
    assert run.scores.keys() == {"top1", "loss", "images", "map", "f1"}
    assert run.scores["map"] > 0.99
    rows = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    assert all(0 <= row["val_map"] <= 1 and 0 <= row["val_f1"] <= 1 for row in rows)
    assert not any("top1" in name for name in rows[0])  # an accuracy says nothing of several labels
    status = json.loads((run.folder / "status.json").read_text())
    assert status["best"]["val_map"] == max(row["val_map"] for row in rows)
    config = json.loads((run.folder / "best" / "config.json").read_text())
    assert config["problem_type"] == "multi_label_classification" and vitrail.open_model(run.folder).multi_label


def test_each_label_has_a_probability_of_its_own(run, several):
    answers = dict(vitrail.predict(run.folder, several / "7.png")[0])  # 7: all three are bright
    assert min(answers.values()) > 0.5 and sum(answers.values()) > 1.5
    assert max(dict(vitrail.predict(run.folder, several / "8.png")[0]).values()) < 0.5  # 8: none is


def test_the_report_has_thresholds_and_the_score_of_every_class(run):
    page = (run.folder / "report.html").read_text()
    assert "threshold" in page.lower() and "average precision" in page.lower()
    assert all(name in page for name in COLOURS)


@pytest.mark.parametrize("balance", ["sampling", "loss"])
def test_several_labels_can_be_balanced(several, tmp_path, balance):
    run = vitrail.train(several / "labels.csv", tmp_path / "run", **TINY, balance=balance)
    assert run.scores["map"] > 0.95


def test_one_label_an_image_is_evaluated_by_a_model_of_several(run, tmp_path):
    for name in COLOURS:
        (tmp_path / "data" / name).mkdir(parents=True)
        pixels = np.full((16, 16, 3), 50, np.uint8)
        pixels[..., COLOURS[name]] = 220
        Image.fromarray(pixels).save(tmp_path / "data" / name / "0.png")
    evaluation, _ = vitrail.evaluate(run.folder, tmp_path / "data")
    assert evaluation.labels.shape == (3, 3)
    assert evaluation.scores()["top1"] == 1


def test_images_of_several_labels_are_refused_by_a_model_of_one(several, pictures, tmp_path):
    model = vitrail.train(pictures, tmp_path / "run", **{**TINY, "epochs": 1})
    with pytest.raises(DataError, match="several labels"):
        vitrail.evaluate(model.folder, several / "labels.csv")


# rare classes


@pytest.fixture
def uneven(tmp_path):
    """30 dark pictures, 6 bright ones."""
    random = np.random.default_rng(1)
    for name, count, base in (("dark", 30, 0), ("bright", 6, 150)):
        (tmp_path / "data" / "train" / name).mkdir(parents=True)
        (tmp_path / "data" / "test" / name).mkdir(parents=True)
        for i in range(count):
            pixels = (random.integers(0, 100, (16, 16, 3)) + base).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "data" / ("train" if i % 3 else "test") / name / f"{i}.png")
    return tmp_path / "data"


def test_sampling_shows_every_class_as_often(uneven, tmp_path, monkeypatch):
    seen, step = Counter(), Trainer._step

    def noting(self, batch):
        seen.update(batch["labels"].tolist())
        return step(self, batch)

    monkeypatch.setattr(Trainer, "_step", noting)
    vitrail.train(uneven, tmp_path / "run", **TINY, balance="sampling")
    assert abs(seen[0] - seen[1]) <= 8  # at most one an epoch


def test_the_loss_weighs_every_class_the_same(uneven, tmp_path, monkeypatch):
    weights = []
    init = Trainer.__init__

    def noting(self, *args, **kwargs):
        init(self, *args, **kwargs)
        weights.append((self.learner.task.weights, self.data.counts("train")))

    monkeypatch.setattr(Trainer, "__init__", noting)
    vitrail.train(uneven, tmp_path / "run", **TINY, balance="loss")
    ((weight, counts),) = weights
    assert weight[0] * counts[0] == pytest.approx((weight[1] * counts[1]).item())


# a transform of one's own


def darker(image: Image.Image) -> Image.Image:
    return image.point(lambda value: value // 2)


def to_tensor(image: Image.Image) -> torch.Tensor:
    """As torchvision's ToTensor."""
    return torch.from_numpy(np.array(image.resize((16, 16)))).permute(2, 0, 1) / 255


@pytest.mark.parametrize("transform", [darker, to_tensor])
def test_a_transform_changes_training_and_is_noted(pictures, tmp_path, transform):
    run = vitrail.train(pictures, tmp_path / "run", **TINY, transform=transform)
    assert transform.__name__ in (run.folder / "config.yaml").read_text()
    plain = vitrail.train(pictures, tmp_path / "plain", **TINY)
    files = [r.folder / "best" / "model.safetensors" for r in (run, plain)]
    assert files[0].read_bytes() != files[1].read_bytes()


def test_a_transform_that_normalises_is_refused_and_leaves_nothing(pictures, tmp_path):
    with pytest.raises(ConfigError) as error:
        vitrail.train(pictures, tmp_path / "run", **TINY, transform=lambda image: to_tensor(image) * 4 - 2)
    assert "remove the normalization" in error.value.hint
    assert not (tmp_path / "run").exists()


def report_again(folder):
    """A run whose report is yet to be written, as if it had been stopped there."""
    status = json.loads((folder / "status.json").read_text())
    (folder / "status.json").write_text(json.dumps({**status, "state": "interrupted"}))


def test_a_run_with_a_transform_is_not_resumed_without_it(pictures, tmp_path):
    run = vitrail.train(pictures, tmp_path / "run", **TINY, transform=darker)
    report_again(run.folder)
    with pytest.raises(ConfigError, match="darker"):
        vitrail.resume(run.folder)
    again = vitrail.resume(run.folder, transform=darker)
    assert again.scores == run.scores


# the run's own data under another name, and other data under its name


def splitless_table(pictures, folder):
    """``labels.csv`` without splits over a copy of the pictures."""
    shutil.copytree(pictures, folder / "below")
    rows = [(f"below/{p.parent.name}/{p.name}", p.parent.name) for p in sorted((folder / "below").rglob("*.png"))]
    with (folder / "labels.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("image", "label"), *rows])


def test_the_runs_own_data_keeps_its_splits_however_it_is_named(pictures, tmp_path, monkeypatch):
    splitless_table(pictures, tmp_path)
    monkeypatch.chdir(tmp_path)
    run = vitrail.train("labels.csv", "run", **{**TINY, "epochs": 1})
    own = vitrail.evaluate(run.folder)[0].scores()
    for name in ("labels.csv", str(tmp_path / "labels.csv"), ".", "./below/../labels.csv"):
        evaluation, split = vitrail.evaluate(run.folder, name)
        assert (split, evaluation.scores()) == ("test", own), name


def test_a_run_is_not_resumed_on_data_with_other_classes(pictures, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(pictures, data)
    run = vitrail.train(data, tmp_path / "run", **{**TINY, "epochs": 1})
    report_again(run.folder)
    (data / "red").rename(data / "amber")  # as many classes, in another order
    with pytest.raises(DataError, match="not those that the run was started with"):
        vitrail.resume(run.folder)


def test_several_labels_that_diverge_end_with_exit_code_5_and_leave_nothing(several, tmp_path, monkeypatch):
    step = Learner._apply_gradient

    def ruined(self, loss, norm):
        failure = step(self, loss, norm)
        torch.nn.init.constant_(self.model.head.linear.bias, float("nan"))
        return failure

    monkeypatch.setattr(Learner, "_apply_gradient", ruined)
    with pytest.raises(DivergedError, match="validation loss") as error:
        vitrail.train(several / "labels.csv", tmp_path / "run", **{**TINY, "batch_size": 64, "epochs": 1})
    assert error.value.exit_code == 5
    assert not (tmp_path / "run").exists()


def test_the_run_keeps_the_thresholds_chosen_on_validation_images_and_answers_by_them(run, several):
    trained = vitrail.open_model(run.folder)
    assert len(trained.thresholds) == len(trained.labels) and trained.thresholds != [0.5] * len(trained.labels)
    image = several / "7.png"
    every = vitrail.predict(run.folder, image, top=len(trained.labels))[0]
    bounds = dict(zip(trained.labels, trained.thresholds, strict=True))
    assert vitrail.predict(run.folder, image, top=None)[0] == [(label, score) for label, score in every if score >= bounds[label]]
    metrics, split = vitrail.evaluate(run.folder)
    assert split == "test" and metrics.scores() == pytest.approx(run.scores)
    trained.thresholds = ()
    assert vitrail.predict(trained, image, top=None)[0] == [(label, score) for label, score in every if score >= 0.5]
