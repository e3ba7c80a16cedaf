"""Where people come from: files, folders, tables, and what is refused."""

import json
import shutil

import pytest

from data.people import CATEGORY, annotation, picture, write_coco, write_many
from vitrail.errors import DataError
from vitrail.tasks.pose.files.sources import open_people, read_people
from vitrail.tasks.pose.people.skeleton import Skeleton


def counts(data) -> dict[str, int]:
    return {split: len(people) for split, people in data.splits.items()}


def test_a_file_is_split_and_a_folder_has_its_own_splits(tmp_path):
    write_many(tmp_path / "one", 20)
    assert counts(open_people(tmp_path / "one" / "keypoints.json")) == counts(open_people(tmp_path / "one"))
    data = open_people(tmp_path / "one")
    assert counts(data) == {"train": 28, "val": 4, "test": 8} and not data.has_splits and data.assignment is not None
    for shade, split in enumerate(("train", "valid", "test")):
        write_many(tmp_path / "three" / split, 2 + shade, shade=10 * shade)
        shutil.move(tmp_path / "three" / split / "keypoints.json", tmp_path / "three" / f"{split}.json")
    data = open_people(tmp_path / "three")
    assert counts(data) == {"train": 4, "val": 6, "test": 8} and data.has_splits and data.assignment is None
    assert len({person.name for person in data.split("all")}) == 18
    assert not {person.name for person in data.splits["train"]} & {person.name for person in data.splits["val"]}


def test_files_of_other_things_in_the_same_pictures_are_passed_over(tmp_path):
    write_many(tmp_path, 5, name="train.json")
    for other in ("captions", "instances_train"):
        (tmp_path / f"{other}.json").write_text("{}")
    assert len(open_people(tmp_path).split("all")) == 10


def test_a_skeleton_of_the_same_joints_takes_the_place_of_the_datas_own(tmp_path):
    file, joints = write_coco(tmp_path / "keypoints.json", [annotation(1)]), tuple(CATEGORY["keypoints"])
    assert open_people(file).skeleton.sigmas == (0.026, 0.107, 0.107)
    own = open_people(file, skeleton=Skeleton(joints=joints, sigmas=(0.1, 0.2, 0.3))).skeleton
    assert own.sigmas == (0.1, 0.2, 0.3) and own.pairs == (("left_hip", "right_hip"),)
    for others in (joints[::-1], joints[:2]):
        with pytest.raises(DataError, match="the data has the joints nose, left_hip, right_hip, the skeleton"):
            open_people(file, skeleton=Skeleton(joints=others))


def test_numbers_of_pictures_are_unique_where_files_begin_anew_and_coco_s_own_stay_known(tmp_path):
    for shade, split in enumerate(("train", "val", "test")):
        write_many(tmp_path / split, 3, shade=10 * shade, name=f"../{split}.json")
    data = open_people(tmp_path)
    for split, people in data.splits.items():  # what a run is resumed by is as each file has it
        alone = open_people(tmp_path / f"{split}.json").split("all")
        assert [data.identity(one) for one in people] == [(f"{split}/{one.name}", one.target) for one in alone]
    pictures = data.pictures_of("all")
    assert len({one.number for one in pictures}) == len({one.path for one in pictures}) == 9
    for split, people in data.splits.items():
        known = {one.number: one for one in data.pictures_of(split)}
        assert [one.known for one in known.values()] == [0, 1, 2]
        assert all(known[person.target.image].path == person.image for person in people)


def test_pictures_without_people_belong_to_their_file(tmp_path):
    for split in ("train", "val"):
        names = ("empty.png", "a.png", "b.png")
        for name in names:
            picture(tmp_path / split / name)
        images = [{"id": number, "file_name": name} for number, name in enumerate(names)]
        nobody = annotation(3, 0, keypoints=[0] * 9)
        people = [annotation(1, 1), annotation(2, 2), nobody, annotation(4, 1, iscrowd=1)]
        write_coco(tmp_path / f"{split}.json", people, images)
    data = open_people(tmp_path)
    for split in ("train", "val"):
        found = {one.path: one.ignored for one in data.pictures_of(split)}
        empty, crowd, nothing = (found.pop(tmp_path / split / name) for name in names)
        assert not found and nothing == () and [one["iscrowd"] for one in (*empty, *crowd)] == [0, 1]
        assert "keypoints" not in empty[0] and crowd[0]["num_keypoints"] == 3 and crowd[0]["bbox"] == [5, 6, 30, 40]
    gone = data.without({"train/a.png#1"})
    assert [one.path.name for one in gone.pictures_of("train")] == ["b.png", "empty.png"] and len(gone.pictures_of("val")) == 3


def test_a_model_chooses_among_categories_with_different_joints(tmp_path):
    rows = [annotation(1), annotation(2, category_id=2, keypoints=[1, 2, 2])]
    file = write_coco(tmp_path / "keypoints.json", rows, categories=[CATEGORY, {"id": 2, "name": "hand", "keypoints": ["wrist"]}])
    with pytest.raises(DataError, match="different keypoints: 'person', 'hand'"):
        open_people(file)
    assert open_people(file, like=Skeleton.of(["Nose", "L_Hip", "R_Hip"])).skeleton.joints == ("nose", "left_hip", "right_hip")
    assert open_people(file, skeleton=Skeleton.of(["wrist"])).skeleton.joints == ("wrist",)


# what is refused


NAMES = ["missing.png", "../../missing.png", "/nowhere/missing.png", "x" * 5000, "\x00.png", "\ud800.png", "/dev/zero", ".", "/"]


@pytest.mark.parametrize("name", NAMES, ids=lambda name: name[:9].encode("unicode_escape").decode())
def test_a_picture_that_is_not_there_is_an_issue(tmp_path, name):
    """Whatever its name is: nothing but a regular file is opened."""
    file = tmp_path / "keypoints.json"
    values = {"images": [{"id": 1, "file_name": name}], "annotations": [annotation(1)], "categories": [CATEGORY]}
    file.write_text(json.dumps(values))
    (issue,) = read_people(file).issues
    assert (issue.kind, issue.path) == ("missing", str(tmp_path / name))
    with pytest.raises(DataError, match="there is no such image"):
        open_people(file)


def test_faults_are_counted_and_the_first_is_told(tmp_path):
    file = write_coco(tmp_path / "keypoints.json", [annotation(1), annotation(2, image=9), annotation(3, bbox="x")])
    with pytest.raises(DataError, match=r"annotation 2: there is no image 9 \(and 1 more\)") as error:
        open_people(file)
    assert error.value.where == str(file) and "data check" in error.value.hint and "--task pose" in error.value.hint


@pytest.mark.parametrize(("files", "message"), [
    ([], "no file of keypoints in"),
    (["a.json", "b.json"], "it is not clear which split is meant by a.json and b.json"),
    (["train.json", "latest.json"], "it is not clear which split is meant by latest.json, beside train.json"),
    (["train.json", "train2.json"], "would each be the train split"),
    (["train.json", "trainval.json"], "it is not clear which split is meant by trainval.json, beside train.json"),
])  # fmt: skip
def test_folders_whose_splits_are_not_plain_are_refused(tmp_path, files, message):
    for name in files:
        write_coco(tmp_path / name, [annotation(1)])
    with pytest.raises(DataError, match=message):
        open_people(tmp_path)


@pytest.mark.parametrize("source", ["missing.json", "", "notes.txt", "digits", "\x00", "x" * 5000])
def test_what_holds_no_people_is_refused(tmp_path, monkeypatch, source):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(DataError):
        open_people(source)
