"""COCO's annotations are read, and whatever is wrong with them is told."""

import json
import re

import pytest

from data.people import CATEGORY, KEYPOINTS, annotation, picture, write_coco
from vitrail.data.images.box_preparation import Box
from vitrail.errors import DataError
from vitrail.tasks.pose.files.coco import CROWD, NO_JOINTS, read_coco
from vitrail.tasks.pose.people.bodies import FROM_0, NO_LIMBS
from vitrail.tasks.pose.people.skeleton import Skeleton


@pytest.fixture
def file(tmp_path):
    return tmp_path / "keypoints.json"


def test_a_person_has_a_box_joints_and_an_area(file):
    found = read_coco(write_coco(file, [annotation(7)]))
    (person,) = found.people
    assert person.name == "1.png#7" and person.image == file.parent / "1.png"
    assert person.target == (Box(5, 6, 30, 40), ((20, 10, 2), (30.5, 40, 2), (12, 41.25, 1)), 900, 1, 7)
    assert person.joints.tolist() == [[20, 10, 2], [30.5, 40, 2], [12, 41.25, 1]]
    assert found.issues == found.warnings == [] and found.sizes == {str(person.image): (50, 60)}


BOTH = [("nose", "left_hip"), ("nose", "right_hip")]


@pytest.mark.parametrize(("limbs", "expected", "notes"), [
    ([[1, 2], [1, 3]], BOTH, {}),
    ([[1.0, "2"], ["1", 3.0], [3, 1]], BOTH, {}),
    ([["nose", "left_hip"], ["nose", 3]], BOTH, {}),
    ([[0, 1], [0, 2]], BOTH, {FROM_0: 2}),
    ([[0, 1], [1, 3]], BOTH[1:], {NO_LIMBS: 1}),
    ([[1, 4], [1, 2, 3], [1, 1], [1, "tail"], 5, [1, 3]], BOTH[1:], {NO_LIMBS: 5}),
    ({"1": 2}, [], {NO_LIMBS: 1}),
    (None, [], {}),
])  # fmt: skip
def test_limbs_are_numbered_from_1_or_0_or_named_and_others_are_left_out_and_counted(file, limbs, expected, notes):
    found = read_coco(write_coco(file, [annotation(1)], categories=[{**CATEGORY, "skeleton": limbs}]))
    assert found.skeleton.limbs == tuple(expected) and found.notes == notes and len(found.people) == 1


@pytest.mark.parametrize("write", [str, float, "{:.2f}".format], ids=["text", "fraction", "text of a fraction"])
@pytest.mark.parametrize("field", ["id", "image_id", "category_id", "iscrowd", "area", "bbox", "keypoints"])
def test_numbers_that_another_type_holds_are_read_alike(file, field, write):
    rows = [annotation(1), annotation(2)]
    plain = read_coco(write_coco(file, rows)).people
    value = rows[1][field]
    rows[1][field] = [write(one) for one in value] if isinstance(value, list) else write(value)
    found = read_coco(write_coco(file, rows))
    assert found.people == plain and not found.issues and not found.left_out and not found.notes


def test_categories_with_equal_joints_are_one_body_and_unused_ones_do_not_matter(file):
    hand = {"id": 3, "name": "hand", "keypoints": ["wrist"]}
    rows = [annotation(1), annotation(2, category_id=2), annotation(3, category_id=2), annotation(4, category_id=None)]
    found = read_coco(write_coco(file, rows, categories=[CATEGORY, {**CATEGORY, "id": 2, "name": "dog"}, hand]))
    assert len(found.people) == 4 and not found.left_out and found.skeleton.joints == ("nose", "left_hip", "right_hip")
    assert found.notes == {"people of the category person": 2, "people of the category dog": 2}


def test_of_categories_with_different_joints_a_skeleton_chooses_one(file):
    hand = {"id": 3, "name": "hand", "keypoints": ["wrist"]}
    rows = [annotation(1), annotation(2, category_id=3, keypoints=[1, 2, 2])]
    write_coco(file, rows, categories=[CATEGORY, hand])
    for joints, number, other in ((["wrist"], 2, 1), (["nose", "hip_left", "R_Hip"], 1, 3)):
        found = read_coco(file, Skeleton.of(joints))
        assert [one.target.number for one in found.people] == [number]
        assert found.left_out == {f"annotations of category_id {other}": 1}


