"""Tables of the report: what stands in them, by hand."""

import re

import numpy as np
import pytest

from vitrail.models.configs.vit import ViTConfig
from vitrail.models.cost import cost
from vitrail.study.page.tables import Score, class_table, cost_table, count_table, duration, weakest


def cells(table: str) -> list[list[str]]:
    """The texts of a table, by row."""
    rows = re.findall(r"<tr.*?</tr>", table)
    return [[re.sub(r"<[^>]*>", "", cell) for cell in re.findall(r"<t[hd].*?</t[hd]>", row)] for row in rows]


def test_the_weakest_classes_are_the_lowest_that_have_images_and_a_mistake():
    values = np.array([0.9, 0.2, np.nan, 0.5, 1.0, 0.5, 0.1])
    assert weakest(values, np.array([1, 1, 0, 1, 1, 1, 0])) == [1, 3]
    assert weakest(np.ones(3), np.ones(3)) == []
    assert weakest(np.array([0.3, 0.2]), np.ones(2)) == [1]
    assert weakest(np.linspace(0, 0.9, 100), np.ones(100)) == list(range(10))


def test_classes_have_their_scores_and_the_mean_leaves_out_those_without():
    scores = [Score("threshold", np.array([0.1, 0.2, 0.3]), averaged=False), Score("F1", np.array([0.5, 0.25, np.nan]))]
    table = class_table(["a", "b", "c"], np.array([1000, 2, 0]), scores)
    assert cells(table) == [
        ["class", "images", "threshold, %", "F1, %", ""],
        ["a", "1,000", "10.0", "50.0", ""],
        ["b", "2", "20.0", "25.0", ""],
        ["c", "0", "30.0", "–", ""],
        ["mean over classes", "", "", "37.5", ""],
    ]
    assert re.findall(r'<tr class="marked">.*?>(\w)<', table) == ["b"]
    assert re.findall(r"width:([\d.]+)%", table) == ["50.0", "25.0", "0.0"]
    assert "Marked: weakest by F1." in table


@pytest.mark.parametrize("count", [40, 41])
def test_many_classes_are_folded_behind_the_weakest(count):
    table = class_table([f"c{i}" for i in range(count)], np.ones(count, dtype=int), [Score("F1", np.linspace(0.9, 0.1, count))])
    rows = cells(table.partition("<details>")[0])
    assert ("<details>" in table) == (count > 40)
    assert [row[0] for row in rows[1:-1]] == [f"c{i}" for i in (range(40) if count == 40 else range(40, 30, -1))]
    assert table.count(">c7<") == 1


def test_images_are_counted_by_class_and_split_with_bars_of_the_largest_class():
    table = count_table(["a", "b"], {"train": [1200, 300], "val": [0, 0], "test": [7, 8]})
    assert cells(table) == [
        ["index", "class", "train", "test", ""],
        ["0", "a", "1,200", "7", ""],
        ["1", "b", "300", "8", ""],
        ["", "all images", "1,500", "15", ""],
    ]
    assert re.findall(r"width:([\d.]+)%", table) == ["100.0", "25.0"]
    assert "<details>" not in table
    assert "<details>" in count_table([str(i) for i in range(41)], {"train": [1] * 41})


def test_the_cost_of_the_parts_sums_to_that_of_the_model():
    made = cost(ViTConfig(image_size=8, patch_size=4, channels=1, num_classes=2, dim=16, depth=3, heads=2, mlp_dim=32))
    head, *parts, total = cells(cost_table(made))
    assert head == ["part", "parameters", "share", "multiply-adds", "share"]
    assert [part[0] for part in parts] == ["(tokens)", "embedding", "position", "blocks", "norm", "head"]
    numbers = np.array([[int(part[i].replace(",", "")) for i in (1, 3)] for part in parts])
    assert numbers.sum(axis=0).tolist() == [made.parameters, made.macs]
    assert total[1:] == [f"{made.parameters:,}", "100.0 %", f"{made.macs:,}", "100.0 %"]
    blocks, head_row = numbers[3], numbers[5]
    assert blocks.tolist() == [3 * 2224, 3 * (5 * (4 * 16 * 16 + 2 * 16 * 32) + 2 * 5 * 5 * 16)]  # 5 tokens
    assert head_row.tolist() == [16 * 2 + 2, 16 * 2]
    assert parts[5][2] == f"{100 * 34 / made.parameters:.1f} %"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0.0 s"),
        (9.94, "9.9 s"),
        (49.2, "49 s"),
        (99.4, "99 s"),
        (100, "2 min"),
        (5960, "99 min"),
        (6000, "1 h 40 min"),
        (90_000, "25 h 0 min"),
    ],
)
def test_durations_are_said_as_people_say_them(seconds, said):
    assert duration(seconds) == said
