"""A study of a small run, its numbers and its page."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

import vitrail
from test_contract import tiny
from vitrail import api
from vitrail.data.images.preparation import Preparation
from vitrail.data.items import Item
from vitrail.data.readers.sources import open_data
from vitrail.errors import ConfigError, DataError
from vitrail.runtime.observer import Observer
from vitrail.study.sections import attention as attention_sections
from vitrail.study.sections import model as model_sections
from vitrail.study.sections.context import StudyContext
from vitrail.study.sections.study_images import Subjects, labelled_subjects

DIGITS = {
    "training.epochs": 8, "model.embedding": "stem", "model.depth": 2, "model.dim": 64, "model.heads": 4, "model.mlp_dim": 128,
    "augmentation.rotation": 0, "preparation": Preparation.standard((16, 16), 1).model_dump(),
}  # fmt: skip


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """A run on the digits that is right nine times in ten, without its own report."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(api, "write_report", lambda finished: None)
        return vitrail.train("digits", tmp_path_factory.mktemp("runs") / "digits", **DIGITS)


@pytest.fixture(scope="module")
def study(digits, tmp_path_factory):
    """The folder of a study of it, and its numbers."""
    return vitrail.study_model(digits.folder, out=tmp_path_factory.mktemp("studies") / "digits", images=200)


def test_taking_the_most_relevant_patches_hurts_more_than_any_others(study):
    _, numbers = study
    areas = numbers["occlusion"]["area"]
    assert numbers["scores"]["top1"] > 0.9
    assert areas["most relevant first"] < areas["at random"] - 0.05
    assert areas["most relevant first"] < areas["least relevant first"] - 0.05


def test_a_curve_of_occlusion_begins_with_the_accuracy(study):
    _, numbers = study
    for curve in numbers["occlusion"]["right"].values():
        assert len(curve) == len(numbers["occlusion"]["shares"])
        assert curve[0] == pytest.approx(numbers["scores"]["top1"], abs=0.011)  # it may be computed in half precision


def test_probes_know_the_digits(study):
    probes = study[1]["probes"]
    assert probes["few_shot"]["10"]["mean"] > 0.7
    assert probes["few_shot"]["1"]["mean"] < probes["few_shot"]["10"]["mean"]
    assert probes["linear"] > 0.85 and probes["nearest_neighbours"] > 0.85
    assert len(probes["layers"]["nearest neighbours"]) == 2


def test_the_folder_holds_data_pictures_and_a_page(study):
    folder, numbers = study
    assert json.loads((folder / "study.json").read_text()) == numbers
    maps = np.load(folder / "maps.npz")
    assert maps["relevance"].shape == maps["attention"].shape == maps["rollout"].shape == (200, 4, 4)
    assert maps["heads"].shape == (2, 4, 4, 4)
    assert len(maps["images"]) == 200
    names = {"maps", "heads", "occlusion", "distances", "positions", "filters", "probes", "confusion", "calibration"}
    assert names <= {file.stem for file in folder.glob("*.png")}
    for file in folder.glob("*.png"):
        pixels = np.asarray(Image.open(file).convert("L"))
        assert pixels.std() > 5, f"{file.name} is blank"


def test_overlays_have_the_resolution_of_the_image(study):
    files = sorted((study[0] / "overlays").iterdir())
    assert len(files) == 6 * 3
    assert {Image.open(file).size for file in files} == {(8, 8)}


def test_among_the_images_drawn_are_the_first_and_up_to_half_that_are_mistakes():
    items = [Item(f"{i}.png", None, i % 2) for i in range(40)]
    guesses = np.eye(2)[[item.target if i < 30 else 1 - item.target for i, item in enumerate(items)]]
    subjects = SimpleNamespace(items=items, labelled=True)
    predictions = SimpleNamespace(probabilities=guesses, multi_label=False, classes=["a_cat", "dog"], caption=lambda n, c: f"{c}")
    study = SimpleNamespace(pixels=items, subjects=subjects, predictions=predictions)
    drawn = attention_sections._drawn(study)
    assert drawn[0] == 0 and len(drawn) == 6 and len({n for n in drawn if n >= 30}) >= 3
    assert attention_sections._caption(study, 31) == "31.png\nguess: 0\ntrue: dog"
    assert attention_sections._caption(SimpleNamespace(**vars(study) | {"predictions": None}), 3) == "3.png"


