"""Values that cannot be meant are told of, and usual ones are not."""

import numpy as np
import pytest

from data.people import annotation, picture, write_coco
from vitrail.data.images.box_preparation import Box
from vitrail.tasks.pose.files.sources import open_people
from vitrail.tasks.pose.files.suspicions import corners_note

SIZE = (200, 100)


def boxes(count, of):
    """Boxes of people all over a picture, as sides or as corners."""
    random = np.random.default_rng(0)
    starts, sides = random.uniform(0, 0.6, (count, 2)) * SIZE, random.uniform(0.2, 0.39, (count, 2)) * SIZE
    found = np.concatenate([starts, {"sides": sides, "corners": starts + sides}[of]], axis=1)
    return [(Box(*row), SIZE) for row in found.tolist()]


def test_corners_taken_for_sides_are_told_of_and_sides_are_not():
    assert "boxes reach beyond their images, and none would if they were corners" in corners_note(boxes(40, "corners"))
    assert corners_note(boxes(40, "sides")) == corners_note(boxes(3, "corners")) == corners_note([]) == ""
    assert corners_note([*boxes(40, "corners"), *boxes(5, "sides")]) == ""  # not all can be corners
    padded = [(Box(-10, -5, 1.1 * SIZE[0], 1.1 * SIZE[1]), SIZE), (Box(5, 5, *SIZE), SIZE)]
    assert corners_note(padded * 10) == ""


def notes_of(tmp_path, rows):
    picture(tmp_path / "1.png", size=SIZE)
    return open_people(write_coco(tmp_path / "keypoints.json", rows, [{"id": 1, "file_name": "1.png"}])).notes


def test_data_whose_boxes_are_corners_has_a_note(tmp_path):
    rows = [annotation(n, bbox=list(box)) for n, (box, _) in enumerate(boxes(10, "corners"))]
    assert any("of 10 boxes reach beyond their images" in note for note in notes_of(tmp_path, rows))


@pytest.mark.parametrize(("place", "noted"), [((0, 0, 2), True), ((-1, -1, 1), True), ((0, 0, 0), False), ((0, 3, 2), False)])
def test_joints_marked_in_the_corner_are_told_of_with_their_names(tmp_path, place, noted):
    rows = [annotation(1), annotation(2, keypoints=[20, 10, 2, 30, 40, 2, *place])]
    notes = notes_of(tmp_path, rows)
    assert len(notes) == noted
    if noted:
        assert "1 joints are marked as visible at (0, 0), the image's corner" in notes[0] and "right_hip" in notes[0]
