"""A grid of runs as a table and a picture."""

import numpy as np
import pytest

from vitrail.study.comparison import Compared
from vitrail.study.sweeps import combinations, numeric, picture, table

ROW = {"epoch": 1, "val_loss": 0.5, "val_top1": 0.8, "seconds": 2.0, "images_per_second": 100.0}


def run(top1, *, macs=1000):
    scores = {} if top1 is None else {"top1": top1, "images": 100}
    return Compared("run", "finished", {}, [ROW], 10, macs, "test", scores)


GRID = [
    ({"model.depth": depth, "model.position": position, "training.seed": seed}, run(0.5 + 0.1 * depth + 0.02 * seed))
    for depth in (1, 3)
    for position in ("none", "relative")
    for seed in (0, 1)
]


def test_runs_that_differ_in_their_seed_alone_are_put_together():
    found = combinations(GRID)
    assert [cell.values for cell in found] == [
        {"model.depth": depth, "model.position": position} for depth in (1, 3) for position in ("none", "relative")
    ]
    assert found[0].scores == pytest.approx([0.6, 0.62])
    assert found[0].mean == pytest.approx(0.61)
    spread = np.std([0.6, 0.62], ddof=1)
    assert found[0].interval == pytest.approx((0.61 - spread, 0.61 + spread))


def test_a_single_run_has_the_interval_of_its_images():
    (cell,) = combinations([({"a": 1}, run(0.9))])
    assert cell.interval == run(0.9).interval


def test_a_run_without_a_score_is_left_out_of_all_means():
    diverged = Compared("run", "diverged", {}, [], 0, 0)
    (half,) = combinations([({"training.seed": 0}, run(0.9)), ({"training.seed": 1}, diverged)])
    assert half.scores == [0.9] and half.of("seconds") == 2.0 and half.of("parameters") == 10
    assert half.interval is None  # of one seed there is no spread
    head, rows = table([half])
    assert rows[0][head.index("runs")] == "1" and rows[0][head.index("± sd")] == "–"
    (nothing,) = combinations([({"a": 1}, diverged)])
    assert np.isnan(nothing.mean)
    assert table([nothing])[1][0][1:] == ["0", "–", "–", "–", "–", "–"]
    picture([half, nothing])
    picture([nothing], "operations")


def test_the_table_has_the_settings_of_the_grid_and_says_what_its_intervals_are():
    head, rows = table(combinations(GRID))
    assert head[:4] == ["model.depth", "model.position", "runs", "score"]
    assert "± sd" in head
    assert rows[0][:4] == ["1", "none", "2", "61.00 %"]
    assert "95 % interval" in table(combinations([({"a": 1}, run(0.9))]))[0]


def test_scores_stand_against_the_first_setting_of_numbers_with_a_line_for_the_rest():
    found = combinations(GRID)
    assert numeric(found) == ["model.depth"]
    axes = picture(found).axes[0]
    assert axes.get_xlabel() == "model.depth"
    lines = [line for line in axes.get_lines() if "position" in line.get_label()]
    assert [line.get_label() for line in lines] == ["\u200bposition none", "\u200bposition relative"]
    np.testing.assert_allclose(lines[0].get_xdata(), [1, 3])
    np.testing.assert_allclose(lines[0].get_ydata(), [61, 81])


def test_without_numbers_scores_stand_side_by_side():
    found = combinations([({"model.position": name}, run(0.5)) for name in ("none", "relative")])
    axes = picture(found).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["none", "relative"]


def test_scores_can_stand_against_what_training_computes():
    grid = [
        ({"model.name": name, "training.epochs": epochs}, run(0.5 + 0.1 * epochs, macs=macs * epochs))
        for name, macs in (("ViT-Ti/4", 100), ("ViT-S/4", 400))
        for epochs in (1, 2)
    ]
    axes = picture(combinations(grid), "operations").axes[0]
    lines = [line for line in axes.get_lines() if "name" in line.get_label()]
    np.testing.assert_allclose(lines[0].get_xdata(), [6 * 100 * 200, 6 * 200 * 200])
    assert [line.get_label() for line in lines] == ["\u200bname ViT-Ti/4", "\u200bname ViT-S/4"]


def test_lines_are_told_apart_by_the_whole_value():
    paths = [f"/a/very/long/path/to/the/folder/of/some/models/{name}" for name in ("first", "second")]
    grid = [({"start": path, "model.depth": depth}, run(0.5)) for path in paths for depth in (1, 2)]
    lines = [line for line in picture(combinations(grid)).axes[0].get_lines() if "start" in line.get_label()]
    assert len(lines) == 2
    assert lines[0].get_label() != lines[1].get_label()


def test_against_operations_settings_that_are_no_numbers_tell_lines_apart():
    grid = [
        ({"model.position": position, "training.epochs": epochs}, run(0.5, macs=epochs))
        for position in ("none", "relative")
        for epochs in (1, 2, 4)
    ]
    lines = [line for line in picture(combinations(grid), "operations").axes[0].get_lines() if "position" in line.get_label()]
    assert [len(line.get_xdata()) for line in lines] == [3, 3]
