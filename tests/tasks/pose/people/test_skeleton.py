"""What follows from the names of joints, and which skeletons are refused."""

import pytest

from vitrail.errors import ConfigError
from vitrail.tasks.pose.people.skeleton import MOST_JOINTS, Skeleton

COCO = (
    "nose", "left_eye", "right_eye", "left_ear", "right_ear", "left_shoulder", "right_shoulder", "left_elbow", "right_elbow",
    "left_wrist", "right_wrist", "left_hip", "right_hip", "left_knee", "right_knee", "left_ankle", "right_ankle",
)  # fmt: skip


def test_cocos_joints_have_its_pairs_and_sigmas():
    """As in pycocotools' `COCOeval` and in mmpose's description of the data set."""
    skeleton = Skeleton.of(COCO).complete
    assert skeleton.sigmas == (
        0.026, 0.025, 0.025, 0.035, 0.035, 0.079, 0.079, 0.072, 0.072, 0.062, 0.062, 0.107, 0.107, 0.087, 0.087, 0.089, 0.089,
    )  # fmt: skip
    assert skeleton.order_mirrored == [0, 2, 1, 4, 3, 6, 5, 8, 7, 10, 9, 12, 11, 14, 13, 16, 15]
    assert skeleton.upper == COCO[:11] and ("left_eye", "right_eye") in skeleton.pairs


@pytest.mark.parametrize("left, right", [
    ("left_eye", "right_eye"), ("eye_left", "eye_right"), ("leftEye", "rightEye"), ("LeftEye", "RightEye"),
    ("LEFT EYE", "RIGHT EYE"),
    ("l_eye", "r_eye"), ("eye_l", "eye_r"), ("L_Eye", "R_Eye"), ("EYE_L", "EYE_R"), ("LEye", "REye"), ("lEye", "rEye"),
    ("eyeLeft", "eyeRight"), ("lefteye", "righteye"), ("LEFTEYE", "RIGHTEYE"), ("left-eye", "right-eye"), ("eye.L", "eye.R"),
])  # fmt: skip
def test_other_spellings_mean_the_same(left, right):
    for names in (("nose", left, right), (right, "nose", left)):
        skeleton = Skeleton.of(names).complete
        assert skeleton.pairs == ((left, right),)
        assert skeleton.sigmas == tuple(0.026 if name == "nose" else 0.025 for name in names) and skeleton.upper == names


def test_joints_that_are_called_left_or_right_and_are_in_no_pair_are_known():
    names = ["left_eye", "right_eye", "left_paw", "rightPaw", "LeftTail", "tail_l", "Right"]
    skeleton = Skeleton.of(names)
    assert skeleton.unpaired == skeleton.complete.unpaired == ["left_paw", "rightPaw", "LeftTail", "Right"]
    given = Skeleton(joints=tuple(names), pairs=(("left_paw", "rightPaw"), ("left_eye", "right_eye"), ("LeftTail", "Right")))
    assert given.unpaired == []


def test_limbs_are_named_and_numbered():
    skeleton = Skeleton.of(["neck", "hip", "knee"], [(0, 1), (1, 2)])
    assert skeleton.limbs == (("neck", "hip"), ("hip", "knee")) and skeleton.limb_indices == [(0, 1), (1, 2)]
    assert skeleton.index("knee", "neck") == [2, 0] and skeleton.index("knee", "nose") is None


TWO = {"joints": ("a", "b")}


@pytest.mark.parametrize(("values", "message"), [
    ({}, "joints is missing"),
    ({"joints": ()}, "joints"),
    ({"joints": ("a", "")}, "joints"),
    ({"joints": ("a", "a")}, "two joints 'a'"),
    ({"joints": ("a", 5)}, "joints"),
    ({"joints": "ab"}, "joints"),
    ({"joints": 5}, "joints"),
    ({"joints": None}, "joints"),
    ({"joints": True}, "true or false"),
    ({"joints": {"a": 1}}, "joints"),
    ({"joints": ("\ud800",)}, "joints"),
    ({"joints": tuple(map(str, range(MOST_JOINTS + 1)))}, "joints"),
    ({**TWO, "limbs": (("a", "c"),)}, "limbs contains 'c'"),
    ({**TWO, "limbs": (("a", "b", "a"),)}, "limbs"),
    ({**TWO, "limbs": (("a",),)}, "limbs"),
    ({**TWO, "limbs": ((0, 1),)}, "limbs"),
    ({**TWO, "limbs": 3}, "limbs"),
    ({**TWO, "pairs": (("a", "c"),)}, "pairs contains 'c'"),
    ({**TWO, "pairs": (("a", "a"),)}, "in two pairs"),
    ({**TWO, "pairs": (("a", "b"), ("b", "a"))}, "in two pairs"),
    ({**TWO, "upper": ("c",)}, "upper contains 'c'"),
    ({**TWO, "sigmas": (0.1,)}, "1 sigmas for 2 joints"),
    ({**TWO, "sigmas": (0.1, 0.0)}, "sigmas"),
    ({**TWO, "sigmas": (0.1, float("nan"))}, "sigmas"),
    ({**TWO, "sigmas": (0.1, float("inf"))}, "sigmas"),
    ({**TWO, "sigma": (0.1, 0.1)}, "did you mean 'sigmas'"),
])  # fmt: skip
def test_what_is_no_skeleton_is_refused(values, message):
    with pytest.raises(ConfigError, match=message):
        Skeleton.read(values, where="skeleton")


@pytest.mark.parametrize(("other", "told"), [
    (("nose", "left_eye", "tail", "hoof"), "new: tail, hoof; missing: right_eye"),
    (("l eye", "Nose"), "missing: right_eye"),
    (("right_eye", "NOSE", "leftEye"), "in another order"),
    (("nose", "left_eye", "right_eye", *"abcdefghi"), "new: a, b, c, d, e, f, g, h and others"),
])  # fmt: skip
def test_how_joints_differ_is_told_however_they_are_spelt(other, told):
    assert Skeleton.of(("nose", "left_eye", "right_eye")).difference(Skeleton.of(other)) == told
