"""Scores of found joints: by hand, and as COCO's own library has them."""

import contextlib
import io
import math
import sys

import numpy as np
import pytest
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from vitrail.data.images.box_preparation import Box
from vitrail.errors import ConfigError
from vitrail.tasks.metrics import METRICS, main_metric
from vitrail.tasks.pose.metrics import (
    SCORES,
    Found,
    average_precision,
    coco_results,
    correct_joints,
    correct_shares,
    distances,
    joint_similarity,
    lengths,
    marked_joints,
    oks,
    pck,
    person_score,
    usual_length,
)
from vitrail.tasks.pose.people.people import Person, Pose
from vitrail.tasks.pose.people.skeleton import Skeleton

BODY = ("eye", "ear", "shoulder", "elbow", "wrist", "hip", "knee", "ankle")
COCO_JOINTS = Skeleton.of(["nose", *(f"{side}_{joint}" for joint in BODY for side in ("left", "right"))])
LIMBS = ("ankle", "knee", "hip", "wrist", "elbow", "shoulder")
FOURTEEN = Skeleton.of([*(f"{side} {joint}" for joint in LIMBS for side in ("Right", "Left")), "Neck", "Head top"]).changed(
    sigmas=tuple(0.02 + 0.01 * i for i in range(14))
)
FOUR = Skeleton(joints=("l_shoulder", "RightHip", "neck", "head_top"), sigmas=(0.05, 0.1, 0.02, 0.03))


def person(joints, area: float = 100.0, box=(0, 0, 40, 60), image: int = 0, number: int = 1) -> Person:
    return Person(f"{image}.png#{number}", None, Pose(Box(*box), tuple(map(tuple, joints)), area, image, number))


