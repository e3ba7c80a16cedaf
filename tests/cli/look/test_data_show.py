"""``vitrail data show``."""

import pytest
from PIL import Image


def test_it_writes_a_picture_and_says_where(vitrail, pictures, tmp_path):
    file = tmp_path / "shown.png"
    answer = vitrail("data", "show", pictures, "--out", file, "--count", 2, "--augmentation.erasing", "1")
    assert (answer.code, answer.out, answer.err) == (0, f"{file}\n", "")
    with Image.open(file) as image:
        assert image.format == "PNG" and min(image.size) > 200
    assert [path.name for path in tmp_path.iterdir()] == ["shown.png"]


def test_the_name_is_samples_by_default_and_nothing_is_overwritten(vitrail, pictures, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert vitrail("data", "show", pictures, "--count", 1).out == "samples.png\n"
    written = (tmp_path / "samples.png").read_bytes()
    answer = vitrail("data", "show", pictures, "--count", 1, "--seed", 1)
    assert answer.code == 2 and "exists" in answer.err
    assert (tmp_path / "samples.png").read_bytes() == written


@pytest.fixture
def drawn(vitrail, pictures, tmp_path, monkeypatch):
    """The data set that a command line pictures, and the items it picks; nothing is drawn."""

    def drawn(*words):
        seen = {}

        def note_down(dataset, indices, classes):
            seen.update(dataset=dataset, indices=indices, classes=classes)
            raise RuntimeError("seen enough")

        monkeypatch.setattr("vitrail.study.page.samples.augmentation_sheet", note_down)
        answer = vitrail("data", "show", *(words or [pictures]), "--out", tmp_path / "x.png")
        assert "seen enough" in answer.err, answer.err
        return seen["dataset"], seen["indices"], seen["classes"]

    return drawn


def test_settings_are_those_of_training(drawn, pictures, tmp_path):
    config = tmp_path / "own.yaml"
    config.write_text("augmentation:\n  mixup: 0.3\n  cutmix: 0.4\ndata:\n  crop_ratio: 0.5\n", encoding="utf-8")
    words = [
        "--config",
        config,
        "--image-size",
        "24",
        "--augmentation.cutmix",
        "1.5",
        "--seed",
        "7",
        "--augmentation.crop",
        "pad",
    ]
    dataset, _, classes = drawn(pictures, *words)
    assert (dataset.augmentation.mixup, dataset.augmentation.cutmix, dataset.augmentation.crop) == (0.3, 1.5, "pad")
    assert dataset.preparation.image_size == (24, 24) and dataset.preparation.resize_size == (48, 48)
    assert dataset.seed == 7 and classes == ["blue", "green", "red"]


def test_the_digits_have_their_own_recipe(drawn):
    dataset, _, _ = drawn("digits")
    assert dataset.preparation.channels == 1 and dataset.augmentation.padding == 1
    assert drawn("digits", "--recipe", "scratch")[0].preparation.channels == 3


def test_images_that_are_not_to_be_mirrored_are_told_of(vitrail, tmp_path):
    words = ["data", "show", "digits", "--count", 1, "--recipe", "scratch", "--out"]
    assert "look like characters" in vitrail(*words, tmp_path / "a.png").err
    assert vitrail(*words, tmp_path / "b.png", "--augmentation.horizontal-flip", 0).err == ""


def test_split_and_count_say_which_images(drawn, pictures):
    sizes = {split: len(drawn(pictures, "--split", split)[0]) for split in ("train", "val", "test", "all")}
    assert sizes["train"] + sizes["val"] + sizes["test"] == sizes["all"] == 24
    assert len(drawn(pictures, "--count", 3)[1]) == 3
    assert drawn(pictures, "--seed", 1)[1] != drawn(pictures, "--seed", 2)[1]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--augmentation.erasin", "1"], 2, "did you mean 'erasing'"),
        (["--augmentation.erasing", "2"], 2, "less than or equal to 1"),
        (["--count", "0"], 2, "--count"),
        (["--count", "41"], 2, "at most 40"),
        (["--out", "samples.jpg"], 2, "name it samples.png"),
        (["--split", "holiday"], 2, "holiday"),
        (["--task", "translate"], 2, "shown as text"),
    ],
)
def test_what_cannot_be_is_refused(vitrail, pictures, tmp_path, monkeypatch, words, code, message):
    monkeypatch.chdir(tmp_path)
    answer = vitrail("data", "show", pictures, *words)
    assert answer.code == code and message in answer.err and answer.out == ""
    assert list(tmp_path.iterdir()) == []


def test_the_data_comes_first(vitrail, pictures):
    answer = vitrail("data", "show", "--augmentation.erasing", "1", pictures)
    assert answer.code == 2 and "give the data first" in answer.err


def test_an_image_that_cannot_be_read_is_named(vitrail, tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / "data" / name).mkdir(parents=True)
        (tmp_path / "data" / name / "1.png").write_bytes(b"no image")
    answer = vitrail("data", "show", tmp_path / "data", "--out", tmp_path / "x.png")
    assert answer.code == 3 and "1.png" in answer.err and not (tmp_path / "x.png").exists()
