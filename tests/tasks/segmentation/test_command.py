"""What commands answer of masks: runs, scores, files and pictures."""

import csv
import json

import numpy as np
import pytest
from PIL import Image

from masked import CLASSES, COLORS, drawn, write_masks
from tiny_segmenter import TINY_SEGMENTER, tiny_segmenter
from vitrail import ModelFileError, api, predict_masks
from vitrail.tasks.segmentation import windows


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_masks(tmp_path_factory.mktemp("masks"), 4, 3)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("segment") / "model"
    tiny_segmenter().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    return api.train(data=str(data), out=tmp_path_factory.mktemp("segment") / "run", **TINY_SEGMENTER, recipe="segment")


def parsed(answer):
    assert answer.code == 0, answer.err
    return json.loads(answer.out)


def rows_of(file):
    return list(csv.reader(file.read_text(encoding="utf-8-sig").splitlines()))


# predict


def test_predict_writes_masks_with_the_palette_overlays_and_areas(vitrail, model, data, tmp_path):
    images = data / "val" / "images"
    files = {"--masks": tmp_path / "masks", "--pictures": tmp_path / "drawn", "--csv": tmp_path / "areas.csv"}
    entries = parsed(vitrail("predict", model, images, "--json", *[word for pair in files.items() for word in pair]))
    for number in range(3):
        mask = Image.open(tmp_path / "masks" / f"{number:02}.png")
        assert mask.mode == "P" and mask.size == (48, 36) and mask.getpalette()[:9] == [*COLORS[0], *COLORS[1], *COLORS[2]]
        own = {one["class"]: one["pixels"] for one in entries if one["image"].endswith(f"{number:02}.png")}
        counts = np.bincount(np.asarray(mask).ravel(), minlength=3).tolist()
        assert own == {name: count for name, count in zip(CLASSES, counts, strict=True) if count}
        assert Image.open(tmp_path / "drawn" / f"{number:02}.png").size == (48, 36)
    head, *rows = rows_of(tmp_path / "areas.csv")
    assert head == ["image", "class", "pixels", "fraction"]
    assert [row[:3] for row in rows] == [[one["image"], one["class"], str(one["pixels"])] for one in entries]
    assert sum(float(row[3]) for row in rows) == pytest.approx(3, abs=1e-4)


def test_an_image_that_cannot_be_read_is_named_and_the_others_have_their_masks(vitrail, model, data, tmp_path):
    (tmp_path / "bad.png").write_bytes(b"nothing")
    answer = vitrail("predict", model, tmp_path / "bad.png", data / "val" / "images", "--masks", tmp_path / "masks")
    assert answer.code == 3 and "bad.png" in answer.err and len(list((tmp_path / "masks").iterdir())) == 3


def test_masks_appear_whole_or_not_at_all(vitrail, model, data, tmp_path):
    (tmp_path / "masks").mkdir()
    (tmp_path / "masks" / "other.txt").write_text("")
    answer = vitrail("predict", model, data / "val" / "images", "--masks", tmp_path / "masks")
    assert answer.code == 2 and "--masks" in answer.err
    assert [file.name for file in (tmp_path / "masks").iterdir()] == ["other.txt"]


def test_windows_of_nothing_are_refused(vitrail, model, data):
    for words, says in ((("--window", 0), "window"), (("--overlap", 1), "overlap cannot be 1.0"), (("--window", "a"), "window")):
        answer = vitrail("predict", model, data / "val" / "images", *words)
        assert answer.code == 2 and says in answer.err


# evaluate


def test_evaluate_scores_masks_of_a_folder_whose_classes_have_another_order(vitrail, model, data, tmp_path):
    plain = parsed(vitrail("evaluate", model, "--data", data, "--json"))
    assert plain["split"] == "val" and plain["images"] == 3 and plain["classes"].keys() == set(CLASSES)
    order = [2, 0, 1]  # the class of each value
    for kind in ("images", "masks"):
        (tmp_path / "val" / kind).mkdir(parents=True)
    for number in range(3):
        mask = drawn(number + 100)
        turned = np.where(mask < 3, np.argsort(order)[np.minimum(mask, 2)], mask).astype(np.uint8)
        Image.fromarray(turned).save(tmp_path / "val" / "masks" / f"{number:02}.png")
        Image.open(data / "val" / "images" / f"{number:02}.png").save(tmp_path / "val" / "images" / f"{number:02}.png")
    (tmp_path / "classes.csv").write_text("index,name\n" + "".join(f"{i},{CLASSES[c]}\n" for i, c in enumerate(order)))
    turned = parsed(vitrail("evaluate", model, "--data", tmp_path, "--split", "val", "--json"))
    assert turned["confusion"] == plain["confusion"] and turned["miou"] == plain["miou"]


