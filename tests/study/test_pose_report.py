"""The report on pose estimation: numbers of each joint, cards, and pictures that can be seen."""

import re
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
from PIL import Image

from vitrail.data.images.box_preparation import Box
from vitrail.study.page.report_part import Part, Reported
from vitrail.tasks.pose.metrics import Found
from vitrail.tasks.pose.people.people import PeopleData, Person, Pose
from vitrail.tasks.pose.people.skeleton import Skeleton
from vitrail.tasks.pose.report import report_part

BODY = Skeleton.of(["left_shoulder", "right_hip", "<b>nose</b>", "left_ear"], [(0, 1), (2, 0)])
PLACES = np.array([(10, 10), (40, 50), (20, 5), (60, 60)], float)  # a torso of 50 pixels: 10 are near enough


@dataclass
class Made:
    """Metrics of joints that nobody looked for."""

    people: list[Person]
    skeleton: Skeleton
    found: Found
    made: dict

    def scores(self) -> dict:
        return self.made


SCORES = {"pck": 0.625, "oks": 0.5, "ap": 0.25, "ap50": 0.75, "ar": 0.3, "loss": 1.5, "people": 3}


def reported(folder, skeleton=BODY, scores=None) -> Part:
    """Three people: found exactly, found 8 pixels to the right, and not found at all; the ear is never marked."""
    folder.mkdir(exist_ok=True)
    random = np.random.default_rng(0)
    joints = tuple((*place, 2 * (i < 3)) for i, place in enumerate(PLACES.tolist()))
    people = [
        Person(
            f"{name}.png#1", random.integers(0, 255, (70, 70, 3), dtype=np.uint8), Pose(Box(5, 0, 50, 60), joints, 2000.0, 0, 1)
        )
        for name in ("=exact", "near", "lost")
    ]
    found = Found(PLACES + np.array([0.0, 8.0, 30.0])[:, None, None] * [1, 0], np.full((3, 4), 0.5))
    data = PeopleData("made up", skeleton, {"train": 4 * people, "val": [], "test": people})
    metrics = Made(people, skeleton, found, SCORES if scores is None else scores)
    return report_part(
        Reported({}, [{"val_pck": 0.5}], SimpleNamespace(name="pose"), data, "test", people, metrics, None, folder)
    )


def text(part: Part) -> str:
    return re.sub("<[^>]*>", "|", "".join(part.sections))


def test_the_cards_are_the_main_scores_and_a_table_has_the_others(tmp_path):
    part = reported(tmp_path)
    assert [number for number, _ in part.cards] == ["62.50 %", "0.5000", "25.00 %", "30.00 %"]
    assert part.cards[0][1] == "correct joints (PCK@0.2) on 3 test people"
    assert "average precision at OKS 0.5||75.00 %" in text(part)
    assert "medium people cover" in text(part)
    assert "medium" not in text(reported(tmp_path, scores={"pck": 0.5, "pck_box": 0.4, "loss": 1}))
    assert "Other scores" not in text(reported(tmp_path, scores={"pck": 0.5, "loss": 1}))
    assert part.caption == "PCK is measured on validation people alone."
    assert "train||12" in re.sub("<[^>]*>", "|", part.data)


def test_every_joint_has_its_share_its_mean_distance_and_its_similarity(tmp_path):
    part = reported(tmp_path)
    rows = {
        row[0]: row[1:]
        for row in (re.findall(r"<td[^>]*>(.*?)</td>", line) for line in "".join(part.sections).split("<tr"))
        if row
    }
    alike = [np.exp(-(d**2) / (2 * 2000 * (2 * 0.079) ** 2)) for d in (0, 8, 30)]
    assert rows["left_shoulder"][:4] == ["3", "66.7", "12.7", f"{np.mean(alike):.3f}"]
    assert rows["&lt;b&gt;nose&lt;/b&gt;"][:3] == ["3", "66.7", "12.7"]
    assert rows["left_ear"][:4] == ["0", "–", "–", "–"]
    assert rows["all joints"][:3] == ["9", "66.7", "12.7"]


def test_the_pictures_are_the_bars_and_the_worst_people(tmp_path):
    part = reported(tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {"joints.png", "worst.png"}
    for name in ("joints", "worst"):
        with Image.open(tmp_path / f"{name}.png") as picture:
            assert min(picture.size) > 100 and np.asarray(picture.convert("L")).std() > 5
    assert "distance of left shoulder and right hip" in text(part) and "Left out" not in text(part)


def test_the_table_has_every_joint_of_every_person(tmp_path):
    head, *rows = reported(tmp_path).tables["joints.csv"]
    assert head == ("person", "joint", "x", "y", "score", "marked_x", "marked_y") and len(rows) == 12
    assert rows[5] == ("near.png#1", "right_hip", "48.00", "50.00", "0.5000", "40.00", "50.00")
    assert rows[3][-2:] == ("", "")
