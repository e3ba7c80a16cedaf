"""Runs side by side."""

import json
import math
import os
import re
import shutil
from dataclasses import replace
from urllib.parse import unquote, unquote_to_bytes

import numpy as np
import pytest
from PIL import Image

from vitrail import api
from vitrail.errors import ConfigError, ModelFileError
from vitrail.study.compare.comparison import (
    Compared,
    columns,
    differences,
    document,
    flattened,
    pair_notes,
    paired_runs,
    same_data,
    same_images,
    text,
)
from vitrail.study.compare.comparison_page import best, curves, run_table, write_comparison
from vitrail.study.compare.paired import Paired, answers_in, paired
from vitrail.training.runs.run_folder import RunFolder

ROW = {"epoch": 1, "val_loss": 0.5, "val_top1": 0.8, "seconds": 2.0, "images_per_second": 100.0}


def compared(name="a", *, settings=None, scores=None, rows=(ROW,), state="finished"):
    return Compared(name, state, settings or {}, list(rows), 1_000_000, 2_000_000, "test" if scores else "", scores or {})


@pytest.fixture(scope="module")
def second(pictures, tmp_path_factory, tiny):
    """A run that differs from the fixture ``run`` in its width and its learning rate."""
    changes = {"model.dim": 32, "optimizer.lr": 0.02, "training.epochs": 3}
    return api.train(pictures, tmp_path_factory.mktemp("second") / "wide", **{**tiny, **changes})


def test_settings_that_differ_are_found_by_their_dotted_name(run, second):
    found = api.compare([run.folder, second.folder])
    different = differences(found)
    assert different["model.dim"] == [16, 32]
    assert different["optimizer.lr"] == [0.01, 0.02]
    assert set(different) == {"model.dim", "optimizer.lr", "training.epochs"}


def test_what_is_known_of_a_run(run, second):
    first, wide = api.compare([run.folder, second.folder])
    assert (first.name, wide.name) == ("colours", "wide")
    assert first.scores == pytest.approx(run.scores)
    assert first.split == run.split
    assert len(wide.rows) == 3
    assert wide.parameters == sum(p.numel() for p in second.trained.model.parameters())
    assert wide.operations == pytest.approx(6 * wide.macs * 3 * 16, rel=0.1)  # 16 training images, three times


def test_the_score_is_mean_average_precision_where_an_image_may_have_several_labels():
    assert compared(scores={"map": 0.5, "top1": 0.9, "images": 100}).score == 0.5
    assert compared(scores={"top1": 0.9, "images": 100}).score == 0.9


def test_the_rate_is_that_of_the_epoch_in_the_middle():
    assert compared(rows=[{**ROW, "images_per_second": rate} for rate in (1, 100, 110)]).rate == 100


def test_the_interval_is_wilsons():
    low, high = compared(scores={"top1": 0.9, "images": 100, "loss": 0.1, "top5": 1.0}).interval
    z, n, p = 1.959964, 100, 0.9
    middle, half = (p + z * z / 2 / n) / (1 + z * z / n), z / (1 + z * z / n) * np.sqrt(p * (1 - p) / n + z * z / 4 / n / n)
    assert (low, high) == pytest.approx((middle - half, middle + half), abs=1e-4)
    assert compared().interval is None
    assert compared(scores={"map": 0.5, "top1": 0.9, "images": 100}).interval is None


def test_a_run_without_scores_stands_in_the_table_with_its_state():
    written = text([compared("done", scores={"top1": 0.5, "images": 10}), compared("half", state="interrupted", rows=())])
    assert "50.00" in written and "half (interrupted)" in written and "–" in written


def test_settings_that_are_the_same_are_not_shown():
    same = [compared(n, settings={"training": {"seed": 0}, "results": n}, scores={"top1": 0.5, "images": 10}) for n in "ab"]
    assert differences(same) == {}
    assert "setting" not in text(same)