@pytest.mark.parametrize("nothing", [None, float("nan"), "nan", "NaN", "NA", "null", "", "None"])
@pytest.mark.parametrize(("visibility", "noted"), [(0, 0), ("0", 0), (2, 1), ("same", 0)])
def test_a_joint_without_a_place_is_not_marked(file, nothing, visibility, noted):
    row = [nothing, nothing, nothing if visibility == "same" else visibility]
    found = read_coco(write_coco(file, [annotation(1, keypoints=[*KEYPOINTS[:6], *row])]))
    assert found.people[0].target.joints[2] == (0, 0, 0) and not found.issues and found.notes.total() == noted


def test_crowds_people_without_marks_and_other_categories_are_left_out_and_counted(file):
    other = {"id": 2, "name": "dog"}
    nothing = [0, 0, 0] * 3
    rows = [
        annotation(1),
        annotation(2, iscrowd=1),
        annotation(3, keypoints=nothing),
        annotation(4, category_id=2, keypoints=None),
    ]
    found = read_coco(write_coco(file, rows, categories=[other, CATEGORY]))
    assert [person.target.number for person in found.people] == [1] and found.issues == []
    assert found.left_out == {CROWD: 1, NO_JOINTS: 1, "annotations of category_id 2": 1}


@pytest.mark.parametrize(
    ("bbox", "warned"), [(None, 0), ([5, 6, 0, 40], 1), ([5, 6, 30, 0], 1), ([], 1), ([float("nan")] * 4, 1), ([None] * 4, 1)]
)
def test_without_a_box_it_is_the_smallest_around_the_joints(file, bbox, warned):
    found = read_coco(write_coco(file, [annotation(3, bbox=bbox, area=None)]))
    assert found.people[0].target.box == (12, 10, 18.5, 31.25) and found.people[0].target.area == 18.5 * 31.25
    assert [warning.kind for warning in found.warnings] == ["empty-box"] * warned and found.issues == []
    assert all("annotation 3" in warning.what for warning in found.warnings)


# what is wrong

STRANGE = [None, True, 5, -1, 1.5, "1", "x", [], [1], {}, {"a": 1}, float("nan"), float("inf"), 10**400, "\ud800", [[[[1]]]]]
"""A value of every kind."""


def read_or_refuse(file):
    """What a file holds; what is refused has a line that says why and the file's name."""
    try:
        found = read_coco(file)
    except DataError as error:
        assert str(error.where).startswith(str(file)) and error.hint and "\n" not in error.what and len(error.what) < 500
        return None
    for issue in found.issues:
        assert issue.path == str(file) and len(issue.what) < 300 and ("annotation" in issue.what or "image" in issue.what)
    return found


def dumped(file, values):
    file.write_bytes(json.dumps(values).encode("utf-8", "surrogatepass"))
    return file


def sound() -> dict:
    """A copy of its own."""
    values = {"images": [{"id": 1, "file_name": "1.png"}], "annotations": [annotation(1)], "categories": [CATEGORY]}
    return json.loads(json.dumps(values))


def paths(value, at=()):
    """Every place in nested lists and dictionaries."""
    yield at
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield from paths(part, (*at, key))


@pytest.mark.parametrize("path", list(paths(sound())), ids=lambda path: ".".join(map(str, path)) or "all")
def test_no_value_of_another_kind_is_more_than_an_issue(file, path):
    """At every place of a sound file, in turn, a value of every kind, and none."""
    for strange in [*STRANGE, "left out"]:
        values = whole = {"all": sound()}
        *above, last = ("all", *path)
        for key in above:
            values = values[key]
        if strange == "left out":
            del values[last]
        else:
            values[last] = strange
        found = read_or_refuse(dumped(file, whole.get("all")))
        if found is not None:
            assert len(found.people) + len(found.issues) + sum(found.left_out.values()) >= 1 or strange in ([], "left out")


