"""A check of people finds what is wrong and what is suspicious, and nothing else."""

import json
import shutil

import numpy as np
import pytest
from PIL import Image

from data.people import CATEGORY, KEYPOINTS, annotation, picture, write_coco, write_many
from stick_figures import write_people
from vitrail.errors import DataError
from vitrail.tasks.pose.files.check import check_people
from vitrail.tasks.pose.people.skeleton import Skeleton


def kinds(issues) -> list[tuple[str, str]]:
    return [(issue.kind, issue.path) for issue in issues]


@pytest.fixture
def checked(tmp_path):
    """``checked(annotation, …)`` checks people in one picture of 50×60 pixels: faults, and notices."""

    def checked(*rows, **files):
        found = check_people(write_coco(tmp_path / "keypoints.json", list(rows), **files))
        return found.issues, found.notices

    return checked


def test_sound_data_has_no_issue_and_is_summed_up(tmp_path):
    for shade, split in enumerate(("train", "val")):
        write_many(tmp_path / split, 3, 1, shade=10 * shade)
        shutil.move(tmp_path / split / "keypoints.json", tmp_path / f"{split}.json")
    seen = []
    found = check_people(tmp_path, on_start=seen.append, on_image=seen.append)
    assert found.issues == found.notices == [] and seen == [6, *[1] * 6]
    document = json.loads(json.dumps(found.to_json()))
    assert document["splits"] == {"train": {"people": 3, "images": 3}, "val": {"people": 3, "images": 3}}
    assert (document["people"], document["images"]) == (6, 6)
    assert document["marked"] == {"nose": 1.0, "left_hip": 1.0, "right_hip": 1.0}
    assert document["boxes"] == {"min": [30, 40], "median": [30, 40], "max": [30, 40]}


