"""Joints are connected by their names where a skeleton names no limbs."""

import pytest

from vitrail.tasks.pose.people.limbs import drawn_limbs
from vitrail.tasks.pose.people.skeleton import COCO, Skeleton


def named(skeleton):
    return {frozenset(limb) for limb in drawn_limbs(skeleton)}


def test_cocos_joints_have_cocos_limbs_by_their_names():
    assert named(Skeleton.of(COCO.joints)) == {frozenset(limb) for limb in COCO.limbs}


def test_limbs_that_a_skeleton_names_are_drawn_alone():
    assert drawn_limbs(Skeleton.of(COCO.joints, [(0, 5)])) == (("nose", "left_shoulder"),)


@pytest.mark.parametrize(("joints", "limbs"), [
    (["L_Knee", "R_Knee", "L_Ankle"], [("L_Knee", "L_Ankle")]),
    (["neck", "head top", "leftShoulder"], [("neck", "head top"), ("neck", "leftShoulder")]),
    (["tail_1", "tail_2", "tail_10", "ear_1"], [("tail_1", "tail_2")]),
    (["left_end", "right_end"], [("left_end", "right_end")]),
    (["1", "2", "tail"], []),
])  # fmt: skip
def test_joints_of_any_spelling_are_connected_on_one_side(joints, limbs):
    assert named(Skeleton.of(joints)) == {frozenset(limb) for limb in limbs}