def test_the_table_of_an_evaluation_sums_to_its_confusion(vitrail, model, data, tmp_path):
    details = parsed(vitrail("evaluate", model, "--data", data, "--csv", tmp_path / "table.csv", "--json"))
    _, *rows = rows_of(tmp_path / "table.csv")
    for number, name in enumerate(CLASSES):
        own = [row for row in rows if row[1] == name]
        counts = np.array(details["confusion"])
        assert sum(int(row[2]) for row in own) == counts[number].sum()
        assert sum(int(row[3]) for row in own) == counts[:, number].sum()
        assert sum(int(row[4]) for row in own) == counts[number, number]


def test_evaluate_prints_a_line_for_each_class(vitrail, model, data):
    answer = vitrail("evaluate", model, "--data", data, "--window", 24, "--overlap", 0.5, "--mirror")
    assert answer.code == 0 and "mIoU" in answer.out and "bIoU" in answer.out
    assert [line.split()[0] for line in answer.out.splitlines()[-3:]] == list(CLASSES)


def test_an_image_that_is_too_large_without_windows_stops_an_evaluation_at_once(vitrail, model, data, monkeypatch):
    monkeypatch.setattr(windows, "MOST_WHOLE", 36 * 48 - 1)
    answer = vitrail("evaluate", model, "--data", data)
    assert answer.code == 3 and "--window 512" in answer.err and "val/images/00.png" in answer.err
    assert vitrail("evaluate", model, "--data", data, "--window", 32).code == 0


def test_data_without_a_class_of_the_model_and_no_data_are_refused(vitrail, model, data, tmp_path):
    answer = vitrail("evaluate", model)
    assert answer.code == 2 and "--data FOLDER" in answer.err
    for kind in ("images", "masks"):
        (tmp_path / kind).mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "images" / "1.png")
    Image.new("L", (8, 8)).save(tmp_path / "masks" / "1.png")
    (tmp_path / "classes.csv").write_text("index,name\n0,ground\n1,unicorn\n")
    answer = vitrail("evaluate", model, "--data", tmp_path, "--split", "all")
    assert answer.code == 3 and "unicorn" in answer.err


# runs


def test_a_run_reports_classes_confusion_and_the_worst_images(run):
    page = (run.folder / "report.html").read_text()
    for words in ("mean IoU of classes on 3 validation images", "boundary IoU", "Worst images", "Confusion", *CLASSES):
        assert words in page
    assert {"confusion.png", "worst.png"} <= {file.name for file in (run.folder / "plots").iterdir()}
    head, *rows = rows_of(run.folder / "classes.csv")
    assert head == ["class", "iou", "accuracy", "boundary_iou", "true", "predicted"] and [row[0] for row in rows] == list(CLASSES)
    scores = [float(row[1]) for row in rows if row[1]]
    assert np.mean(scores) == pytest.approx(run.scores["miou"], abs=1e-6)
    head, *rows = rows_of(run.folder / "images.csv")
    assert len(rows) == 3 and sum(int(row[3]) for row in rows) == sum((drawn(100 + number) < 3).sum() for number in range(3))


def test_a_run_is_evaluated_on_its_own_data_as_its_settings_say(vitrail, run, data):
    own = parsed(vitrail("evaluate", run.folder, "--json"))
    assert own["miou"] == pytest.approx(run.scores["miou"], rel=1e-4) and own["split"] == "val"
    other = parsed(vitrail("evaluate", run.folder, "--split", "train", "--json"))
    assert other["images"] == 4
    image = data / "val" / "images" / "00.png"
    (answer,) = predict_masks(run.folder, image)
    assert answer.mask.shape == (36, 48)
    with pytest.raises(ModelFileError, match="the model gives masks, not classes"):
        run.predict(image)


def test_a_segmenter_is_no_classifier(vitrail, model, data, tmp_path):
    answer = vitrail("predict", model, data / "val" / "images", "--top", 3)
    assert answer.code == 2 and "the model predicts masks, not labels" in answer.err
    answer = vitrail("predict", model, data / "val" / "images", "--boxes", tmp_path / "boxes.json")
    assert answer.code == 4 and "the model finds no joints" in answer.err
