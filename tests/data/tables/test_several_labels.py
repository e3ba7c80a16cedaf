"""Several labels in one cell, or in columns of 0 and 1: read where they cannot be anything else, else noted."""

import pytest
from PIL import Image

from vitrail.data.readers.sources import open_data, read_data
from vitrail.data.tables.several_labels import labels_in_cells
from vitrail.errors import DataError

SETS = [("cat", "dog"), ("dog",), ("cat", "cow"), ("dog", "cow"), ("cat",), ("cow",)]
READ = {
    "semicolons": "; ".join,
    "strokes": "|".join,
    "commas": ", ".join,
    "commas without blanks": ",".join,
    "Python's lists": lambda labels: str(list(labels)),
    "tuples": lambda labels: str(tuple(labels)) if len(labels) > 1 else f"['{labels[0]}']",
    "JSON": lambda labels: str(list(labels)).replace("'", '"'),
    "NumPy": lambda labels: f"[{' '.join(map(repr, labels))}]",
    "lists without quotes": lambda labels: f"[{', '.join(labels)}]",
    "sets": lambda labels: "{" + ", ".join(map(repr, labels)) + ",}",
}


@pytest.mark.parametrize("form", READ)
def test_several_labels_are_read_in_the_forms_that_nothing_else_has(form):
    found = labels_in_cells([*(READ[form](labels) for labels in SETS), "", "NaN"])
    assert found.labels == [*SETS, (), ()] and found.multi_label and not found.doubt
    assert bool(found.said) == (form != "semicolons")


@pytest.mark.parametrize("separator", [" ", "/", " / ", "+", "&", "_", "-"])
def test_labels_between_what_names_have_too_are_noted(separator):
    found = labels_in_cells([separator.join(labels) for labels in SETS] * 3)
    assert not found.multi_label and "may hold several" in found.doubt and "'cat'" in found.doubt and "';'" in found.doubt


def test_commas_whose_parts_recur_and_never_stand_alone_are_noted():
    found = labels_in_cells(["red, round", "red, square", "blue, round", "blue, square"])
    assert not found.multi_label and "commas" in found.doubt


@pytest.mark.parametrize(
    "names",
    [
        ["tench, Tinca tinca", "crane", "sunglasses, dark glasses, shades", "maillot", "maillot, tank suit", "owl"],
        ["a, b", "c"],
        ["cat,black"],
    ],
)
def test_names_with_commas_stay_one_label_each_and_that_is_said(names):
    found = labels_in_cells(names)
    assert found.labels == [(name,) for name in names] and not found.multi_label
    assert "a label with a comma is one class" in found.doubt and "';'" in found.doubt


@pytest.fixture
def table(tmp_path):
    """``table("image,label", "0.png,cat")`` writes a table beside six images, 0.png to 5.png."""
    for number in range(6):
        Image.new("RGB", (2, 2), (number, 0, 0)).save(tmp_path / f"{number}.png")

    def write(*lines):
        (tmp_path / "labels.csv").write_text("\n".join(lines))
        return tmp_path / "labels.csv"

    return write


def test_how_labels_in_a_cell_were_read_is_said_and_doubts_are_noted(table):
    data = open_data(table("image,label", *(f'{n}.png,"{", ".join(labels)}"' for n, labels in enumerate(SETS))))
    assert data.classes == ["cat", "cow", "dog"] and data.multi_label
    assert data.notes == ("labels.csv: several labels between commas",)
    data = open_data(table("image,label", *(f"{n}.png,{' '.join(labels)}" for n, labels in enumerate(SETS))))
    assert len(data.classes) == 6 and not data.multi_label and "may hold several" in data.notes[0]


@pytest.mark.parametrize("one", ["1", "1.0", "True", "yes"])
def test_a_column_for_each_label_is_read(table, one):
    zero = {"1": "0", "1.0": "0.0", "True": "FALSE", "yes": ""}[one]
    rows = [
        ",".join([f"{n}.png", str(20 + n), *(one if name in labels else zero for name in ("dog", "cat", "cow"))])
        for n, labels in enumerate([*SETS[:5], ()])
    ]
    data = open_data(table("image,age,dog,cat,cow", *rows))
    assert data.multi_label and data.classes == ["cat", "cow", "dog"]
    assert data.notes == ("labels.csv: a column for each of 3 labels, not used: 'age'",)
    assert {item.name: [data.classes[i] for i in item.target] for item in data.split("all")} == {
        f"{n}.png": sorted(labels) for n, labels in enumerate([*SETS[:5], ()])
    }


def test_columns_of_which_each_row_has_one_are_single_labels(table):
    rows = [f"{n}.png,{int(n % 3 == 0)}.0,{int(n % 3 == 1)}.0,{int(n % 3 == 2)}.0,train" for n in range(6)]
    data = open_data(table("image,MEL,NV,BCC,split", *rows))
    assert not data.multi_label and data.classes == ["BCC", "MEL", "NV"] and data.has_splits is False
    assert [data.classes[item.target] for item in data.split("train")][:2] == ["MEL", "NV"] or data.splits["val"]


@pytest.mark.parametrize(
    ("header", "row", "what"),
    [
        ("image,cat,dog", "0.png,1,-1", "'dog' has -1 as well as 0 and 1"),
        ("image,cat,dog", "0.png,1,2", "no columns are called 'label'"),
        ("image,cat,age", "0.png,1,33", "no columns are called 'label'"),
        ("image,cat", "0.png,1", "no columns are called 'label'"),
        ("image,cat,dog", "0.png,,", "no columns are called 'label'"),
    ],
)
def test_columns_that_hold_anything_else_are_no_labels(table, header, row, what):
    with pytest.raises(DataError, match=what):
        read_data(table(header, row))