def test_what_is_not_drawn_of_heads_and_positions_is_told(pictures, tmp_path):
    assert "At most 14 layers and heads are drawn" in attention_sections.HEADS
    model = vitrail.create_model(
        "ViT-Ti/4", image_size=8, dim=16, depth=1, heads=2, mlp_dim=8, num_classes=3, position="learned-1d+rotary"
    )
    trained = vitrail.TrainedModel(model.eval(), list("abc"), vitrail.Preparation.standard((8, 8)))
    study = StudyContext(tmp_path, trained, Subjects(open_data(pictures).split("all")[:1]), None, Observer())
    assert "without the rotation of queries and keys (learned-1d+rotary)" in model_sections.positions(study)


@pytest.mark.soak
@pytest.mark.skipif(shutil.which("chromium") is None, reason="there is no Chromium")
def test_a_browser_shows_every_picture_of_the_page_without_a_network(study, tmp_path):
    text = (study[0] / "report.html").read_text()
    bare = tmp_path / "bare.html"
    bare.write_text(re.sub(r"data:image/png;base64,[^\"]+", "data:,", text))
    shown, without = (colourful(file, tmp_path) for file in (study[0] / "report.html", bare))
    assert shown > without + 0.2


def colourful(page, folder):
    """The share of a page's lines of pixels with any colour in them, as Chromium shows it."""
    shot = folder / f"{page.stem}.png"
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync", "--no-first-run"]
    flags += ["--disable-component-update", "--disable-quic", f"--user-data-dir={folder / 'profile'}"]
    flags += ["--host-resolver-rules=MAP * ~NOTFOUND", "--window-size=1000,6000", f"--screenshot={shot}"]
    subprocess.run(["chromium", *flags, page.as_uri()], check=True, capture_output=True, timeout=120)
    pixels = np.asarray(Image.open(shot).convert("RGB")).astype(int)
    assert pixels.shape[0] == 6000
    return (pixels.max(axis=2) - pixels.min(axis=2) > 40).any(axis=1).mean()


def test_a_study_without_labels_looks_at_the_images_alone(run, pictures, tmp_path):
    unsorted = tmp_path / "unsorted"
    unsorted.mkdir()
    for number, file in enumerate(sorted(pictures.rglob("*.png"))[::3]):
        shutil.copy(file, unsorted / f"{number}.png")
    folder, numbers = vitrail.study_model(run.folder, unsorted, tmp_path / "out")
    assert "scores" not in numbers and "probes" not in numbers
    assert numbers["images"] == 8 and "occlusion" in numbers
    assert numbers["occlusion"]["follows"] == "guesses"
    assert not (folder / "confusion.png").exists()


def test_labels_that_are_not_the_models_leave_out_its_errors_and_say_so(digits, pictures, tmp_path):
    notes = []

    class Listener(Observer):
        def note(self, text):
            notes.append(text)

    _, numbers = vitrail.study_model(digits.folder, pictures, tmp_path / "out", images=6, observer=Listener())
    assert "scores" not in numbers
    assert "none of the model's labels" in notes[0]
    assert numbers["probes"]["images"]["known"] > 10


def test_a_model_without_classes_is_studied_without_relevance(run, pictures, tmp_path):
    model = vitrail.create_model("ViT-Ti/4", image_size=8, dim=16, depth=2, heads=2, mlp_dim=32, num_classes=0).eval()
    headless = vitrail.TrainedModel(model, [], run.trained.preparation)
    folder, numbers = vitrail.study_model(headless, pictures, tmp_path / "out", images=4)
    assert "occlusion" not in numbers
    assert set(np.load(folder / "maps.npz")) >= {"attention", "rollout"}
    assert "relevance" not in np.load(folder / "maps.npz")


