"""The library as Python: train, resume, evaluate, predict."""

import json
import os
import shutil
import signal

import pytest
import torch
from PIL import Image

import vitrail
from vitrail import ConfigError, DataError, ModelFileError
from vitrail.config.configuration import nested
from vitrail.config.recipes import recipe_names
from vitrail.data.images.preparation import Preparation
from vitrail.data.readers.sources import open_data
from vitrail.data.readers.unlabelled import open_unlabelled
from vitrail.data.splits import share_of
from vitrail.runtime.observer import Observer
from vitrail.runtime.signals import InterruptedRunError
from vitrail.study.page import figures
from vitrail.training.images import preparation_of
from vitrail.training.runs import run_folder
from vitrail.training.runs.setup import resolve_run
from vitrail.weights.model_folder.folder import TrainedModel
from vitrail.weights.model_folder.trained import save_model
from vitrail.weights.reference import open_model

pytestmark = pytest.mark.usefixtures("unreported")


def test_a_run_tells_where_it_is_and_what_it_reached(run):
    assert run.folder.is_dir()
    assert run.split == "test"
    assert run.scores.keys() == {"top1", "loss", "images"}
    assert run.trained.labels == ["blue", "green", "red"]


def test_settings_go_by_short_name_dotted_name_or_section(pictures, tiny, tmp_path):
    more = {"model.depth": 2, "optimizer": {"lr": 0.02, "name": "sgd"}}
    made = vitrail.train(pictures, tmp_path / "run", fast_dev_run=True, **{**tiny, **more})
    assert made.trained.model.config.depth == 2
    written = vitrail.train(out=tmp_path / "again", config=made.folder / "config.yaml")
    assert written.scores == made.scores


def test_an_unknown_setting_is_an_error_and_leaves_nothing(pictures, tmp_path):
    with pytest.raises(ConfigError, match="epoch"):
        vitrail.train(pictures, tmp_path / "run", epoch=3)
    assert list(tmp_path.iterdir()) == []


def test_training_twice_with_one_seed_gives_one_model(pictures, tiny, tmp_path):
    models = []
    for name in ("one", "two"):
        torch.manual_seed(len(name) + len(models))
        made = vitrail.train(pictures, tmp_path / name, **tiny, **{"model.dropout": 0.1})
        models.append((made.folder / "best" / "model.safetensors").read_bytes())
    assert models[0] == models[1]


def test_the_digits_train_from_a_recipe(tmp_path):
    small = {"model.dim": 16, "model.depth": 1, "model.mlp_dim": 32, "model.image_size": 8}
    made = vitrail.train("digits", tmp_path / "run", fast_dev_run=True, **small)
    assert made.trained.labels == [str(digit) for digit in range(10)]
    assert made.scores["images"] <= 128
    assert made.trained.preparation.channels == 1


# evaluate


def test_evaluate_gives_logits_and_labels_in_the_order_of_the_images(run, pictures):
    result, split = vitrail.evaluate(run.folder, split="train", keep=True)
    items = open_data(pictures).split("train")
    assert split == "train"
    assert result.labels.tolist() == [item.target for item in items]
    with torch.no_grad():
        logits = torch.cat([run.trained.model(run.trained.preparation(item.image)) for item in items])
    torch.testing.assert_close(result.logits, logits, rtol=1e-5, atol=1e-5)
    assert result.probabilities.sum(dim=1).tolist() == pytest.approx([1.0] * len(items))


def test_evaluate_takes_all_of_a_folder_that_the_model_was_not_trained_on(run, pictures):
    result, split = vitrail.evaluate(run.folder / "best", pictures)
    assert (split, result.images) == ("all", 24)


def test_evaluate_counts_the_images_of_every_batch(run):
    started, seen, observer = [], [], Observer()
    observer.begin, observer.advance = lambda what, count: started.append(count), seen.append
    result, _ = vitrail.evaluate(run.folder, split="all", batch_size=5, observer=observer)
    assert started == [24] == [result.images]
    assert seen == [5, 5, 5, 5, 4]