def test_a_setting_that_one_run_does_not_have_is_none_there():
    runs = [compared("a", settings={"x": {"y": 1}}), compared("b", settings={"x": {}})]
    assert differences(runs) == {"x.y": [1, None], "x": [None, {}]}
    assert flattened({"a": {"b": {"c": 1}}, "d": [2]}) == {"a.b.c": 1, "d": [2]}


def test_columns_stand_below_each_other():
    assert columns([("a", "bb"), ("ccc", "d")]).splitlines() == ["a    bb", "───────", "ccc  d"]


def test_a_comparison_is_written_whole(run, second, tmp_path):
    api.compare([run.folder, second.folder], tmp_path / "out")
    assert {file.name for file in (tmp_path / "out").iterdir()} == {"report.html", "curves.png", "comparison.json"}
    written = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert [one["run"] for one in written["runs"]] == ["colours", "wide"]
    assert written["differences"]["model.dim"] == [16, 32]
    page = (tmp_path / "out" / "report.html").read_text()
    assert "optimizer.lr" in page and "wide" in page
    assert np.asarray(Image.open(tmp_path / "out" / "curves.png").convert("L")).std() > 5
    with pytest.raises(ConfigError, match="exists"):
        api.compare([run.folder], tmp_path / "out")


def test_runs_of_the_same_name_keep_their_paths(run, tmp_path):
    (tmp_path / "colours").symlink_to(run.folder)
    found = api.compare([run.folder, tmp_path / "colours"])
    assert len({one.name for one in found}) == 2


def test_a_single_run_may_stand_without_a_list(run):
    for folder in (run.folder, str(run.folder)):
        assert [one.state for one in api.compare(folder)] == ["finished"]


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(ModelFileError, match="no run folder"):
        api.compare([tmp_path])


def test_curves_have_a_line_for_every_run_and_one_for_each_of_many():
    figure = curves([compared(str(number), rows=(ROW, {**ROW, "epoch": 2})) for number in range(20)])
    lines = figure.axes[0].get_lines()
    assert len(lines) == 20
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == 20
    assert len(curves([compared(rows=())]).axes[0].get_lines()) == 0


def test_the_best_of_a_column_stands_out_where_another_is_worse():
    assert best([0.5, 0.9, float("nan")], ["50 %", "90 %", "–"]) == "90 %"
    assert best([0.501, 0.502], ["50 %", "50 %"]) == best([float("nan")], ["–"]) == best([], []) is None


def test_the_page_links_to_the_report_of_each_run_and_marks_the_best(run, second, tmp_path):
    api.compare([run.folder, second.folder], tmp_path / "out")
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    found = [(tmp_path / "out" / unquote(address)).resolve() for address in re.findall('href="([^"]+)"', page)]
    assert found == [(each.folder / "report.html").resolve() for each in (run, second)]
    small, _ = api.compare([run.folder, second.folder])
    assert f'<td class="right best">{small.parameters / 1e6:,.2f} M</td>' in page


@pytest.mark.parametrize("changed", [{"split_seed": 1}, {"test_share": 0.3}, {"val_share": 0.2}])
def test_no_score_is_the_best_where_runs_were_evaluated_on_other_images_of_one_source(changed, tmp_path):
    settings = {"data": {"source": "photos", "split_seed": 0, "test_share": None, "val_share": None}}
    a, b = (compared(name, settings=settings, scores={"top1": top1, "images": 10}) for name, top1 in (("a", 0.5), ("b", 0.9)))
    other = replace(b, settings={"data": {**settings["data"], **changed}})
    assert 'best">90.00 %' in run_table([a, b], tmp_path)
    assert 'best">90.00 %' not in run_table([a, other], tmp_path)
    known = [replace(run, data={"sha256": "1"}) for run in (a, other)]
    assert same_images(known)  # of data with splits of its own a seed changes nothing