def test_pictures_that_are_missing_or_damaged(tmp_path):
    images = [{"id": n, "file_name": f"{n}.png"} for n in range(3)]
    picture(tmp_path / "0.png")
    (tmp_path / "1.png").write_text("no picture")
    found = check_people(write_coco(tmp_path / "keypoints.json", [annotation(n, n) for n in range(3)], images))
    assert kinds(found.issues) == [("missing", f"{tmp_path}/2.png"), ("unreadable", f"{tmp_path}/1.png")]
    whole = (tmp_path / "0.png").read_bytes()
    (tmp_path / "1.png").write_bytes(whole[: len(whole) // 2])  # its head is sound
    found = check_people(write_coco(tmp_path / "keypoints.json", [annotation(n, n) for n in range(3)], images))
    assert kinds(found.issues) == [("missing", f"{tmp_path}/2.png"), ("unreadable", f"{tmp_path}/1.png")]


@pytest.mark.parametrize(("orientation", "told", "words"), [
    (1, (50, 60), None), (1, (60, 50), "EXIF"), (6, (50, 60), "EXIF"), (6, (60, 50), None), (3, (50, 60), None),
    (1, (100, 120), "100×120 in the annotations"),
])  # fmt: skip
def test_a_size_is_compared_with_the_upright_picture(tmp_path, orientation, told, words):
    exif = Image.Exif()
    exif[0x0112] = orientation
    picture(tmp_path / "a.png", exif=exif)  # of 50×60 as stored
    images = [{"id": 1, "file_name": "a.png", "width": told[0], "height": told[1]}]
    issues = check_people(write_coco(tmp_path / "keypoints.json", [annotation(1)], images)).issues
    assert kinds(issues) == ([("size", f"{tmp_path}/a.png")] if words else [])
    assert all((words in issue.what and "upright" in issue.what) or "EXIF" not in words for issue in issues)


def moved(keypoints, joint: int, x: float, y: float) -> list[float]:
    return [*keypoints[: 3 * joint], x, y, 2, *keypoints[3 * joint + 3 :]]


@pytest.mark.parametrize(("x", "y", "noted"), [
    (-1, -1, False), (50, 60, False), (-1.5, 10, True), (50.5, 10, True), (20, -2, True), (20, 61, True),
])  # fmt: skip
def test_joints_outside_of_the_picture_are_noted_from_a_pixel_on(checked, tmp_path, x, y, noted):
    issues, notices = checked(annotation(7, keypoints=moved(KEYPOINTS, 0, x, y), bbox=[1, 1, 48, 58]))
    assert issues == [] and kinds(notices) == ([("joint-outside", f"{tmp_path}/1.png#7")] if noted else [])
    assert all("nose" in notice.what and "50×60" in notice.what for notice in notices)


@pytest.mark.parametrize(("bbox", "noted"), [
    ([5, 6, 30, 40], False), ([-4, -4, 60, 70], False), ([-29, 6, 60, 40], False), ([-32, 6, 60, 40], True),
    ([5, 40, 30, 60], True),
])  # fmt: skip
def test_a_box_of_which_more_than_half_is_outside_is_noted(checked, tmp_path, bbox, noted):
    keypoints = [20, 42, 2, 25, 43, 2, 15, 44, 2]
    issues, notices = checked(annotation(7, bbox=bbox, keypoints=keypoints))
    assert issues == [] and kinds(notices) == ([("box-outside", f"{tmp_path}/1.png#7")] if noted else [])


def test_a_box_without_a_marked_joint_is_a_fault(checked, tmp_path):
    """Within an eighth of its longer side around the box, a joint is seen."""
    alone = [20, 10, 2, 0, 0, 0, 0, 0, 0]
    for top, fault in ((14.9, []), (15.1, [("no-joint-in-box", f"{tmp_path}/1.png#2")])):
        issues, notices = checked(annotation(1), annotation(2, bbox=[20, top, 30, 40], keypoints=alone))
        assert kinds(issues) == fault and kinds(notices) == [("few-joints", f"{tmp_path}/1.png#2")]


def test_a_joint_far_from_its_box_is_noted(checked, tmp_path):
    near, far = (annotation(n, bbox=[10, 10, 20, 20], keypoints=moved(KEYPOINTS, 1, x, 20)) for n, x in ((1, 39.9), (2, 40.1)))
    rows = [{**row, "keypoints": moved(row["keypoints"], 2, 12 + row["id"], 25 + row["id"])} for row in (near, far)]
    issues, notices = checked(*rows)
    assert issues == [] and kinds(notices) == [("far-joint", f"{tmp_path}/1.png#2")] and "left_hip" in notices[0].what


def test_people_of_few_joints_are_noted(checked, tmp_path):
    issues, notices = checked(annotation(1), annotation(2, keypoints=[*KEYPOINTS[:6], 0, 0, 0]))
    assert issues == [] and kinds(notices) == [("few-joints", f"{tmp_path}/1.png#2")] and "nose, left_hip" in notices[0].what


def test_boxes_without_marked_joints_are_noted_and_left_out(checked, tmp_path):
    unmarked = [0] * 9
    rows = [annotation(1), annotation(2, keypoints=unmarked), annotation(3, keypoints=unmarked, bbox=None)]
    issues, notices = checked(*rows, annotation(4, keypoints=unmarked, iscrowd=1))
    assert issues == [] and kinds(notices) == [("no-joints", f"{tmp_path}/1.png#2")] and "no joint is marked" in notices[0].what
    lines = "1,2,9,9,5,6", "1,2,9,9,,", ",,,,,"
    (tmp_path / "people.csv").write_text(
        "image,left,top,width,height,nose_x,nose_y\n" + "".join(f"1.png,{line}\n" for line in lines)
    )
    found = check_people(tmp_path / "people.csv")
    assert found.issues == [] and ("no-joints", f"{tmp_path}/1.png#3") in kinds(found.notices)
    assert found.to_json()["left_out"] == {"people without marked joints": 2}


@pytest.mark.parametrize(("by", "marks", "found"), [(0, 3, True), (0.7, 3, True), (0.9, 3, False), (0, 2, False)])
def test_two_annotations_of_one_person_are_a_fault(checked, tmp_path, by, marks, found):
    """Nearer than 2 % of the longer side of 40 pixels on average, of three joints at least that are marked in both."""
    again = [value + by if place % 3 == 0 else value for place, value in enumerate(KEYPOINTS)][: 3 * marks] + [0] * (
        9 - 3 * marks
    )
    issues, _ = checked(annotation(1), annotation(2, keypoints=again))
    assert kinds(issues) == ([("repeated", f"{tmp_path}/1.png#1")] if found else [])
    assert all("annotation 2" in issue.what for issue in issues)


def test_the_same_picture_in_two_splits_is_a_fault_whatever_it_is_called(tmp_path):
    for split, shade in (("train", 0), ("val", 50)):
        write_many(tmp_path / split, 4, 1, shade=shade)
        shutil.move(tmp_path / split / "keypoints.json", tmp_path / f"{split}.json")
    shutil.copy(tmp_path / "train" / "3.png", tmp_path / "val" / "1.png")
    shutil.copy(tmp_path / "train" / "0.png", tmp_path / "train" / "1.png")  # harms nothing
    found = check_people(tmp_path)
    assert kinds(found.issues) == [("leak", f"{tmp_path}/train/3.png")]
    assert f"{tmp_path}/val/1.png" in found.issues[0].what and "train, val" in found.issues[0].what
    (tmp_path / "people.csv").write_text("image,nose_x,nose_y,split\ntrain/2.png,1,2,train\ntrain/2.png,30,40,test\n")
    (leak,) = check_people(tmp_path / "people.csv").issues
    assert (leak.kind, leak.path) == ("leak", f"{tmp_path}/train/2.png")


# left and right


def crowd(folder, count: int, joint: str, backs: float, *, width: float = 10) -> object:
    """So many people of whom a share has the left joint of a pair on the left, as one who turns the back has."""
    rows = []
    for number in range(count):
        ahead = -1 if number < round(backs * count) else 1
        y = number / 1000
        keypoints = [25 + ahead * width / 2, 30 + y, 2, 25 - ahead * width / 2, 31 + y, 2, 25, 10 + number / 10, 2]
        rows.append(annotation(number, number, keypoints=keypoints))
    names = [f"left_{joint}", f"right_{joint}", "head"]
    images = [{"id": number, "file_name": "1.png"} for number in range(count)]
    picture(folder / "1.png")
    file = write_coco(folder / "keypoints.json", rows, images, [{**CATEGORY, "keypoints": names}])
    values = json.loads(file.read_text())
    for number, image in enumerate(values["images"]):
        image["file_name"] = picture(folder / f"{number}.png", number).name
    file.write_text(json.dumps(values))
    return file


@pytest.mark.parametrize(("joint", "count", "backs", "issues", "notices"), [
    ("eye", 20, 0.0, 0, 0),
    ("eye", 20, 0.75, 0, 0),
    ("eye", 20, 0.8, 1, 0),
    ("eye", 19, 1.0, 0, 0),
    ("shoulder", 100, 0.35, 0, 0),
    ("shoulder", 100, 0.64, 0, 0),
    ("shoulder", 100, 0.65, 0, 1),
    ("hip", 100, 1.0, 0, 1),
    ("hip", 99, 1.0, 0, 0),
    ("wrist", 100, 0.64, 0, 0),
    ("wrist", 100, 1.0, 0, 1),
    ("wrist", 99, 1.0, 0, 0),
])  # fmt: skip
def test_sides_that_are_exchanged_are_told_by_eyes_by_shoulders_and_hips_or_by_all_pairs(
    tmp_path, joint, count, backs, issues, notices
):
    found = check_people(crowd(tmp_path, count, joint, backs))
    assert [issue.kind for issue in found.issues] == ["sides"] * issues
    assert [notice.kind for notice in found.notices] == ["sides"] * notices
    assert all(f"{backs:.0%}" in issue.what for issue in (*found.issues, *found.notices))
    assert found.undecided[-1].endswith(f": left_{joint} (0)")  # a single pair has no other to be compared with


def exchanged(file, pairs):
    """The same people, with the names of some pairs exchanged."""
    values = json.loads(file.read_text())
    other = {name: pair[1 - place] for pair in pairs for place, name in enumerate(pair)}
    names = values["categories"][0]["keypoints"]
    values["categories"][0]["keypoints"] = [other.get(name, name) for name in names]
    file.write_text(json.dumps(values))
    return file


HANDS, HIPS = ("left_hand", "right_hand"), ("left_hip", "right_hip")


@pytest.mark.parametrize("turn", [0, 1, 2, 3])
def test_a_pair_that_is_exchanged_alone_is_noted_whichever_way_people_are_turned(tmp_path, turn):
    file = exchanged(write_people(tmp_path, 15, people=2, size=(120, 60)), [HANDS])
    values = json.loads(file.read_text())
    for row in values["annotations"]:
        joints = np.array(row["keypoints"]).reshape(-1, 3)
        for _ in range(turn):
            joints[:, :2] = np.column_stack([-joints[:, 1], joints[:, 0]])
        row["keypoints"] = joints.ravel().tolist()
    file.write_text(json.dumps(values))
    (notice,) = (notice for notice in check_people(file).notices if notice.kind == "sides")
    assert "left_hand and right_hand are the other way round" in notice.what and "100% of 30 people" in notice.what


def test_what_too_few_people_tell_is_said_and_not_judged(tmp_path):
    found = check_people(exchanged(write_people(tmp_path, 29), [HANDS]))
    assert [notice for notice in found.notices if notice.kind == "sides"] == []
    everywhere, single = found.undecided
    assert everywhere.endswith("there are 0 and 29")
    assert single.endswith("left_shoulder (29), left_hip (29), left_hand (29)")
    assert found.to_json()["untold"] == found.undecided


def test_joints_of_no_side_have_no_sides_to_exchange(tmp_path):
    file = write_people(tmp_path, 3)
    values = json.loads(file.read_text())
    values["categories"][0]["keypoints"] = list("abcdefg")
    file.write_text(json.dumps(values))
    (line,) = check_people(file).undecided
    assert "no joint is on one side of the body, by its name" in line and "task.skeleton.pairs" in line
    pairs = (("b", "c"), ("d", "e"), ("g", "f"))
    own = Skeleton(joints=tuple("abcdefg"), pairs=pairs)
    assert check_people(file, own).undecided[1].endswith("b (3), d (3), g (3)")
    with pytest.raises(DataError, match="the data has the joints a, b"):
        check_people(file, Skeleton(joints=("a",)))
