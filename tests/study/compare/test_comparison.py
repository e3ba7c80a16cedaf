"""Runs side by side."""

import json
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
from vitrail.study.compare.comparison import Compared, differences, flattened, same_items, text
from vitrail.study.compare.comparison_page import best, curves, run_table
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
    (alone,) = api.compare(str(run.folder))
    assert alone.state == "finished"


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
    assert same_items(known)  # of data with splits of its own a seed changes nothing


def test_the_page_of_a_run_whose_folders_name_is_not_utf8_links_to_its_report(run, tmp_path):
    odd = shutil.copytree(run.folder, tmp_path / "g\udcff")
    api.compare([odd], tmp_path / "out")
    (address,) = re.findall('href="([^"]+)"', (tmp_path / "out" / "report.html").read_text(encoding="utf-8"))
    assert os.path.samefile(os.fsencode(tmp_path / "out") + b"/" + unquote_to_bytes(address), odd / "report.html")


@pytest.mark.parametrize("value", [None, {"a": {}}])
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
