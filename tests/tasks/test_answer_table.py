"""Tables of answers: their columns, and that a spreadsheet opens them and runs nothing."""

import csv
import errno
import io

import numpy as np
import pytest
import torch

from vitrail.data.items import Item
from vitrail.errors import DataError
from vitrail.tasks.answer_table import _write_whole, read_table, write_table
from vitrail.tasks.classification.labels.answer import evaluated_rows
from vitrail.weights.model_folder.classifier_output import Labelled

PROBABILITIES = torch.tensor([[0.1, 0.7, 0.2], [0.5, 0.3, 0.2]])


def model(*, several: bool = False, thresholds=()) -> Labelled:
    made = Labelled()
    made.labels, made.multi_label, made.thresholds = ["ant", "bee", "cat"], several, thresholds
    return made


def items(*targets) -> list[Item]:
    return [Item(f"{place}.png", np.zeros(0), target) for place, target in enumerate(targets)]


def test_an_evaluation_has_the_truth_and_whether_it_was_found():
    assert evaluated_rows(model(), items(1, 2), PROBABILITIES) == [
        ["image", "true_label", "label", "score", "correct", "label_2", "score_2", "label_3", "score_3"],
        ["0.png", "bee", "bee", "0.700000", "yes", "cat", "0.200000", "ant", "0.100000"],
        ["1.png", "cat", "ant", "0.500000", "no", "bee", "0.300000", "cat", "0.200000"],
    ]


def test_of_several_labels_those_are_told_that_reach_their_thresholds():
    made = model(several=True, thresholds=[0.5, 0.71, 0.2])
    assert evaluated_rows(made, items((2,), ()), PROBABILITIES) == [
        ["image", "true_labels", "labels", "scores", "correct"],
        ["0.png", "cat", "cat", "0.200000", "yes"],
        ["1.png", "", "ant;cat", "0.500000;0.200000", "no"],
    ]
    assert [answer.accepted for answer in model(several=True).answers(PROBABILITIES, 1)] == [
        [("bee", pytest.approx(0.7))],
        [("ant", 0.5)],
    ]


def test_a_line_that_has_no_room_leaves_none_of_itself(tmp_path):
    class Full(io.FileIO):
        """Takes three bytes at a time, and then nothing."""

        def write(self, content):
            if self.tell() > 12:
                raise OSError(errno.ENOSPC, "full")
            return super().write(content[:3])

    with Full(tmp_path / "a.csv", "wb") as file:
        assert _write_whole(file, b"whole line\n") == 1
        with pytest.raises(OSError, match="full"):
            _write_whole(file, b"half a line\n")
    assert (tmp_path / "a.csv").read_bytes() == b"whole line\n"


def test_no_cell_is_a_formula_and_any_name_is_written(tmp_path):
    names = ["=1+1", "+a", "-b", "@c", "\td", "été", "a,b", 'c"d', "e\nf", "g\udcff"]
    write_table(tmp_path / "new" / "table.csv", [["image"], *([name] for name in names)])
    content = (tmp_path / "new" / "table.csv").read_bytes()
    assert content.startswith("\ufeffimage\n".encode())
    with (tmp_path / "new" / "table.csv").open(encoding="utf-8-sig", newline="") as file:
        (_, *read) = [cells[0] for cells in csv.reader(file)]
    assert read == ["'=1+1", "'+a", "'-b", "'@c", "'\td", "été", "a,b", 'c"d', "e\nf", "g\\udcff"]


@pytest.mark.parametrize("content", [b"", b"image\n\xff\n", b"image\na,b\n", b'image\n"a\n', b"label\na\n", None])
def test_a_table_that_is_none_of_ours_is_refused(content, tmp_path):
    file = tmp_path / "table.csv"
    file.symlink_to("/dev/zero") if content is None else file.write_bytes(content)
    with pytest.raises(DataError, match=r"table\.csv"):
        read_table(file, "image")
    write_table(tmp_path / "good.csv", [["image", "label"], ["=1", "g\udcff"]])
    assert read_table(tmp_path / "good.csv", "image") == [["image", "label"], ["=1", r"g\udcff"]]


@pytest.mark.parametrize("name", ["a\rb", "a\nb", 'a"b', "a,b"])
def test_a_cell_may_hold_what_csv_has_a_meaning_for(name, tmp_path):
    write_table(tmp_path / "table.csv", [("image", "caption"), (name, "x")])
    with (tmp_path / "table.csv").open(newline="", encoding="utf-8-sig") as table:
        assert list(csv.reader(table)) == [["image", "caption"], [name, "x"]]


def test_a_negative_number_is_a_number_and_anything_else_that_begins_so_is_none(tmp_path):
    rows = [["x", "name"], ["-3.20", "-1+cmd"], ["-4", "-5.5e"]]
    write_table(tmp_path / "table.csv", rows)
    text = (tmp_path / "table.csv").read_text(encoding="utf-8-sig")
    assert text == "x,name\n-3.20,'-1+cmd\n-4,'-5.5e\n" and read_table(tmp_path / "table.csv") == rows
