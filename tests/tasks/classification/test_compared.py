"""Classifiers side by side on the same images."""

import json
import math
import shutil
from dataclasses import replace

import pytest
from PIL import Image

from vitrail import api
from vitrail.study.compare.comparison import Compared, document, same_data, same_items, text
from vitrail.study.compare.comparison_page import write_comparison
from vitrail.tasks.classification.compared import Paired, answers_in, pairs_of


def answered(folder, name, source, images, **settings):
    """Return a run on the images of a data folder: their names with labels, and whether they are right."""
    (folder / name).mkdir()
    rows = "".join(f"{image},{label},x,{correct}\n" for image, label, correct in images)
    (folder / name / "predictions.csv").write_text(f"image,true_label,label,correct\n{rows}")
    settings = {"task": {"name": "classification"}, "data": {"source": str(source), **settings}}
    return Compared(name, "finished", settings, [], 1_000_000, 2_000_000, folder=folder / name)


def pairs(folders):
    return [(pair.first, pair.second) for pair in pairs_of(api.compare(folders)) if isinstance(pair, Paired)]


def test_the_predictions_of_all_runs_decide_whether_they_were_evaluated_on_the_same_images(tmp_path):
    runs = [
        answered(tmp_path, name, "data", [(image, "cat", "yes") for image in images], split_seed=seed)
        for seed, (name, images) in enumerate((("a", "xy"), ("b", "yx"), ("c", "xz")))
    ]
    assert same_items(runs[:2]) and not same_items(runs)
    (tmp_path / "b" / "predictions.csv").unlink()
    assert not same_items(runs[:2])


@pytest.mark.parametrize(("only_first", "only_second"), [(0, 0), (5, 0), (9, 2), (30, 28)])
def test_the_p_of_paired_answers_is_mcnemars_exact_test(only_first, only_second):
    apart = only_first + only_second
    tail = sum(math.comb(apart, k) for k in range(min(only_first, only_second) + 1)) / 2**apart
    assert Paired("a", "b", 100, only_first, only_second).p == pytest.approx(min(1, 2 * tail))


def test_runs_are_paired_where_they_have_predictions_for_the_same_images(run, pictures, tmp_path, tiny):
    second = api.train(pictures, tmp_path / "wide", **{**tiny, "model.dim": 32})
    (pair,) = pairs_of(api.compare([run.folder, second.folder]))
    assert (pair.first, pair.second, pair.images) == ("colours", "wide", run.scores["images"])
    assert pair.difference == pytest.approx(run.scores["top1"] - second.scores["top1"])
    (tmp_path / "predictions.csv").write_text("image,true_label,label,correct\na,x,x,yes\na,x,y,no\n")
    assert answers_in(tmp_path / "predictions.csv") == {}  # names that do not tell images apart


def test_runs_of_other_images_of_the_same_names_are_not_paired_and_of_data_that_was_moved_they_are(run, pictures, tmp_path, tiny):
    moved, others = (shutil.copytree(pictures, tmp_path / name) for name in ("moved", "others"))
    for number, file in enumerate(sorted(others.rglob("*.png"))):
        Image.new("RGB", (10, 10), (number, 0, 0)).save(file)
    runs = [run.folder, *(api.train(data, tmp_path / f"of-{data.name}", **tiny).folder for data in (moved, others))]
    answers = [answers_in(folder / "predictions.csv").keys() for folder in runs]
    assert answers[0] == answers[2], "else it shows nothing"
    assert pairs(runs) == [("colours", "of-moved")]
    found = api.compare(runs)
    assert same_data(*found[:2]) and not same_data(*found[1:])
    shutil.rmtree(runs[1] / "checkpoints")  # without which files tell
    assert pairs(runs) == [("colours", "of-moved")]
    shutil.rmtree(moved)
    assert pairs(runs) == []
    assert ["may be other images" in note for note in document(api.compare(runs))["notes"]] == [True] * 3


RAW = [("1.png", "ant", "no"), ("2.png", "bee", "yes"), ("3.png", "bee", "yes"), ("4.png", "ant", "no")]
CLEANED = {
    "an image removed": (RAW[:3], (3, (1, 0), (2, 2))),
    "a label changed": ([*RAW[:3], ("4.png", "bee", "yes")], (3, (1, 1), (2, 2))),
    "others added": ([("1.png", "ant", "yes"), *RAW[1:3], ("5.png", "ant", "yes")], (3, (1, 1), (2, 3))),
}


@pytest.mark.parametrize(
    ("cleaning", "where"),
    [("an image removed", "in place"), ("a label changed", "another table"), ("others added", "a copy")],
)
def test_runs_before_and_after_cleaning_are_compared_on_what_they_have_in_common_and_that_is_said(cleaning, where, tmp_path):
    images, (common, left_out, right) = CLEANED[cleaning]
    for data in ("raw", "copy"):
        (tmp_path / data).mkdir()
        for number in range(1, 6):
            (tmp_path / data / f"{number}.png").write_text(str(number))
        for table in ("a.csv", "b.csv"):
            (tmp_path / data / table).touch()
    first, second = {
        "in place": ("raw", "raw"), "another table": ("raw/a.csv", "raw/b.csv"), "a copy": ("raw", "copy"),
    }[where]  # fmt: skip
    runs = [answered(tmp_path, "before", tmp_path / first, RAW), answered(tmp_path, "after", tmp_path / second, images)]
    (pair,) = pairs_of(runs)
    assert (pair.images, pair.left_out) == (common, left_out)
    assert (pair.both + pair.only_first, pair.both + pair.only_second) == right
    told = f"evaluated on 4 and {len(images)} images and are compared on the 3 that they have in common"
    assert told in text(runs) and told in document(runs)["notes"][0]
    write_comparison(tmp_path, runs)
    assert told in (tmp_path / "report.html").read_text()


def test_runs_without_common_images_say_that_nothing_is_compared_and_runs_without_predictions_nothing(tmp_path):
    runs = [answered(tmp_path, name, "data", [(f"{name}.png", "ant", "yes")]) for name in "abcdef"]
    assert text(runs[:2]).count("a and b are not compared image by image: none of their 1 and 1 images") == 1
    assert document(runs)["notes"][-1] == "and 7 more pairs of runs"
    assert document([replace(run, folder=None) for run in runs])["notes"] == []


def test_tables_of_other_tasks_are_not_read_as_predictions_of_labels(tmp_path):
    runs = [answered(tmp_path, name, "data", []) for name in "ab"]
    for run in runs:
        run.settings["task"]["name"] = "ordinal"
        (run.folder / "predictions.csv").write_text("image,label,prediction\nx.png,low,high\n")
    assert json.loads(json.dumps(document(runs)))["paired"] == [] and "run" in text(runs)
