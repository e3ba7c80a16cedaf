"""A grid of runs as a table and a picture."""

import numpy as np
import pytest

from vitrail.study.comparison import Compared
from vitrail.study.sweeps import cells, numeric, picture, table

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


def test_runs_that_differ_in_their_seed_alone_are_one_cell():
    found = cells(GRID)
    assert [cell.values for cell in found] == [
        {"model.depth": depth, "model.position": position} for depth in (1, 3) for position in ("none", "relative")
    ]
    assert found[0].scores == pytest.approx([0.6, 0.62])
    assert found[0].mean == pytest.approx(0.61)
    spread = np.std([0.6, 0.62], ddof=1)
    assert found[0].interval == pytest.approx((0.61 - spread, 0.61 + spread))


def test_a_cell_of_one_run_has_the_interval_of_its_images():
    (cell,) = cells([({"a": 1}, run(0.9))])
    assert cell.interval == run(0.9).interval


def test_a_run_without_a_score_is_left_out_of_the_mean():
    (cell,) = cells([({"training.seed": 0}, run(0.9)), ({"training.seed": 1}, run(None))])
    assert cell.scores == [0.9]
    head, rows = table([cell])
    assert rows[0][head.index("runs")] == "1"
    (nothing,) = cells([({"a": 1}, run(None))])
    assert np.isnan(nothing.mean)
    assert "–" in table([nothing])[1][0]


def test_the_table_has_the_settings_of_the_grid_and_says_what_its_intervals_are():
    head, rows = table(cells(GRID))
    assert head[:4] == ["model.depth", "model.position", "runs", "score, %"]
    assert "± sd" in head
    assert rows[0][:4] == ["1", "none", "2", "61.00"]
    assert "95 % interval" in table(cells([({"a": 1}, run(0.9))]))[0]


def test_scores_stand_against_the_first_setting_of_numbers_with_a_line_for_the_rest():
    found = cells(GRID)
    assert numeric(found) == ["model.depth"]
    axes = picture(found).axes[0]
    assert axes.get_xlabel() == "model.depth"
    lines = [line for line in axes.get_lines() if line.get_label().startswith("position")]
    assert [line.get_label() for line in lines] == ["position none", "position relative"]
    np.testing.assert_allclose(lines[0].get_xdata(), [1, 3])
    np.testing.assert_allclose(lines[0].get_ydata(), [61, 81])


def test_without_numbers_scores_stand_side_by_side():
    found = cells([({"model.position": name}, run(0.5)) for name in ("none", "relative")])
    axes = picture(found).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["none", "relative"]


def test_scores_can_stand_against_what_training_computes():
    grid = [
        ({"model.name": name, "training.epochs": epochs}, run(0.5 + 0.1 * epochs, macs=macs * epochs))
        for name, macs in (("ViT-Ti/4", 100), ("ViT-S/4", 400))
        for epochs in (1, 2)
    ]
    axes = picture(cells(grid), "operations").axes[0]
    lines = [line for line in axes.get_lines() if line.get_label().startswith("name")]
    np.testing.assert_allclose(lines[0].get_xdata(), [6 * 100 * 200, 6 * 200 * 200])
    assert [line.get_label() for line in lines] == ["name ViT-Ti/4", "name ViT-S/4"]