def crowd_of(skeleton: Skeleton, seed: int, count: int = 60) -> list[Person]:
    """People of all sizes, several in a picture, with joints that are not marked."""
    random = np.random.default_rng(seed)
    found = []
    for number in range(count):
        size = random.choice([12.0, 50.0, 90.0, 200.0])
        corner = random.uniform(0, 300, 2)
        joints = np.column_stack(
            [corner + random.uniform(0, size, (len(skeleton.joints), 2)), random.integers(0, 3, len(skeleton.joints))]
        )
        joints[0, 2] = 2
        joints[joints[:, 2] == 0] = 0
        found.append(person(joints, size**2 * random.uniform(0.4, 1), (*corner, size, size), number // 4, number + 7))
    return found


def guesses(people: list[Person], skeleton: Skeleton, seed: int) -> list[dict]:
    """Results of some people with errors of all sizes, of others several, of some none, and of nobody at all."""
    random = np.random.default_rng(seed)
    results = []
    for one in people:
        for _ in range(random.integers(0, 3)):
            joints = one.joints[:, :2] + random.normal(0, random.choice([0.5, 3, 10]), (len(skeleton.joints), 2))
            found = Found(joints[None], random.uniform(0, 1, (1, len(joints))))
            results += coco_results([one.target.image], found, random.choice([0.5, 1.0]))
    nobody = Found(random.uniform(0, 300, (5, len(skeleton.joints), 2)), random.uniform(0, 1, (5, len(skeleton.joints))))
    return results + coco_results([0, 1, 2, 3, 3], nobody)


def annotations_of(people: list[Person], skeleton: Skeleton) -> dict:
    return {
        "images": [{"id": number} for number in sorted({one.target.image for one in people})],
        "annotations": [
            {
                "id": one.target.number, "image_id": one.target.image, "category_id": 1, "iscrowd": 0,
                "keypoints": one.joints.ravel().tolist(), "num_keypoints": int((one.joints[:, 2] > 0).sum()),
                "bbox": list(one.target.box), "area": one.target.area,
            }
            for one in people
        ],
        "categories": [{"id": 1, "name": "person", "keypoints": list(skeleton.joints)}],
    }  # fmt: skip


def by_pycocotools(results: list[dict], truth: dict, sigmas) -> tuple[dict[str, float], dict]:
    with contextlib.redirect_stdout(io.StringIO()):
        known = COCO()
        known.dataset = truth
        known.createIndex()
        judge = COCOeval(known, known.loadRes([dict(result) for result in results]), "keypoints")
        judge.params.kpt_oks_sigmas = np.array(sigmas)
        judge.evaluate()
        judge.accumulate()
        judge.summarize()
    return {name: score for name, score in zip(SCORES, judge.stats, strict=True) if score >= 0}, judge.ious


@pytest.mark.parametrize("skeleton", [COCO_JOINTS, FOURTEEN], ids=["17", "14"])
@pytest.mark.parametrize("seed", range(4))
def test_average_precision_is_that_of_cocos_own_library(skeleton, seed, capfd):
    people = crowd_of(skeleton, seed)
    results = guesses(people, skeleton, seed)
    expected, _ = by_pycocotools(results, annotations_of(people, skeleton), skeleton.complete.sigmas)
    found = average_precision(results, people, skeleton)
    assert list(found) == list(SCORES) and 0.05 < found["ap"] < 0.95
    assert found == pytest.approx(expected, abs=1e-9)
    assert capfd.readouterr() == ("", "")


def test_nobody_found_and_nobody_of_a_size():
    people = [person([(10, 10, 2)] * 4, area=10_000)]
    assert average_precision([], people, FOUR) == dict.fromkeys(
        ("ap", "ap50", "ap75", "ap_large", "ar", "ar50", "ar75", "ar_large"), 0
    )
    elsewhere = coco_results([77], Found(np.zeros((1, 4, 2)), np.ones((1, 4))))
    both = coco_results([0], Found(np.full((1, 4, 2), 10.0), np.full((1, 4), 0.5)))
    assert average_precision(both, people, FOUR)["ap"] == pytest.approx(1)
    assert average_precision(both + elsewhere, people, FOUR)["ap"] == pytest.approx(0.5)  # the surer one is a mistake


def test_average_precision_without_the_library_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "faster_coco_eval", None)
    with pytest.raises(ConfigError) as error:
        average_precision([], [], FOUR)
    assert "vitrail[pose]" in error.value.hint


def test_similarity_is_cocos_and_only_of_marked_joints():
    people = crowd_of(FOURTEEN, 3, 12)
    places = np.random.default_rng(0).normal(0, 4, (12, 14, 2)) + marked_joints(people, FOURTEEN)[0]
    found = Found(places, np.ones((12, 14)))
    by_joint = joint_similarity(found, people, FOURTEEN)
    for i, one in enumerate(people):
        values = []
        for j, (x, y, visibility) in enumerate(one.target.joints):
            if visibility:
                squared = (places[i, j, 0] - x) ** 2 + (places[i, j, 1] - y) ** 2
                values.append(math.exp(-squared / (2 * one.target.area * (2 * FOURTEEN.sigmas[j]) ** 2)))
                assert by_joint[i, j] == pytest.approx(values[-1], rel=1e-12)
                assert distances(found, people, FOURTEEN)[i, j] == pytest.approx(math.sqrt(squared))
            else:
                assert math.isnan(by_joint[i, j])
        assert oks(found, people, FOURTEEN)[i] == pytest.approx(sum(values) / len(values), rel=1e-12)


def test_correct_joints_by_hand():
    """The torso is 50 pixels long, so that 10 are near enough, the head 10, of which 5 are, and the box 60: 12."""
    people = [
        person([(0, 0, 2), (30, 40, 1), (0, 10, 2), (0, 20, 2)]),
        person([(0, 0, 2), (0, 0, 0), (0, 10, 2), (0, 10, 2)]),  # no hip; a head of no length
        person([(5, 5, 2), (5, 5, 2), (0, 10, 0), (0, 20, 2)]),  # a torso of no length
    ]
    shifts = np.array([[(6, 8), (10.1, 0), (0, 5), (0, 0)], [(0, 11)] * 4, [(0, 13)] * 4])
    found = Found(marked_joints(people, FOUR)[0] + shifts, np.ones((3, 4)))
    assert lengths(people, FOUR, "torso") == pytest.approx([50, np.nan, np.nan], nan_ok=True)
    torso, box, head = pck(found, people, FOUR), pck(found, people, FOUR, by="box"), pck(found, people, FOUR, 0.5, "head")
    assert (torso.hits.tolist(), torso.counts.tolist(), torso.left_out) == ([1, 0, 1, 1], [1, 1, 1, 1], 2)
    assert (box.hits.tolist(), box.counts.tolist(), box.left_out) == ([2, 1, 2, 2], [3, 2, 2, 3], 0)
    assert (head.hits.tolist(), head.counts.tolist(), head.left_out) == ([0, 0, 1, 1], [1, 1, 1, 1], 2)
    assert torso.total == 0.75 and box.total == 0.7 and box.per_joint == pytest.approx([2 / 3, 1 / 2, 1, 2 / 3])
    correct = correct_joints(found, people, FOUR, by="box")
    assert correct == pytest.approx(np.array([[1, 1, 1, 1], [1, np.nan, 1, 1], [0, 0, np.nan, 0]]), nan_ok=True)


@pytest.mark.parametrize(
    ("joints", "usual", "torso", "head"),
    [
        (COCO_JOINTS.joints, "torso", True, False),
        (FOURTEEN.joints, "torso", True, True),
        (("LShoulder", "RHip", "upper_neck", "head"), "torso", True, True),
        (("thumb", "wrist"), "box", False, False),
        (("left_shoulder", "left_hip", "neck"), "box", False, False),
    ],
)
def test_a_length_is_known_by_the_names_of_joints_or_refused(joints, usual, torso, head):
    skeleton = Skeleton.of(joints)
    people = [person([(i, 0, 2) for i in range(len(joints))])]
    assert usual_length(people, skeleton) == usual and lengths(people, skeleton, "box").tolist() == [60]
    for by, known in (("torso", torso), ("head", head)):
        if known:
            assert lengths(people, skeleton, by)[0] > 0
        else:
            with pytest.raises(ConfigError, match=f"length of a {by}"):
                lengths(people, skeleton, by)


def test_where_few_torsos_are_marked_joints_are_measured_by_the_box_so_that_most_people_count():
    """One person of three has a torso and is found; the others are not."""
    skeleton = Skeleton.of(("nose", "left_shoulder", "right_hip"))
    whole, upper = [(10, 10, 2), (0, 20, 2), (20, 60, 2)], [(10, 10, 2), (0, 20, 2), (0, 0, 0)]
    people = [person(whole), person(upper), person(upper)]
    found = Found(np.stack([one.joints[:, :2] for one in people]), np.ones((3, 3)))
    found.joints[1:] += 500
    assert usual_length(people, skeleton) == "box"
    assert correct_shares(found, people, skeleton)["pck"] == pytest.approx(3 / 7)
    assert usual_length(people[:2], skeleton) == "torso" and usual_length([], skeleton) == "box"


def test_a_person_is_as_sure_as_the_sure_joints_times_the_box():
    scores = np.array([[0.9, 0.5, 0.2, 0.1], [0.2, 0.1, 0.06, 0.0]])
    assert person_score(scores) == pytest.approx([0.7, 0.09])
    assert person_score(scores, np.array([0.5, 1])) == pytest.approx([0.35, 0.09])


def test_people_of_whom_no_joint_is_sure_are_ranked_by_all_their_joints():
    """With 0 for all of them average precision would depend on the order of the people alone."""
    scores = np.array([[0.05, 0.01], [0.19, 0.15], [0.2, 0.2]])
    assert person_score(scores).argsort().tolist() == [0, 1, 2] and len(set(person_score(scores).tolist())) == 3


def test_every_score_has_a_title_and_correct_joints_decide():
    assert {*SCORES, "pck", "oks"} <= METRICS.keys()
    assert main_metric(dict.fromkeys((*SCORES, "oks", "pck", "loss"), 0.5)).name == "pck"


def test_people_in_a_crowd_are_no_mistakes_where_the_crowd_is_given():
    people = crowd_of(COCO_JOINTS, 0)
    results, truth = guesses(people, COCO_JOINTS, 0), annotations_of(people, COCO_JOINTS)
    nobody = {"id": 1000, "image_id": 1, "category_id": 1, "keypoints": [0] * 51, "num_keypoints": 0, "area": 9e4}
    ignored = [{**nobody, "iscrowd": crowd, "bbox": [100, 100, 150, 150]} for crowd in (0, 1)]
    truth["annotations"] += [{**one, "id": 1000 + number} for number, one in enumerate(ignored)]
    expected, _ = by_pycocotools(results, truth, COCO_JOINTS.complete.sigmas)
    found = average_precision(results, people, COCO_JOINTS, ignored=ignored)
    assert found == pytest.approx(expected, abs=1e-9) and found["ap"] > average_precision(results, people, COCO_JOINTS)["ap"]


def test_similarity_is_what_cocos_own_library_has():
    people = [one for one in crowd_of(COCO_JOINTS, 2) if one.target.number % 4 == 3]  # one in a picture
    found = Found(marked_joints(people, COCO_JOINTS)[0] + 2.5, np.ones((len(people), 17)))
    results = coco_results([one.target.image for one in people], found)
    _, ious = by_pycocotools(results, annotations_of(people, COCO_JOINTS), COCO_JOINTS.complete.sigmas)
    expected = [ious[one.target.image, 1].item() for one in people]
    assert oks(found, people, COCO_JOINTS) == pytest.approx(expected, abs=1e-12)


def test_where_no_torso_and_no_head_is_marked_joints_are_measured_by_the_box_alone():
    upper = [(20, 10, 2), (30, 10, 2), (0, 0, 0), (25, 5, 2)]
    skeleton = Skeleton.of(("left_shoulder", "right_shoulder", "right_hip", "head"))
    people = [person(upper), person(upper)]
    found = Found(np.stack([one.joints[:, :2] for one in people]), np.ones((2, 4)))
    found.joints[1, 0] += 50
    assert usual_length(people, skeleton) == "box"
    assert correct_shares(found, people, skeleton) == {"pck": pytest.approx(5 / 6), "pck_box": pytest.approx(5 / 6)}
    people[0] = person([*upper[:2], (25, 30, 2), upper[3]])
    assert usual_length(people, skeleton) == "torso" and correct_shares(found, people, skeleton)["pck"] != pytest.approx(5 / 6)