def test_the_answers_that_all_runs_keep_decide_whether_they_were_evaluated_on_the_same_images(tmp_path):
    runs = []
    for name, images in (("a", "xy"), ("b", "yx"), ("c", "xz")):
        (tmp_path / name).mkdir()
        rows = "".join(f"{image},cat,cat,yes\n" for image in images)
        (tmp_path / name / "predictions.csv").write_text(f"image,true_label,label,correct\n{rows}")
        runs.append(replace(compared(name, settings={"data": {"split_seed": len(runs)}}), folder=tmp_path / name))
    assert same_images(runs[:2]) and not same_images(runs)
    (tmp_path / "b" / "predictions.csv").unlink()
    assert not same_images(runs[:2])


def test_the_page_of_a_run_whose_folders_name_is_not_utf8_links_to_its_report(run, tmp_path):
    odd = shutil.copytree(run.folder, tmp_path / "g\udcff")
    api.compare([odd], tmp_path / "out")
    (address,) = re.findall('href="([^"]+)"', (tmp_path / "out" / "report.html").read_text(encoding="utf-8"))
    assert os.path.samefile(os.fsencode(tmp_path / "out") + b"/" + unquote_to_bytes(address), odd / "report.html")


@pytest.mark.parametrize(("only_first", "only_second"), [(0, 0), (5, 0), (9, 2), (30, 28)])
def test_the_p_of_paired_answers_is_mcnemars_exact_test(only_first, only_second):
    apart = only_first + only_second
    tail = sum(math.comb(apart, k) for k in range(min(only_first, only_second) + 1)) / 2**apart
    assert Paired("a", "b", 100, only_first, only_second).p == pytest.approx(min(1, 2 * tail))


def test_runs_are_paired_where_they_have_answers_to_the_same_images(run, second, tmp_path):
    (pair,) = paired_runs(api.compare([run.folder, second.folder]))
    assert (pair.first, pair.second, pair.images) == ("colours", "wide", run.scores["images"])
    assert pair.difference == pytest.approx(run.scores["top1"] - second.scores["top1"])
    right, wrong = {("a", "x"): True, ("b", "x"): False}, {("b", "x"): False, ("a", "x"): False}
    assert paired([("1", right), ("2", wrong), ("3", {("c", "x"): True}), ("4", {})]) == [Paired("1", "2", 2, 1, 0)]
    (tmp_path / "predictions.csv").write_text("image,true_label,label,correct\na,x,x,yes\na,x,y,no\n")
    assert answers_in(tmp_path / "predictions.csv") == {}  # names that do not tell images apart


def test_runs_of_other_images_of_the_same_names_are_not_paired_and_of_data_that_was_moved_they_are(run, pictures, tmp_path, tiny):
    moved, others = (shutil.copytree(pictures, tmp_path / name) for name in ("moved", "others"))
    for number, file in enumerate(sorted(others.rglob("*.png"))):
        Image.new("RGB", (10, 10), (number, 0, 0)).save(file)
    runs = [run.folder, *(api.train(data, tmp_path / f"of-{data.name}", **tiny).folder for data in (moved, others))]
    found = api.compare(runs)
    assert [(pair.first, pair.second) for pair in paired_runs(found)] == [("colours", "of-moved")]
    answers = [answers_in(folder / "predictions.csv").keys() for folder in runs]
    assert answers[0] == answers[2], "else it shows nothing"
    assert same_data(*found[:2]) and not same_data(*found[1:])
    shutil.rmtree(runs[1] / "checkpoints")  # without which files tell
    found = api.compare(runs)
    assert [(pair.first, pair.second) for pair in paired_runs(found)] == [("colours", "of-moved")]
    shutil.rmtree(moved)
    assert paired_runs(api.compare(runs)) == []
    assert ["may be other images" in note for note in pair_notes(api.compare(runs))] == [True] * 3