def test_evaluate_repeats_the_splits_of_the_run_even_if_images_were_added(pictures, tiny, tmp_path):
    import shutil

    data = shutil.copytree(pictures, tmp_path / "data")
    made = vitrail.train(data, tmp_path / "run", **tiny)
    for number in range(5):
        shutil.copy(data / "red" / "0.png", data / "red" / f"new-{number}.png")
    result, split = vitrail.evaluate(made.folder)
    assigned = json.loads((made.folder / "splits.json").read_text())
    assert split == "test"
    assert result.images == sum(name == "test" for name in assigned.values())
    assert result.scores() == pytest.approx(made.scores)


@pytest.mark.parametrize(("task", "opened"), [("classification", open_data), ("mae", open_unlabelled)])
def test_a_run_is_evaluated_on_the_training_images_that_it_learned_from(task, opened, pictures, tiny, tmp_path):
    run = vitrail.train(pictures, tmp_path / "run", **{**tiny, "task": task, "data.train_share": 0.5})
    train = opened(pictures).split("train")
    learned = len(share_of(train, 0.5, seed=0))
    sizes = [vitrail.evaluate(run.folder, split=split)[0].images for split in ("train", "all")]
    assert sizes == [learned, 24 - len(train) + learned] and learned < len(train)


def test_a_model_folder_needs_data_to_be_evaluated_on(run):
    with pytest.raises(ConfigError, match="no data"):
        vitrail.evaluate(run.folder / "best")


# start from a trained model


def test_training_from_a_model_with_the_same_classes_keeps_its_head(run, pictures, tiny, tmp_path):
    settings = {"optimizer.lr": 1e-9, "training.probe": False}
    tuned = vitrail.train(pictures, tmp_path / "run", start=str(run.folder), fast_dev_run=True, **settings)
    one, other = run.trained.model.state_dict(), tuned.trained.model.state_dict()
    assert one.keys() == other.keys()
    for name in one:
        torch.testing.assert_close(one[name], other[name], rtol=0, atol=1e-6)