@pytest.mark.parametrize(("fields", "message"), [
    ({"keypoints": None}, "its keypoints are not 3 numbers for each of 3 joints"),
    ({"keypoints": [*KEYPOINTS[:8], "seen"]}, r"its joint '.+' is .*'seen'\], and not x, y and visibility"),
    ({"iscrowd": "no"}, "its iscrowd is 'no', expected 0 or 1"),
    ({"iscrowd": 2}, "its iscrowd is 2, expected 0 or 1"),
    ({"category_id": "person"}, "its category_id is 'person', and no whole number"),
    ({"category_id": 1.5}, "its category_id is 1.5"),
    ({"keypoints": [*KEYPOINTS[:8], float("nan")]}, "its joint '.+' is .*nan"),
    ({"keypoints": [1e400, *KEYPOINTS[1:]]}, "its joint '.+' is .*inf"),
    ({"keypoints": [2**31, *KEYPOINTS[1:]]}, "its joint '.+' is .*2147483648"),
    ({"bbox": [1, 2, -3, 4]}, r"bbox \[1, 2, -3, \.\.\.\] is not left, top, width and height"),
    ({"bbox": [1, 2, 3]}, "is not left"),
    ({"bbox": "1 2 3 4"}, "is not left"),
    ({"image_id": 5}, "there is no image 5"),
    ({"image_id": "one"}, "there is no image 'one'"),
    ({"image_id": True}, "there is no image True"),
    ({"image_id": None}, "there is no image None"),
])  # fmt: skip
def test_what_is_wrong_with_an_annotation_is_told_with_its_number(file, fields, message):
    found = read_coco(write_coco(file, [annotation(1), annotation(27, **fields)]))
    (issue,) = found.issues
    assert (
        issue.kind == "bad-annotation"
        and issue.what.startswith(("annotation 27: ", "annotation 27 in 1.png: "))
        and len(found.people) == 1
    )
    assert re.search(message, issue.what)


def test_an_id_of_more_than_64_bits_is_an_issue_and_a_smaller_one_is_none(file):
    picture(file.parent / "1.png")
    for number, faults in ((2**63 - 1, 0), (2**63, 1), (-(10**400), 1)):
        found = read_coco(write_coco(file, [annotation(1, number)], [{"id": number, "file_name": "1.png"}]))
        assert [issue.kind for issue in found.issues] == ["bad-image"] * faults
        assert all(re.search(r"the id of the image 1\.png, -?\d.*, has more than 64 bits", issue.what) for issue in found.issues)


def test_what_is_there_twice_or_without_a_number_is_told_by_its_place(file):
    picture(file.parent / "1.png")
    images = [{"id": 1, "file_name": "1.png"}, {"id": 1, "file_name": "2.png"}, {"id": 2}, "3.png", {"id": 3, "file_name": ""}]
    found = read_coco(write_coco(file, [annotation(1), annotation(1), annotation(None), 5], images))
    assert [issue.what for issue in found.issues] == [
        "image 2 in the list has no id of its own", "image 2 has no file_name", "image 4 in the list has no id of its own",
        "image 3 has no file_name", "annotation 2 in the list has no id of its own",
        "annotation 3 in the list has no id of its own", "annotation 4 in the list has no id of its own",
    ]  # fmt: skip
    assert len(found.people) == 1


@pytest.mark.parametrize(("categories", "message"), [
    ([], "no category has keypoints"),
    ([{"id": 1, "name": "person"}], "no category has keypoints"),
    ([CATEGORY, {**CATEGORY, "name": "dog", "keypoints": ["tail"]}], "different keypoints: 'person', 'dog'"),
    ([{**CATEGORY, "name": "x" * 10**6}, {**CATEGORY, "name": [[[]]], "keypoints": ["tail"]}], "several categories"),
    ([{**CATEGORY, "id": "one"}], "the id 'one'"),
    ([{**CATEGORY, "keypoints": ["a", "a", "b"]}], "are no joints"),
    ([{**CATEGORY, "keypoints": ["a", 2, "b"]}], "are no joints"),
    ([{**CATEGORY, "keypoints": ["a", "", "b"]}], "are no joints"),
    ([{**CATEGORY, "keypoints": ["joint"] * 1001}], "1,001 keypoints, more than 1,000"),
    ([{**CATEGORY, "skeleton": [[1, 2]] * 3001}], "3,001 limbs, more than 3,000"),
])  # fmt: skip
def test_bodies_that_cannot_be_read_are_refused(file, categories, message):
    with pytest.raises(DataError, match=message) as error:
        read_coco(write_coco(file, [annotation(1)], categories=categories))
    assert "\n" not in error.value.what and error.value.where == file and len(error.value.what) < 500


@pytest.mark.parametrize("content", [
    b"", b" ", b"null", b"5", b"[]", b"{}", b'{"images": []}', b'{"images": {}, "annotations": [], "categories": []}', b"{",
    b"nonsense", b"\xff\xfe{\x00}\x00", b"\x00" * 100, b"\xef\xbb\xbf", b"[" * 100_000, b'{"a":' * 100_000, b"\xff" * 1000,
    "{}".encode("utf-16"), b'{"images": [' + b"1" * 5000 + b"]}", b"\x89PNG\r\n\x1a\n",
], ids=range(19))  # fmt: skip
def test_what_is_no_such_file_is_refused_by_name(file, content):
    file.write_bytes(content)
    with pytest.raises(DataError, match=r"keypoints\.json") as error:
        read_coco(file)
    assert error.value.where == file and "\n" not in error.value.what
