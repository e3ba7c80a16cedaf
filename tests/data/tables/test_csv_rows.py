"""One reader for tables of labels, captions, joints and sentences: each form of a table gives all four the same."""

import os
import unicodedata
from types import SimpleNamespace
from urllib.parse import quote

import pytest
from PIL import Image

from vitrail.data.readers.image_names import find_image, folder_of
from vitrail.data.readers.sources import open_data
from vitrail.data.tables.csv_rows import column_of, number_in
from vitrail.errors import DataError
from vitrail.tasks.captioning.images.sources import open_captions, tells_captions
from vitrail.tasks.pose.files.sources import open_people, tells_people
from vitrail.tasks.translation.pairs import open_pairs

COUNT = 6
KINDS = {
    "labels": (["image", "label"], lambda n: [f"{n}.png", ("cat", "dog")[n % 2]]),
    "captions": (["image", "caption"], lambda n: [f"{n}.png", f"a red dog {n}"]),
    "people": (["image", "nose_x", "nose_y"], lambda n: [f"{n}.png", f"{n}.5", "7"]),
    "pairs": (["en", "de"], lambda n: [f"a dog {n}", f"ein Hund {n}"]),
}


def opened(kind, file):
    """The notes of a table, and what each of its lines says."""
    if kind == "pairs":
        data = open_pairs(file, ("en", "de"))
        items = [(pair.source, pair.target) for pair in data.split("all")]
    else:
        data = {"labels": open_data, "captions": open_captions, "people": open_people}[kind](file)
        items = [(item.name.split("#")[0], getattr(item.target, "joints", item.target)) for item in data.split("all")]
    return SimpleNamespace(notes=data.notes, items=sorted(items))


def joined(rows, separator=",", quote="", end="\n"):
    return "".join(separator.join(f"{quote}{cell}{quote}" for cell in row) + end for row in rows)


FORMS = {
    "semicolons": lambda rows: joined(rows, ";"),
    "tabs": lambda rows: joined(rows, "\t"),
    "Excel's Unicode text": lambda rows: joined(rows, "\t", end="\r\n").encode("utf-16"),
    "strokes": lambda rows: joined(rows, "|"),
    "quotes everywhere": lambda rows: joined(rows, ",", '"'),
    "quotes and tabs": lambda rows: joined(rows, "\t", '"'),
    "a mark of order, and ends as in Windows": lambda rows: "\ufeff" + joined(rows, ";", end="\r\n"),
    "ends as in old Macs": lambda rows: joined(rows, end="\r"),
    "Excel's first line": lambda rows: "sep=;\r\n" + joined(rows, ";", end="\r\n"),
    "its quoted first line behind a mark": lambda rows: '\ufeff"sep=,"\r\n' + joined(rows, end="\r\n"),
    "its first line with tabs": lambda rows: "SEP=\t\n" + joined(rows, "\t"),
    "another separator in it": lambda rows: "sep=^\n" + joined(rows, "^"),
    "rows of separators at the end": lambda rows: joined(rows) + ",\n,,,\n\n \n\u00a0,\u200b\n",
    "rows of separators before the header": lambda rows: ",,\n\n" + joined(rows),
    "columns without names": lambda rows: joined([*row, "", ""] for row in rows),
    "a trailing separator in the header alone": lambda rows: joined([[*rows[0], ""], *rows[1:]]),
    "separators behind rows alone": lambda rows: joined([rows[0], *([*row, "", ""] for row in rows[1:])]),
    "capitals and blanks in the header": lambda rows: joined([[f" {name.upper()}\u00a0" for name in rows[0]], *rows[1:]], ";"),
    "invisible characters": lambda rows: joined([[f"\ufeff{cell}\u200b " for cell in row] for row in rows]),
    "another column": lambda rows: joined([["note", *rows[0]], *([f"x; {n}", *row] for n, row in enumerate(rows[1:]))]),
}


@pytest.fixture
def images(tmp_path):
    for number in range(COUNT):
        Image.new("RGB", (8, 8), (40 * number, 0, 0)).save(tmp_path / f"{number}.png")
    return tmp_path