def test_training_from_a_model_with_other_classes_starts_with_a_zero_head(run, pictures, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    for name in ("red", "blue"):
        (data / name).symlink_to(pictures / name)
    settings = {"optimizer.lr": 1e-9, "training.probe": False}
    tuned = vitrail.train(data, tmp_path / "run", start=str(run.folder), fast_dev_run=True, **settings)
    head = [p for name, p in tuned.trained.model.named_parameters() if name.startswith("head")]
    assert all(p.abs().max() < 1e-6 for p in head)
    assert tuned.trained.labels == ["blue", "red"]


def test_the_configuration_of_a_run_is_complete_though_it_began_from_a_model(run, pictures, tmp_path):
    tuned = vitrail.train(pictures, tmp_path / "run", start=str(run.folder), recipe="scratch", fast_dev_run=True)
    again, _ = resolve_run(None, tuned.folder / "config.yaml", {})
    assert again.start == str(run.folder)
    assert again.optimizer == resolve_run("scratch", None, {"data": {"source": "x"}})[0].optimizer


@pytest.mark.parametrize("tune", ["head", "lora"])
def test_a_run_that_trains_a_part_of_a_model_leaves_one_that_answers(run, pictures, tmp_path, tune):
    tuned = vitrail.train(pictures, tmp_path / "run", start=str(run.folder), tune=tune, epochs=1)
    picture = pictures / "red" / "0.png"
    for reference in (tuned.folder, tuned.folder / "best", tuned.folder / "last"):
        assert vitrail.predict(reference, picture)[0][0][0] == "red"
    assert vitrail.evaluate(tuned.folder)[0].scores() == pytest.approx(tuned.scores, abs=1e-5)
    assert (tuned.folder / "best" / "adapter" / "adapter_config.json").is_file() == (tune == "lora")
    ours, before = tuned.trained.model.state_dict(), run.trained.model.state_dict()
    same = {name for name in ours if torch.equal(ours[name], before[name])}
    assert "blocks.0.mlp.layer.expand.weight" in same
    assert ("blocks.0.attention.layer.qkv.weight" in same) == (tune == "head")


@pytest.fixture
def foreign(run, tmp_path) -> TrainedModel:
    """A model whose images are prepared as none of ours, in ``foreign`` below ``tmp_path``."""
    colours = {"mean": (0.48, 0.45, 0.4), "std": (0.22, 0.22, 0.23), "resampling": "bicubic"}
    trained = TrainedModel(run.trained.model, run.trained.labels, Preparation.standard((8, 8), 3, 0.8, **colours))
    save_model(tmp_path / "foreign", trained, card="")
    return trained


def test_images_are_prepared_as_for_the_model_to_start_from(foreign, pictures, tmp_path):
    source = foreign.preparation.changed(crop_rounding="down")  # as transformers, which reads what is written
    tuned = vitrail.train(pictures, tmp_path / "run", start=str(tmp_path / "foreign"), fast_dev_run=True, image_size=16)
    assert tuned.trained.preparation == source.at((16, 16))
    assert (source.at((16, 16)).resize_size, source.resize_size) == ((20, 20), (10, 10))
    assert run_folder.RunFolder.open(tuned.folder).settings.preparation == source.at((16, 16))

    def prepared(**settings):
        return preparation_of(resolve_run(None, None, nested({"data": "x", "start": str(tmp_path / "foreign"), **settings}))[0])

    assert prepared() == source
    assert prepared(**{"data.crop_ratio": 0.5}) == source.changed(resize_size=(16, 16))
    assert prepared(**{"model.channels": 1}) == Preparation.standard((8, 8), 1, crop_rounding="down")
    cifar10, _ = resolve_run("cifar10", None, nested({"data": "x"}))
    assert preparation_of(cifar10) == Preparation.standard((32, 32), crop_rounding="down")


def test_a_resumed_run_prepares_its_images_as_before(foreign, pictures, tmp_path):
    class Impatient(Observer):
        def step(self, epoch, sums):
            signal.raise_signal(signal.SIGTERM)

    settings = {"start": str(tmp_path / "foreign"), "epochs": 2, "batch_size": 8}
    unbroken = vitrail.train(pictures, tmp_path / "unbroken", **settings)
    with pytest.raises(InterruptedRunError):
        vitrail.train(pictures, tmp_path / "broken", observer=Impatient(), **settings)
    shutil.rmtree(tmp_path / "foreign")  # which a run has no more need of once it is under way
    resumed = vitrail.resume(tmp_path / "broken")
    assert resumed.trained.preparation == unbroken.trained.preparation
    files = [made.folder / "last" / "model.safetensors" for made in (unbroken, resumed)]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_model_of_the_hub_stays_a_model_of_the_hub_and_a_path_becomes_absolute(run, pictures, tmp_path, monkeypatch):
    opened = []

    def fetched(reference):
        opened.append(reference)
        return run.trained if reference == "org/colours@v1" else open_model(reference)

    for module in ("images", "runs.setup"):
        monkeypatch.setattr(f"vitrail.training.{module}.open_model", fetched)
    monkeypatch.chdir(run.folder.parent)
    settings = {"start": "org/colours@v1", "teacher": run.folder.name, "tune": "head", "fast_dev_run": True}
    tuned = vitrail.train(pictures, tmp_path / "run", **settings)
    kept = run_folder.RunFolder.open(tuned.folder).settings
    assert (kept.start, kept.distillation.teacher) == ("org/colours@v1", str(run.folder))
    assert opened == ["org/colours@v1", run.folder.name]


# learn from a teacher


def test_the_card_says_how_a_model_came_about_and_where_nothing_lies(run, pictures, tmp_path):
    settings = {"start": str(run.folder), "teacher": str(run.folder), "tune": "head", "fast_dev_run": True, "lr": 0.0123}
    tuned = vitrail.train(pictures, tmp_path / "run", **settings)
    card = (tuned.folder / "best" / "README.md").read_text()
    assert "# colours, fine-tuned on pictures\n" in card
    assert "lr: 0.0123" in card and "tune: head" in card and "teacher: colours" in card
    (row,) = run_folder.RunFolder.open(tuned.folder).rows
    assert f"| validation accuracy | {row['val_top1']:.4f} |" in card
    assert "`blue`, `green`, `red`" in card
    for path in (pictures.parent, run.folder.parent, tmp_path):
        assert str(path) not in card
    assert "# ViT-Ti/4 on pictures\n" in (run.folder / "best" / "README.md").read_text()


def test_a_teacher_of_other_classes_is_refused_and_leaves_nothing(run, tiny, tmp_path):
    with pytest.raises(DataError, match="'9' of the data are none of the model's labels 'blue', 'green', 'red'"):
        vitrail.train("digits", tmp_path / "run", teacher=str(run.folder), fast_dev_run=True, **tiny)
    with pytest.raises(ModelFileError, match="nowhere"):
        vitrail.train("digits", tmp_path / "run", teacher=str(tmp_path / "nowhere"), **tiny)
    assert list(tmp_path.iterdir()) == []


# edges


def test_a_run_inside_its_own_data_is_no_class(pictures, tiny, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(pictures, data)
    inside = vitrail.train(data, data / "runs" / "first", **tiny)
    assert open_data(data).classes == inside.trained.labels == ["blue", "green", "red"]
    assert vitrail.evaluate(inside.folder)[1] == "test"


def test_a_models_name_means_that_model_whatever_the_recipe_says():
    named = {"data": {"source": "x"}, "model": {"name": "ViT-CIFAR10-lecture"}}
    configs = [resolve_run(recipe, None, named)[0].model.config for recipe in recipe_names()]
    assert {(c.dim, c.depth, c.heads, c.mlp_dim, c.patch_size) for c in configs} == {(1024, 24, 16, 4096, (8, 8))}


def test_a_signal_while_the_report_is_written_is_heard_and_the_report_stays_whole(
    reported, pictures, tiny, tmp_path, monkeypatch
):
    save = figures.save

    def interrupted(figure, file):
        os.kill(os.getpid(), signal.SIGTERM)
        save(figure, file)
        monkeypatch.setattr(figures, "save", save)

    monkeypatch.setattr(figures, "save", interrupted)
    with pytest.raises(InterruptedRunError) as caught:
        vitrail.train(pictures, tmp_path / "run", **tiny)
    assert caught.value.exit_code == 143
    assert json.loads((tmp_path / "run" / "status.json").read_text())["state"] == "finished"
    assert (tmp_path / "run" / "report.html").is_file()


def test_a_run_folder_that_cannot_be_completed_is_taken_back(pictures, tiny, tmp_path, monkeypatch):
    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(run_folder, "write_json", full)
    with pytest.raises(ConfigError, match="No space left"):
        vitrail.train(pictures, tmp_path / "new" / "run", **tiny)
    assert not (tmp_path / "new").exists()


def test_everybody_may_read_a_model(run):
    assert all(file.stat().st_mode & 0o044 == 0o044 for file in (run.folder / "best").iterdir())


def test_answers_that_are_not_finite_are_no_answers(run, pictures, tmp_path):
    broken = open_model(run.folder)
    with torch.no_grad():
        broken.model.head.linear.weight.fill_(3e38)
    for ask in (lambda: vitrail.predict(broken, pictures / "red" / "0.png"), lambda: vitrail.evaluate(broken, pictures)):
        with pytest.raises(ModelFileError, match="not finite"):
            ask()


def test_a_model_without_classes_says_so_and_can_be_taught_some(run, pictures, tmp_path):
    vectors = vitrail.from_pretrained(run.folder, num_classes=0)
    assert vectors.labels == [] and vectors(torch.zeros(1, 3, 8, 8)).shape == (1, 16)
    for use in (lambda: vitrail.predict(vectors, Image.new("RGB", (8, 8))), lambda: vitrail.evaluate(vectors, pictures)):
        with pytest.raises(ModelFileError, match="vectors, not classes") as error:
            use()
        assert "vitrail train --from" in error.value.hint
    vectors.save_pretrained(tmp_path / "vectors")
    taught = vitrail.train(pictures, tmp_path / "taught", start=str(tmp_path / "vectors"), epochs=1)
    assert taught.trained.labels == ["blue", "green", "red"]


ASKED = {
    "predict": lambda model, image, out: vitrail.predict(model, image),
    "predict many": lambda model, image, out: vitrail.predict(model, [image] * 9),
    "embed": lambda model, image, out: vitrail.embed(model, image),
    "evaluate": lambda model, image, out: vitrail.evaluate(model, image.parents[1]),
    "study": lambda model, image, out: vitrail.study_model(model, image, out / "study"),
    "export": lambda model, image, out: vitrail.api.export(model, out / "exported", to="torch"),
}


@pytest.mark.parametrize("asked", ASKED)
def test_a_model_that_is_asked_stays_in_the_mode_it_is_in(asked, run, pictures, tmp_path):
    """Somebody may ask a model between two epochs of a training loop of their own."""
    trained, image = vitrail.from_pretrained(run.folder), pictures / "red" / "0.png"
    trained.train()
    trained.model.norm.eval()
    before = {name: module.training for name, module in trained.named_modules()}
    ASKED[asked](trained, image, tmp_path)
    assert {name: module.training for name, module in trained.named_modules()} == before


@pytest.mark.parametrize("count", [1, 9])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_a_model_in_another_precision_answers_however_many_images_there_are(dtype, count, run, pictures):
    image = pictures / "red" / "0.png"
    (expected,) = vitrail.predict(run.trained, image, top=1)
    found = vitrail.predict(vitrail.from_pretrained(run.folder).to(dtype), [image] * count, top=1)
    assert [one[0][0] for one in found] == [expected[0][0]] * count


@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_a_run_with_a_teacher_opens_it_again_when_it_is_resumed(run, pictures, tiny, tmp_path, kind):
    class Impatient(Observer):
        def step(self, epoch, sums):
            signal.raise_signal(signal.SIGTERM)

    settings = {**tiny, "model.pool": "class", "teacher": str(run.folder), "distillation.kind": kind}
    unbroken = vitrail.train(pictures, tmp_path / "unbroken", **settings)
    with pytest.raises(InterruptedRunError):
        vitrail.train(pictures, tmp_path / "broken", observer=Impatient(), **settings)
    resumed = vitrail.resume(tmp_path / "broken")
    assert (resumed.folder / "best" / "model.safetensors").read_bytes() == (
        unbroken.folder / "best" / "model.safetensors"
    ).read_bytes()
    assert resumed.trained.model.config.distillation_token
    assert run_folder.RunFolder.open(resumed.folder).settings.distillation.teacher == str(run.folder)


def test_classes_that_are_never_trained_on_are_refused(pictures, tiny, tmp_path):
    data = tmp_path / "data"
    for split, names in {"train": ("red", "green"), "val": ("red", "green", "blue")}.items():
        for name in names:
            shutil.copytree(pictures / name, data / split / name)
    with pytest.raises(DataError, match="'blue' have no training images"):
        vitrail.train(data, tmp_path / "run", **tiny)


def test_a_test_split_of_its_own_is_what_is_evaluated_though_validation_was_split_off(pictures, run, tmp_path):
    for split, numbers in {"train": range(6), "test": range(6, 8)}.items():
        for name in ("red", "green", "blue"):
            (tmp_path / split / name).mkdir(parents=True)
            for number in numbers:
                shutil.copy(pictures / name / f"{number}.png", tmp_path / split / name)
    evaluation, split = vitrail.evaluate(run.folder / "best", tmp_path)
    assert (split, evaluation.images) == ("test", 6)


def test_a_head_for_new_classes_is_one_linear_layer(pictures, tiny, tmp_path):
    first = vitrail.train(pictures, tmp_path / "first", fast_dev_run=True, **tiny, **{"model.head": "mlp"})
    same = vitrail.train(pictures, tmp_path / "same", start=str(first.folder), fast_dev_run=True)
    assert first.trained.model.config.head == same.trained.model.config.head == "mlp"
    data = tmp_path / "data"
    for name in ("red", "blue"):
        shutil.copytree(pictures / name, data / name)
    new = vitrail.train(data, tmp_path / "new", start=str(first.folder), fast_dev_run=True)
    assert new.trained.model.config.head == "linear"


def test_a_model_that_is_asked_while_it_is_trained_answers_without_dropout(run, pictures):
    image = pictures / "red" / "0.png"
    trained = vitrail.from_pretrained(run.folder)
    expected = vitrail.predict(trained, image)
    for module in trained.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.5
    assert vitrail.predict(trained.train(), image) == expected
