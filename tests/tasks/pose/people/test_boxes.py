"""Boxes of a detector are taken for the people whom they overlap."""

import json

import numpy as np
import pytest

from data.people import annotation, picture, write_coco
from vitrail.tasks.pose.files.sources import open_people
from vitrail.tasks.pose.people.boxes import overlaps


@pytest.fixture
def boxes_of(tmp_path):
    """``boxes_of(rows, detections)``: the boxes of people, by the number of the annotation, and the notes."""

    def boxes_of(rows, detections, name="keypoints.json"):
        images = [{"id": number, "file_name": picture(tmp_path / f"{number}.png", number).name} for number in (1, 2)]
        data = write_coco(tmp_path / name, rows, images)
        (tmp_path / "found.json").write_text(json.dumps(detections))
        found = open_people(data, boxes=str(tmp_path / "found.json"), shares={})
        return {person.target.number: tuple(person.target.box) for person in found.split("all")}, found.notes

    return boxes_of


def detection(bbox, image=1, **fields):
    return {"image_id": image, "category_id": 1, "bbox": bbox, "score": 0.5, **fields}


def test_overlaps_are_intersection_over_union():
    own, others = np.array([[0, 0, 10, 10], [5, 5, 10, 10]]), np.array([[0, 0, 10, 10], [0, 0, 10, 20], [10, 0, 5, 5]])
    assert overlaps(own, others).tolist() == pytest.approx(np.array([[1, 0.5, 0], [25 / 175, 50 / 250, 0]]))


def test_each_takes_the_box_in_the_picture_that_overlaps_the_own_most_and_no_box_is_two_peoples(boxes_of):
    rows = [annotation(1, bbox=[0, 0, 20, 20]), annotation(2, bbox=[4, 0, 20, 20]), annotation(3, 2, bbox=[0, 0, 20, 20])]
    found, notes = boxes_of(rows, [detection([3, 0, 20, 20]), detection([1, 0, 20, 20]), detection([0, 0, 21, 20], image=2)])
    assert found == {1: (1, 0, 20, 20), 2: (3, 0, 20, 20), 3: (0, 0, 21, 20)} and notes == ()
    found, notes = boxes_of(rows[:2], [detection([3, 0, 20, 20])])
    assert found == {1: (0, 0, 20, 20), 2: (3, 0, 20, 20)}
    assert len(notes) == 1 and "overlaps the annotated box of 1 of 2 people by half: they keep their own" in notes[0]
