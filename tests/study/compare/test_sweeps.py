"""A grid of runs as a table and a picture."""

import numpy as np
import pytest

from vitrail.study.compare.comparison import Compared
from vitrail.study.compare.sweeps import combinations, numeric, picture, table, write_sweep

ROW = {"epoch": 1, "val_loss": 0.5, "val_top1": 0.8, "seconds": 2.0, "images_per_second": 100.0}


def run(top1, *, macs=1000, family=""):
    scores = {} if top1 is None else {"top1": top1, "images": 100}
    return Compared("run", "finished", {}, [ROW], 10, macs, "test", scores, family)


MODELS = {
    "ViT-Ti/16": ("ViT", 27),
    "R+ViT-Ti/16": ("hybrid", 14),
    "ViT-Ti/8": ("ViT", 92),
    "ResNet-18": ("ResNet", 38),
    "ViT-Ti/32": ("ViT", 11),
    "R+ViT-CIFAR10": ("hybrid", 43),
}
"""Family and multiply-adds."""


def models_picture(**others):
    """Of `MODELS`, each with every value of a second setting, if there is one; accuracy is as good as the place in the list."""
    ((name, values),) = others.items() or [("", [1])]
    return picture(
        combinations(
            [
                (
                    {"model.name": model} | ({name: value} if name else {}),
                    run(0.5 + 0.01 * i + 0.001 * n, macs=macs * factor, family=family),
                )
                for i, (model, (family, macs)) in enumerate(MODELS.items())
                for n, value in enumerate(values)
                for factor in [value if isinstance(value, int) else 1]
            ]
        ),
        "operations",
    )


def drawn(figure):
    """The lines of a picture with two points or more, or a legend's label, and the names in it."""
    axes = figure.axes[0]
    return [line for line in axes.get_lines() if line.get_linestyle() == "-"], [text.get_text() for text in axes.texts]


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


def test_the_page_tells_of_bars_only_where_a_score_has_one(tmp_path):
    def page_of(*scores):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        runs = [Compared("run", "finished", {}, [ROW], 10, 10, "test", {**score, "images": 100}) for score in scores]
        write_sweep(folder, [({"a": n}, run) for n, run in enumerate(runs)], title="a sweep", against=None)
        return (folder / "report.html").read_text(encoding="utf-8")

    assert "bars are" not in page_of({"map": 0.5}, {"map": 0.6})
    assert "bars are 95 % intervals" in page_of({"top1": 0.5}, {"top1": 0.6})


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
    figure = picture(combinations(grid), "operations")
    lines, names = drawn(figure)
    np.testing.assert_allclose(
        [line.get_xdata() for line in lines], [[6 * 100 * 200, 6 * 200 * 200], [6 * 400 * 200, 6 * 800 * 200]]
    )
    assert names == ["ViT-Ti/4", "ViT-S/4"]
    assert figure.axes[0].get_xscale() == "log"


def test_models_have_their_names_and_a_line_through_each_family_in_the_order_of_what_they_compute():
    figure = models_picture()
    lines, names = drawn(figure)
    assert [line.get_label() for line in lines] == ["\u200bViT", "\u200bhybrid", "\u200bResNet"]
    np.testing.assert_allclose(lines[0].get_xdata(), [1200 * 11, 1200 * 27, 1200 * 92])
    np.testing.assert_allclose(lines[0].get_ydata(), [54, 50, 52])
    assert sorted(names) == sorted(MODELS)
    assert len({line.get_color() for line in lines}) == len({line.get_marker() for line in lines}) == 3
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["\u200bViT", "\u200bhybrid", "\u200bResNet"]


def test_with_numbers_beside_the_models_a_line_goes_through_these_of_each_model():
    lines, names = drawn(models_picture(**{"training.epochs": [1, 2, 8]}))
    assert len(lines) == len(names) == len(MODELS)
    for line in lines:
        np.testing.assert_allclose(line.get_xdata() / line.get_xdata()[0], [1, 2, 8])
    colors = {"ViT": set(), "hybrid": set(), "ResNet": set()}
    for name, line in zip(names, lines, strict=True):
        colors[MODELS[name][0]].add(line.get_color())
    assert {len(of_one) for of_one in colors.values()} == {1}
    assert len(set.union(*colors.values())) == 3
