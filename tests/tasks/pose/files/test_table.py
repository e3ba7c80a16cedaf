"""People in a table: with boxes and without, with splits and without, and what is wrong with a line."""

import re

import pytest

from vitrail.errors import DataError
from vitrail.tasks.pose.files.coco import NO_JOINTS
from vitrail.tasks.pose.files.table import has_joints, read_table

JOINTS = "nose_x,nose_y,left_eye_x,left_eye_y,right_eye_x,right_eye_y"


@pytest.fixture
def read(tmp_path):
    """``read(line, …)`` reads a table of these lines; the first is its header."""

    def read(*lines: str, encoding: str = "utf-8"):
        file = tmp_path / "people.csv"
        file.write_bytes("\n".join(lines).encode(encoding))
        return read_table(file)

    return read


def test_a_line_is_a_person(read, tmp_path):
    found, splits = read(f"image,{JOINTS}", "a/1.png,10,20,12,18,8.5,18.5", "a/1.png,1,2,3,4,5,6", "b.png,1,1,2,2,3,3")
    one, two, other = found.people
    assert one.name == "a/1.png#2" and one.image == tmp_path / "a" / "1.png" and splits == {"all": found.people}
    assert one.target.joints == ((10, 20, 2), (12, 18, 2), (8.5, 18.5, 2)) and one.target.box == (8.5, 18, 3.5, 2)
    assert one.target.image == two.target.image != other.target.image
    assert found.skeleton.complete.pairs == (("left_eye", "right_eye"),) and found.issues == []


def test_boxes_marks_and_other_columns_in_any_order(read):
    columns = "age, top ,left,nose_v,nose_x,image,nose_y,height,width,hip_x,hip_y,hip_v"
    found, _ = read(columns, "7,2,1,1,10,a.png,20,40,30,5,6,0", "7,,,0.6,10,b.png,20,,,5,6,2")
    first, second = (person.target for person in found.people)
    assert first.box == (1, 2, 30, 40) and first.joints == ((10, 20, 1), (0, 0, 0)) and first.area == 1200
    assert second.box == (5, 6, 5, 14) and second.joints == ((10, 20, 1), (5, 6, 2))


def test_a_joint_without_a_place_is_not_marked_and_nobody_is_without_joints(read):
    found, _ = read("image,nose_x,nose_y,hip_x,hip_y", "a.png,,,5,6", "b.png,,,,", "", "c.png,1,2,,")
    assert [person.target.joints for person in found.people] == [((0, 0, 0), (5, 6, 2)), ((1, 2, 2), (0, 0, 0))]
    assert found.left_out == {NO_JOINTS: 1} and found.people[0].target.box == (5, 6, 1, 1)
    assert [person.name for person in found.people] == ["a.png#2", "c.png#5"]


@pytest.mark.parametrize(("line", "message"), [
    ("a.png,1,2,x,2,3,4", "'x' under left is no number"),
    ("a.png,1,2,3", "there are 4 cells for 7 columns"),
    ("a.png,1,2,3,4,5,6,7", "there are 8 cells for 7 columns"),
    ("", None),
    (",1,2,3,4,5,6", "no image is named"),
    ("a.png,nan,2,1,2,3,4", "nose needs both _x and _y"),
    ("a.png,1,inf,1,2,3,4", "'inf' under nose_y is no place"),
    ("a.png,1,1e400,1,2,3,4", "'1e400' under nose_y is no place"),
    ("a.png,1," + "9" * 5000 + ",1,2,3,4", "is no place"),
    ("a.png,1,0x10,1,2,3,4", "is no number"),
    ("a.png,1,,1,2,3,4", "nose needs both _x and _y"),
    ("a.png,1,2,,2,3,4", "a box needs left, top, width, height"),
    ("a.png,1,2,1,2,-3,4", "the box is -3 wide and 4 high"),
    ("a.png,1,2,1,2,0,4", "the box is 0 wide and 4 high"),
    ("a.png,1,\x00,1,2,3,4", "nose needs both _x and _y"),
])  # fmt: skip
def test_what_is_wrong_with_a_line_is_told_with_its_number(read, tmp_path, line, message):
    found, _ = read("image,nose_x,nose_y,left,top,width,height", "a.png,1,2,1,2,3,4", line, "b.png,1,2,1,2,3,4")
    assert len(found.people) == 2
    assert [(issue.kind, issue.path) for issue in found.issues] == ([("bad-row", f"{tmp_path}/people.csv:3")] if message else [])
    assert all(re.search(message, issue.what) and len(issue.what) < 200 for issue in found.issues)


