"""``vitrail data check`` with a model: a page and tables of near-duplicates and of labels that are probably wrong."""

import csv
import json
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from vitrail.errors import DataError, ModelFileError
from vitrail.tasks.classification.study.checked_page import check_with_page
from vitrail.weights.reference import open_model


@pytest.fixture(scope="module")
def mislabelled(pictures, tmp_path_factory):
    """``pictures`` with a red one among the blue ones, and a smooth one that is in two splits at two sizes."""
    root = tmp_path_factory.mktemp("mislabelled") / "data"
    for split in ("train", "val"):
        shutil.copytree(pictures, root / split)
        for number in range(8):
            for name in ("red", "green", "blue"):
                file = root / split / name / f"{number}.png"
                shade = np.asarray(Image.open(file)) ^ (1 if split == "val" else 0)  # another picture, to the eye the same
                Image.fromarray(shade).save(file)
    (root / "train" / "red" / "0.png").rename(root / "train" / "blue" / "red.png")
    waves = 120 + 60 * np.sin(np.arange(40)[:, None] / 5) + 60 * np.cos(np.arange(40)[None] / 7)
    smooth = Image.fromarray(np.stack([waves, waves, 250 - 0 * waves], axis=-1).astype(np.uint8))
    smooth.save(root / "train" / "blue" / "large.png")
    smooth.resize((30, 30)).save(root / "val" / "blue" / "small.png")
    return root


def rows(file):
    with file.open(newline="", encoding="utf-8-sig") as table:
        return list(csv.DictReader(table))


def test_the_command_writes_a_page_and_tables_and_moves_nothing(vitrail, run, mislabelled, tmp_path):
    before = sorted(mislabelled.rglob("*"))
    answer = vitrail("data", "check", mislabelled, "--model", run.folder, "--out", tmp_path / "out", "--json")
    assert answer.code == 3  # for the near-duplicate in two splits; labels are suggestions
    found = json.loads(answer.out)
    assert [fault["kind"] for fault in found["faults"]] == ["near-duplicate"] and found["folder"] == str(tmp_path / "out")
    assert "in the splits train, val" in found["faults"][0]["what"] and len(found["near_duplicates"]) == 1
    first = next(notice for notice in found["notices"] if notice["kind"] == "wrong-label")
    assert first["path"].endswith("train/blue/red.png") and "labelled 'blue', looks more like 'red'" in first["what"]
    table = rows(tmp_path / "out" / "wrong-labels.csv")
    assert [int(row["rank"]) for row in table] == list(range(1, 51))
    top = table[0]
    assert top["image"] == "train/blue/red.png" and (top["split"], top["label"], top["suggestion"]) == ("train", "blue", "red")
    assert top["probably_wrong"] == "yes" and float(top["confidence"]) > 0.5 and table[-1]["probably_wrong"] == "no"
    alike = rows(tmp_path / "out" / "near-duplicates.csv")
    assert all((mislabelled / row["image"]).is_file() for row in (*table, *alike))  # as predictions.csv names them
    assert [(row["group"], row["split"], row["label"]) for row in alike] == [("1", "train", "blue"), ("1", "val", "blue")]
    page = (tmp_path / "out" / "report.html").read_text()
    assert "blue → red" in page and "train/blue/red.png (train)" in page and "in several splits" in page
    assert page.count("data:image/jpeg;base64,") >= 3
    assert sorted(mislabelled.rglob("*")) == before


def test_without_a_model_the_page_has_the_near_duplicates(vitrail, mislabelled, tmp_path):
    answer = vitrail("data", "check", mislabelled, "--out", tmp_path / "out")
    assert answer.code == 3 and f"page     {tmp_path / 'out' / 'report.html'}" in answer.out
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["near-duplicates.csv", "report.html"]
    assert "Probably wrong" not in (tmp_path / "out" / "report.html").read_text()


def test_tables_and_page_take_any_name_and_no_cell_is_a_formula(vitrail, tmp_path):
    folder = tmp_path / "data" / "=1+1"
    folder.mkdir(parents=True)
    for shade, name in enumerate(("a.png", "g\udcff.png")):
        Image.fromarray((np.indices((40, 40)).sum(axis=0) * 3 + shade).astype(np.uint8)).save(folder / name)
    out = tmp_path / "out"
    found = json.loads(vitrail("data", "check", tmp_path / "data", "--out", out, "--json").out)
    assert "g\udcff.png" in str(found["near_duplicates"]).replace("\\udcff", "\udcff")
    assert {row["label"] for row in rows(out / "near-duplicates.csv")} == {"'=1+1"}
    assert "g\\udcff.png" in (out / "report.html").read_text(encoding="utf-8")


def test_an_image_that_cannot_be_read_is_a_fault_and_not_judged(run, pictures, tmp_path):
    data = shutil.copytree(pictures, tmp_path / "data")
    (data / "red" / "0.png").write_bytes(b"no picture")
    folder, found = check_with_page(data, run.trained, tmp_path / "out")
    assert [issue.kind for issue in found.issues] == ["unreadable"] and len(rows(folder / "wrong-labels.csv")) == 23


def test_what_fails_leaves_nothing_half_written(run, pictures, tmp_path, monkeypatch):
    def stopped(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("vitrail.study.page.page.inline", stopped)
    data = shutil.copytree(pictures, tmp_path / "data")
    (data / "red" / "0.png").rename(data / "blue" / "red.png")
    with pytest.raises(KeyboardInterrupt):
        check_with_page(data, run.trained, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_several_labels_an_image_are_refused_before_any_is_decoded(run, pictures, tmp_path):
    (tmp_path / "labels.csv").write_text("image,label\nnosuch.png,red;blue\n")
    with pytest.raises(DataError, match="several"):
        check_with_page(tmp_path / "labels.csv", run.trained, tmp_path / "out")


def test_a_model_that_is_not_finite_is_refused(run, pictures, tmp_path):
    trained = open_model(run.folder)
    with torch.no_grad():
        next(trained.model.parameters()).fill_(torch.nan)
    with pytest.raises(ModelFileError, match="not finite"):
        check_with_page(pictures, trained, tmp_path / "out")