def rows_of(kind):
    header, row = KINDS[kind]
    return [header, *map(row, range(COUNT))]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_table_holds_the_same_whatever_it_is_of(images, form):
    for kind in KINDS:
        (images / "plain.csv").write_text(joined(rows_of(kind)))
        text = FORMS[form](rows_of(kind))
        (images / "t.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
        plain, found = opened(kind, images / "plain.csv"), opened(kind, images / "t.csv")
        if kind != "pairs" and form == "invisible characters":  # the name of an image stays as the table has it
            found.items = [(name.strip("\ufeff\u200b "), target) for name, target in found.items]
        assert found.items == plain.items and len(plain.items) == COUNT and plain.notes == (), kind


@pytest.mark.parametrize(
    ("form", "note"),
    [
        ("another column", "not used: 'note'"),
        ("semicolons", "separated by ';'"),
        ("rows of separators at the end", "empty rows skipped: 3"),
        ("invisible characters", "cells cleaned of invisible characters or odd blanks: "),
    ],
)
def test_what_was_understood_ignored_and_cleaned_is_said(images, form, note):
    for kind in KINDS:
        (images / "t.csv").write_bytes(FORMS[form](rows_of(kind)).encode())
        assert any(line.startswith("t.csv: ") and note in line for line in opened(kind, images / "t.csv").notes), kind


def test_a_table_is_told_by_its_columns_and_not_by_its_name(tmp_path):
    headers = {
        "image;Caption;id": "captions", "file_name,text": "captions", "image_name| comment_number| comment": "captions",
        "image,text,species": None, "image,label,text": None, "image,label,caption": None,
        "filename\tsentence\tsplit": "captions",
        "image;nose_x;nose_y": "people", "Image,Nose X,Nose Y": "people", "image,bbox_x,bbox_y,bbox_w,bbox_h,breed": None,
        "image,label,crop_x,crop_y": None, "image,nose.x,nose.y,age": "people", "a.png,a red dog": None, "": None,
    }  # fmt: skip
    for name in ("captions.csv", "people.tsv", "t.txt"):
        for header, kind in headers.items():
            (tmp_path / name).write_text(header + "\n")
            told = "captions" if tells_captions(tmp_path / name) else "people" if tells_people(tmp_path / name) else None
            assert told == kind, (name, header)


@pytest.mark.parametrize(
    ("disk", "named"),
    [
        ("photos/a.png", "photos\\a.png"),
        (unicodedata.normalize("NFD", "écran.png"), unicodedata.normalize("NFC", "écran.png")),
        (unicodedata.normalize("NFC", "é/écran.png"), unicodedata.normalize("NFD", "é\\écran.png")),
        ("my cat (1).png", quote("my cat (1).png")),
        ("100%.png", "100%.png"),
        ("100%25.png", "100%25.png"),
        ("two  blanks.png", "two  blanks.png"),
        ("no\u00a0break.png", "no\u00a0break.png"),
        ("cat.png", "\ufeffcat.png\u200b"),
        ("cat.PNG", "cat"),
    ],
)
def test_an_image_is_found_by_any_spelling_of_its_name(tmp_path, disk, named):
    for folder in (tmp_path, tmp_path / "images"):
        file = folder / disk
        file.parent.mkdir(exist_ok=True, parents=True)
        file.touch()
        assert find_image(folder, named) == file
    assert find_image(tmp_path, "other.png") is None


@pytest.mark.parametrize("place", ["images", "t", "../images", "../t", "images/t", "Images", "whatever"])
def test_images_lie_beside_a_table_or_in_the_usual_folders_or_the_only_other_one(tmp_path, place):
    table = tmp_path / "below" / "t.csv"
    folder = table.parent / place
    folder.mkdir(parents=True)
    table.parent.joinpath("empty").mkdir()
    (folder / "1.png").touch()
    (folder / "1.png").touch()
    assert os.path.samefile(folder_of(table, ["gone.png", "1.png"] if place not in ("Images", "whatever") else ["1.png"]), folder)


@pytest.mark.parametrize(
    ("cell", "separator", "number"),
    [("12,5", ";", 12.5), ("1,234", ";", 1.234), ("12,5", ",", 12.5), ("-,5", "\t", -0.5), ("7", ",", 7), ("1e3", ",", 1000)]
    + [(word, ",", None) for word in ("", "nan", "NaN", "NA", "n/a", "<NA>", "NULL", "None", "#N/A")],
)
def test_numbers_have_points_or_commas_and_what_pandas_writes_is_not_marked(cell, separator, number):
    assert number_in(cell, separator=separator) == number


@pytest.mark.parametrize(("cell", "separator"), [("1,234", ","), ("1.234,5", ";"), ("1,2,3", ";"), ("x", ","), ("-", ",")])
def test_what_may_be_thousands_is_no_number(cell, separator):
    with pytest.raises(ValueError, match="could not convert"):
        number_in(cell, separator=separator)


def test_the_exact_name_of_a_column_comes_first_and_two_that_could_be_meant_are_refused():
    assert column_of(["EN", "en"], "en") == "en" and column_of(["File Name", "x"], "image", ["path", "file_name"]) == "File Name"
    assert column_of(["text", "sentence"], "caption", ["sentence", "text"], first=True) == "sentence"
    for names in (["Image", "IMAGE"], ["path", "file"], ["image", "image"]):
        with pytest.raises(DataError, match=r"could both be|2 columns are called"):
            column_of(names, "image", ["file", "path"])


@pytest.mark.parametrize(
    ("lines", "line", "what"),
    [
        (['"a" b,c', "d,e"], 2, "after a closing quotation mark"),
        (["d,e,f"], 2, "3 cells for 2 columns; quote cells that contain commas"),
        (["d"], 2, "1 cells for 2 columns"),
        (["d,e", '"f,g', "h,i"], 3, "opened here and never closed"),
        (["d," + "x" * 2**20], 2, "longer than a megabyte"),
    ],
)
def test_what_is_wrong_with_a_line_is_said_with_its_number_whatever_the_table_is_of(tmp_path, lines, line, what):
    (tmp_path / "t.csv").write_text("\n".join(["image,caption", *lines]))
    with pytest.raises(DataError, match=what) as error:
        open_captions(tmp_path / "t.csv")
    assert error.value.where == f"{tmp_path}/t.csv:{line}"
    (tmp_path / "t.csv").write_text("\n".join(["sep=,", "en,de", *lines]))
    with pytest.raises(DataError, match=what) as error:
        open_pairs(tmp_path / "t.csv", ("en", "de"))
    assert error.value.where == f"{tmp_path}/t.csv:{line + 1}"