@pytest.mark.parametrize(("header", "message"), [
    ("", "needs a column image"),
    ("nose_x,nose_y", "needs a column image"),
    ("image,nose", "columns of joints"),
    ("image,nose_x", "a column 'nose_x' and none 'nose_y'"),
    ("image,_x,_y", "columns of joints"),
    ("image,nose_x,nose_y,nose_x", "2 columns are called 'nose_x'"),
    ("image,image,nose_x,nose_y", "2 columns are called 'image'"),
    ("image," + ",".join(f"{n}_x,{n}_y" for n in range(1001)), "name no joints"),
    ('image,"nose_x,nose_y', "the table is damaged"),
    ('image,"nose"_x,nose_y', "the table is damaged"),
    ("image,nose_x,nose_y," + "z" * 200_000, "the table is damaged"),
])  # fmt: skip
def test_what_is_no_such_table_is_refused_by_name(read, tmp_path, header, message):
    with pytest.raises(DataError, match=message) as error:
        read(header, "a.png,1,2")
    assert str(error.value.where).startswith(f"{tmp_path}/people.csv") and "\n" not in error.value.what
    assert len(error.value.what) < 300


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("image,nose_x,nose_y", True),
        ("image,left,top,width,height,nose_x,nose_y", True),
        ("image,label,crop_x,crop_y", False),
        ("image,Class,crop_x,crop_y", False),
        ("image,nose_x", False),
    ],
)
def test_a_table_with_a_column_of_labels_is_one_of_images(header, expected, tmp_path):
    (tmp_path / "table.csv").write_text(header + "\n")
    assert has_joints(tmp_path / "table.csv") is expected


@pytest.mark.parametrize(
    ("columns", "cells", "note"),
    [
        ("left,top,width,height", "1,2,30,40", ()),
        ("x,y,w,h", "1,2,30,40", "left in 'x', top in 'y', width in 'w', height in 'h'"),
        ("bbox_x,bbox_y,bbox_width,bbox_height", "1,2,30,40", "left in 'bbox_x'"),
        ("xmin,ymin,xmax,ymax", "1,2,31,42", "left in 'xmin', top in 'ymin', right in 'xmax', bottom in 'ymax'"),
        ("width,height,xmin,ymin,xmax,ymax", "640,480,1,2,31,42", "left in 'xmin'"),  # the image's size beside corners
        ("x,y,w,h,width,height", "1,2,30,40,640,480", "width in 'w', height in 'h'"),
        ("Box X1,Box Y1,Box X2,Box Y2", "1,2,31,42", "left in 'Box X1'"),
        ("bbox_left,bbox_top,bbox_right,bbox_bottom", "1,2,31,42", "left in 'bbox_left'"),
    ],
)
def test_the_columns_of_a_box_may_have_the_names_that_others_use(read, columns, cells, note):
    found, _ = read(f"image,{columns},nose_x,nose_y", f"a.png,{cells},5,6")
    assert found.people[0].target.box == (1, 2, 30, 40) and found.skeleton.joints == ("nose",)
    assert found.read_as == [] if note == () else note in found.read_as[0]


@pytest.mark.parametrize("marks", ["nan,nan,", "NA,NA,0", ",,2", "null,NULL,nan", "3,4,0", "3,,0", "nan,None,0.0"])
def test_what_pandas_writes_for_nothing_and_places_that_are_not_marked_are_no_joints(read, marks):
    found, _ = read("image,nose_x,nose_y,tail_x,tail_y,tail_v", f"a.png,1,2,{marks}")
    assert found.issues == [] and found.people[0].target.joints == ((1, 2, 2), (0, 0, 0))
