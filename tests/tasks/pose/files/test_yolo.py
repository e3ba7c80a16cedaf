"""Labels of YOLO's pose models are read."""

from unicodedata import normalize

import pytest

from data.people import picture
from vitrail.data.images.box_preparation import Box
from vitrail.errors import DataError
from vitrail.tasks.pose.files.sources import open_people, read_people, tells_people
from vitrail.tasks.pose.people.skeleton import COCO

ABOUT = "path: .\ntrain: images/train\nval: images/val\nkpt_shape: [3, 3]\nflip_idx: [0, 2, 1]\nnames:\n  0: person\n"
LINE = "0 0.5 0.5 0.4 0.8 0.1 0.2 2 0.5 0.5 1 0 0 0\n"

MANY = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9))
"""More than 40 million values by aliases."""


@pytest.fixture
def folder(tmp_path):
    """Two splits with a picture each, of 50×60 pixels, one with two people."""
    for number, (split, text) in enumerate({"train": LINE + LINE, "val": LINE}.items()):
        picture(tmp_path / "images" / split / f"{number}.png", number)
        (tmp_path / "labels" / split).mkdir(parents=True)
        (tmp_path / "labels" / split / f"{number}.txt").write_text(text)
    (tmp_path / "data.yaml").write_text(ABOUT)
    return tmp_path


def test_people_of_all_splits_are_read_in_pixels(folder):
    for source in (folder, folder / "data.yaml"):
        data = open_people(source)
        sizes = {split: len(people) for split, people in data.splits.items()}
        assert tells_people(folder) and sizes == {"train": 2, "val": 1, "test": 0}
    (person,) = data.splits["val"]
    assert person.target.box == pytest.approx(Box(15, 6, 20, 48)) and person.target.area == pytest.approx(960)
    assert person.target.joints == ((5, 12, 2), (25, 30, 1), (0, 0, 0))
    assert data.skeleton.joints == ("joint_1", "joint_2", "joint_3") and data.skeleton.pairs == (("joint_2", "joint_3"),)


@pytest.mark.parametrize(("about", "joints"), [
    (ABOUT + "kpt_names:\n  0: [nose, left_eye, right_eye]\n", ("nose", "left_eye", "right_eye")),
    (ABOUT.replace("path: .\n", "").replace("images/val", "../images/val"), ("joint_1", "joint_2", "joint_3")),
    (ABOUT.replace("images/train", "[images/train]"), ("joint_1", "joint_2", "joint_3")),
    (ABOUT.replace("images/train", "train.txt"), ("joint_1", "joint_2", "joint_3")),
])  # fmt: skip
def test_joints_may_have_names_and_splits_may_be_lists_and_lie_elsewhere(folder, about, joints):
    (folder / "data.yaml").write_text(about)
    (folder / "train.txt").write_text("./images/train/0.png\n")
    data = open_people(folder)
    assert data.skeleton.joints == joints and len(data.splits["train"]) == 2


@pytest.mark.parametrize(("there", "listed"), [
    (normalize("NFD", "é"), normalize("NFD", "é")),
    (normalize("NFD", "é"), "é"),
    ("é", normalize("NFD", "é")),
    ("two  blanks", "two  blanks"),
    ("a b", "a%20b"),
])  # fmt: skip
def test_a_list_names_images_as_the_disk_does_or_in_letters_that_look_alike(folder, there, listed):
    (folder / "data.yaml").write_text(ABOUT.replace("images/train", "train.txt"))
    (folder / "train.txt").write_text(f"./images/train/{listed}.png\r\n\r\n", encoding="utf-8")
    for kind, suffix in (("images", "png"), ("labels", "txt")):
        (folder / kind / "train" / f"0.{suffix}").rename(folder / kind / "train" / f"{there}.{suffix}")
    found = read_people(folder)
    assert not found.issues and len(found.splits["train"]) == 2 and found.notes == []


def test_hidden_files_are_passed_over_and_what_is_left_out_of_a_folder_is_counted(folder):
    (folder / "images/train/._0.png").write_bytes(b"of a system")
    (folder / "extra.mp4").write_bytes(b"")
    picture(folder / "images" / "other.png", 9)
    found = read_people(folder)
    assert not found.issues and len(found.pictures["train"]) == 1
    assert found.notes == ["left out: 1 .mp4, 1 hidden or a system's own, 1 image that no table names"]


def test_cocos_joints_are_known_by_what_is_exchanged(folder):
    (folder / "data.yaml").write_text(ABOUT.replace("[3, 3]", "[17, 2]").replace("[0, 2, 1]", str(COCO.order_mirrored)))
    for label in folder.rglob("*.txt"):
        label.write_text("0 0.5 0.5 0.4 0.8 0.1 0.2 0.5 0.5 -1 -1" + " 0 0" * 14)
    (person,) = open_people(folder).splits["val"]
    assert open_people(folder).skeleton.joints == COCO.joints and [joint[2] for joint in person.target.joints[:5]] == [
        2,
        2,
        0,
        0,
        0,
    ]


def test_what_is_wrong_with_lines_is_told_and_people_without_joints_are_counted(folder):
    (folder / "labels/train/0.txt").write_text(LINE + "0 0.5 0.5 0.4 0.8\n0 0.5 0.5\n0 a b c d\n\n")
    (folder / "labels/val/1.txt").unlink()
    found = read_people(folder)
    assert [issue.path.rpartition("/")[2] for issue in found.issues] == ["0.txt:3", "0.txt:4"]
    assert found.left_out == {"people without marked joints": 1} and len(found.splits["train"]) == 1
    assert found.notes == ["images without a text of labels, in which nobody is: 1"]


@pytest.mark.parametrize(("about", "message"), [
    ("kpt_shape: [0, 3]\ntrain: images", "kpt_shape must be the number"),
    ("kpt_shape: 3\ntrain: images", "kpt_shape must be the number"),
    ("kpt_shape: [3, 3]", "names no folder with images"),
    ("kpt_shape: [3, 3]\ntrain: elsewhere", "'elsewhere', which does not exist"),
    ("kpt_shape: [3, 3\ntrain: images", "is no YAML"),
    (ABOUT + "kpt_names: [a, a, b]", "the joints of data.yaml are none"),
    (f"{MANY}kpt_shape: [3, 3]\ntrain: *a8", "more than 100,000 values"),
    ("kpt_shape: [3, 3]\ntrain: {a: 1}", "train is {'a': 1}, expected text"),
    ("kpt_shape: [3, 3]\nval: [images, [1]]", r"val is \['images', \[1\]\], expected text"),
    ("kpt_shape: [3, 3]\ntrain: images\npath: [a]", r"path is \['a'\], expected text"),
    (f"kpt_shape: [3, 3]\ntrain: {'x' * 999}", r"^data.yaml names 'x.{1,99}x', which"),
])  # fmt: skip
def test_a_description_that_cannot_be_read_is_refused(folder, about, message):
    (folder / "data.yaml").write_text(about)
    with pytest.raises(DataError, match=message):
        read_people(folder)