@pytest.mark.parametrize(
    "fields", [{"position": "relative", "pool": "mean"}, {"position": "none", "registers": 2, "pool": "attention"}]
)
def test_any_kind_of_model_can_be_studied(run, pictures, tmp_path, fields):
    model = vitrail.create_model("ViT-Ti/4", image_size=(8, 16), dim=16, depth=2, heads=2, mlp_dim=32, num_classes=3, **fields)
    preparation = vitrail.Preparation.standard((8, 16))
    trained = vitrail.TrainedModel(model.eval(), ["blue", "green", "red"], preparation)
    _, numbers = vitrail.study_model(trained, pictures, tmp_path / "out", images=4)
    assert np.shape(numbers["attention_distance"]) == (2, 2)


def test_a_model_of_windows_is_studied_by_stage_and_no_layer_of_it_is_chosen(pictures, tmp_path):
    trained = vitrail.TrainedModel(tiny("Swin"), ["blue", "green", "red"], vitrail.Preparation.standard((8, 8)))
    folder, numbers = vitrail.study_model(trained, pictures, tmp_path / "out", images=4)
    maps, page = np.load(folder / "maps.npz"), (folder / "report.html").read_text()
    assert maps["stage-0"].shape == (4, 8, 8) and maps["stage-1"].shape == (4, 4, 4)
    assert maps["relative-bias-1"].shape == (2, 5, 5)
    assert [len(layer) for layer in numbers["attention_distance"]] == [2, 2, 2]
    assert len(list((folder / "overlays").iterdir())) == 4 * 2
    assert "A window has up to 3×3 positions, 3, 6 pixels wide" in page and "rollout and relevance" in page
    with pytest.raises(ConfigError, match="no global attention to choose a layer"):
        vitrail.study_model(trained, pictures, tmp_path / "chosen", layer=1)
    assert not (tmp_path / "chosen").exists()


def test_nothing_is_left_of_a_study_that_fails(run, pictures, tmp_path):
    model = vitrail.create_model("ViT-Ti/4", image_size=8, dim=16, depth=2, heads=2, mlp_dim=32, num_classes=3, token_merging=1)
    trained = vitrail.TrainedModel(model.eval(), run.trained.labels, run.trained.preparation)
    with pytest.raises(ConfigError, match="merges tokens"):
        vitrail.study_model(trained, pictures, tmp_path / "out")
    assert not list(tmp_path.iterdir())
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    with pytest.raises(ConfigError, match="exists"):
        vitrail.study_model(run.folder, pictures, tmp_path / "taken")


def test_subjects_for_probes_are_of_different_splits(digits):
    found = labelled_subjects(digits.trained, open_data("digits"), "test", 20)
    assert len(found.items) == 20 and found.labelled
    assert len(found.known) == 1000
    assert not {item.name for item in found.known} & {item.name for item in found.tested}


def test_images_are_taken_at_random_so_that_classes_have_their_shares(digits):
    many = replace_labels(open_data("digits"), lambda label: int(label == 0))
    trained = vitrail.TrainedModel(digits.trained.model, ["0", "1"], digits.trained.preparation)
    found = labelled_subjects(trained, many, "train", 200)
    assert 5 < sum(item.target for item in found.items) < 40  # one in ten, not one in two


def test_data_of_one_class_and_of_few_images_have_no_probes_and_it_says_why(digits):
    one = replace(open_data("digits"), classes=["0"])
    one = replace(one, splits={split: [i for i in items if i.target == 0] for split, items in one.splits.items()})
    found = labelled_subjects(digits.trained, one, "test", 9).unprobed
    assert found == "probes need two classes with 5 training images; only 1 of 1 have as many"
    few = replace(
        one, splits={split: items[:3] for split, items in open_data("digits").splits.items()}, classes=list("0123456789")
    )
    assert "0 of 10 have as many" in labelled_subjects(digits.trained, few, "test", 3).unprobed