def answered(folder, name, source, images, **changes):
    """A run on the images of a data folder: their names with labels, and whether they are right."""
    (folder / name).mkdir()
    rows = "".join(f"{image},{label},x,{correct}\n" for image, label, correct in images)
    (folder / name / "predictions.csv").write_text(f"image,true_label,label,correct\n{rows}")
    return replace(compared(name, settings={"data": {"source": str(source)}}), folder=folder / name)


RAW = [("1.png", "ant", "no"), ("2.png", "bee", "yes"), ("3.png", "bee", "yes"), ("4.png", "ant", "no")]
CLEANED = {
    "an image removed": (RAW[:3], (3, (1, 0), (2, 2))),
    "a label changed": ([*RAW[:3], ("4.png", "bee", "yes")], (3, (1, 1), (2, 2))),
    "others added": ([("1.png", "ant", "yes"), *RAW[1:3], ("5.png", "ant", "yes")], (3, (1, 1), (2, 3))),
}


@pytest.mark.parametrize("where", ["in place", "another table", "a copy"])
@pytest.mark.parametrize("cleaning", CLEANED)
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
    (pair,) = paired_runs(runs)
    assert (pair.images, pair.left_out) == (common, left_out)
    assert (pair.both + pair.only_first, pair.both + pair.only_second) == right
    told = f"evaluated on 4 and {len(images)} images and are compared on the 3 that they have in common"
    assert told in text(runs) and told in document(runs)["notes"][0]
    write_comparison(tmp_path, [replace(run, rows=[]) for run in runs])
    assert told in (tmp_path / "report.html").read_text()


def test_runs_without_common_images_say_that_nothing_is_compared_and_runs_without_answers_nothing(tmp_path):
    runs = [answered(tmp_path, name, "data", [(f"{name}.png", "ant", "yes")]) for name in "abcdef"]
    assert text(runs[:2]).count("a and b are not compared image by image: none of their 1 and 1 images") == 1
    assert pair_notes(runs)[-1] == "and 7 more pairs of runs"
    assert pair_notes([replace(run, folder=None) for run in runs]) == []


@pytest.mark.parametrize("value", [None, [1], {"a": {}}, {"a": "b"}])
@pytest.mark.parametrize(
    "name",
    ["status.json", "state", "split", "scores", "best", "top1", "images", "metrics.jsonl", "epoch", "seconds", "splits.json"],
)
def test_a_damaged_run_is_an_error_that_names_the_file(name, value, run, tmp_path):
    for part in ("config.yaml", "status.json", "metrics.jsonl", "splits.json"):
        shutil.copy(run.folder / part, tmp_path)
    status, rows = (tmp_path / part for part in ("status.json", "metrics.jsonl"))
    if name in ("state", "split", "scores", "best"):
        status.write_text(json.dumps({**json.loads(status.read_text()), name: value or 3}))
    elif name in ("top1", "images"):
        told = json.loads(status.read_text())
        status.write_text(json.dumps({**told, "scores": {**told["scores"], name: value or "98 %"}}))
    elif name in ("epoch", "seconds"):
        rows.write_text(json.dumps({**json.loads(rows.read_text().splitlines()[0]), name: value}))
    else:
        (tmp_path / name).write_text(json.dumps(value))
    told = dict.fromkeys(("state", "split", "scores", "best", "top1", "images"), status)
    file = {**told, "epoch": rows, "seconds": rows}.get(name, tmp_path / name)
    with pytest.raises(ModelFileError) as error:
        api.compare([tmp_path], tmp_path / "out")
        assert RunFolder.open(tmp_path).assignment  # which nothing is compared by
    assert file.name in str(error.value.where)


def test_operations_of_texts_are_counted_by_their_tokens():
    images, texts = (compared(rows=[{"epoch": 1, "seconds": 2.0, f"{unit}_per_second": 80.0}]) for unit in ("images", "tokens"))
    assert images.operations == 6 * images.macs * 160 and texts.operations == images.operations / 16
    assert texts.to_dict()["tokens_per_second"] == images.to_dict()["images_per_second"] == 80
    assert "tokens_per_second" not in images.to_dict()
