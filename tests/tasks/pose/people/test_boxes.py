"""Boxes of a detector are taken for the people whom they overlap."""

import json

import numpy as np
import pytest

from data.people import KEYPOINTS, annotation, picture, write_coco
from vitrail.errors import DataError
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
    assert len(notes) == 1 and "overlaps that of 1 of 2 people by half: they keep their own" in notes[0]


@pytest.mark.parametrize(("width", "taken"), [(20, True), (21, False)])
def test_half_is_the_least_overlap(boxes_of, width, taken):
    found, notes = boxes_of([annotation(1, bbox=[0, 0, 10, 20])], [detection([0, 0, width, 20])])
    assert (found[1] == (0, 0, width, 20)) is taken and bool(notes) is not taken


def test_pictures_are_told_by_name_too_and_other_categories_are_left_out(boxes_of):
    rows = [annotation(1), annotation(2, 2)]
    named = {"image": "1.png", "bbox": [5, 6, 31, 40]}
    found, notes = boxes_of(rows, [named, detection([5, 6, 30, 41], image=2), detection([5, 6, 30, 40], category_id=7)])
    assert found == {1: (5, 6, 31, 40), 2: (5, 6, 30, 41)} and len(notes) == 1 and "1 of category_id 7" in notes[0]


def test_pictures_of_a_table_have_no_numbers_but_their_names(tmp_path):
    x, y = KEYPOINTS[:2]
    picture(tmp_path / "7.png")
    (tmp_path / "people.csv").write_text(f"image,left,top,width,height,nose_x,nose_y\n7.png,0,0,40,40,{x},{y}\n")
    (tmp_path / "found.json").write_text(json.dumps([detection([0, 0, 40, 40], image=0), detection([1, 1, 40, 40], image=7)]))
    (person,) = open_people(tmp_path / "people.csv", boxes=str(tmp_path / "found.json"), shares={}).split("all")
    assert person.target.box == (1, 1, 40, 40)


def test_boxes_of_other_pictures_or_of_no_file_are_refused(boxes_of, tmp_path):
    with pytest.raises(DataError, match="none of the boxes is in any of the images"):
        boxes_of([annotation(1)], [detection([1, 2, 3, 4], image=9)])
    with pytest.raises(DataError):
        open_people(tmp_path / "keypoints.json", boxes=str(tmp_path / "nowhere.json"))