def test_rare_classes_are_left_out_of_probes_and_counted(digits, tmp_path):
    data = open_data("digits")
    train = [item for item in data.splits["train"] if item.target > 1]
    rare = [[item for item in data.splits["train"] if item.target == label][:count] for label, count in ((0, 4), (1, 5))]
    data = replace(data, splits={**data.splits, "train": [*train, *rare[0], *rare[1]]})
    found = labelled_subjects(digits.trained, data, "test", 9)
    assert found.rare == 1 and found.unprobed == ""
    assert {item.target for item in found.known} == {item.target for item in found.tested} == set(range(1, 10))
    only = replace(data, splits={**data.splits, data.evaluation_split: rare[0]})
    assert "no test image" in labelled_subjects(digits.trained, only, data.evaluation_split, 4).unprobed
    study = StudyContext(tmp_path, digits.trained, replace(found, known=found.known[::20]), None, Observer())
    assert "Classes of fewer than 5 training images are left out: 1." in model_sections.probe(study)
    assert study.numbers["probes"]["rare_classes"] == 1


def many_classes(classes, each):
    """Data of so many classes, with so many training images and a test image of each."""
    image = open_data("digits").splits["test"][0].image
    train = [Item(f"{label}-{n}.png", image, label) for label in range(classes) for n in range(each)]
    test = [Item(f"{label}.png", image, label) for label in range(classes)]
    return replace(open_data("digits"), classes=[str(label) for label in range(classes)], splits={"train": train, "test": test})


def test_probes_are_fitted_to_ten_images_of_each_of_many_classes(digits):
    known = labelled_subjects(digits.trained, many_classes(150, 12), "test", 1).known
    assert np.bincount([item.target for item in known]).tolist() == [10] * 150


def test_probes_are_asked_about_no_class_that_they_have_not_seen_and_what_is_left_out_is_told(digits, monkeypatch, tmp_path):
    monkeypatch.setattr("vitrail.study.sections.study_images.KNOWN", 20)
    monkeypatch.setattr("vitrail.study.sections.study_images.MOST_KNOWN", 30)
    found = labelled_subjects(digits.trained, many_classes(40, 5), "test", 1)
    assert len(found.known) == 30 and found.beyond == 10 and found.rare == 0
    assert {item.target for item in found.tested} == {item.target for item in found.known}
    study = StudyContext(tmp_path, digits.trained, found, None, Observer())
    words = model_sections.probe(study)
    assert "Classes that none of the 30 images has are left out: 10." in words
    assert "5 and more images per class are left out: of the 30 images, a class has 1." in words
    assert study.numbers["probes"]["classes_beyond"] == 10


def replace_labels(data, change):
    """Data of two classes out of data of many."""
    splits = {split: [Item(item.name, item.image, change(item.target)) for item in items] for split, items in data.splits.items()}
    return replace(data, classes=["0", "1"], splits=splits)


def test_a_split_of_images_without_labels_is_refused(run, pictures, tmp_path):
    with pytest.raises(ConfigError, match="no splits"):
        vitrail.study_model(run.folder, pictures / "red", tmp_path / "out", split="test")


def test_an_unreadable_image_is_named(run, tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "broken.png").write_bytes(b"not an image")
    with pytest.raises(DataError, match=r"broken\.png"):
        vitrail.study_model(run.folder, tmp_path / "images", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_study_leaves_the_global_random_numbers_alone(run, pictures, tmp_path):
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    vitrail.study_model(run.folder, pictures, tmp_path / "out", images=1)
    assert torch.equal(torch.rand(1), expected)


def test_a_study_of_no_images_is_refused(run, tmp_path):
    with pytest.raises(ConfigError, match="images is 0"):
        vitrail.study_model(run.folder, out=tmp_path / "out", images=0)
