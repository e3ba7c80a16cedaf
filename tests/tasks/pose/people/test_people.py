"""People are split by pictures, so that nobody is in training and beside himself in the test."""

import shutil

import pytest

from data.people import annotation, picture, write_coco, write_many
from vitrail.tasks.pose.files.sources import open_people


@pytest.fixture
def file(tmp_path):
    """Forty pictures with three people each."""
    return write_many(tmp_path, 40, 3)


def splits_of_pictures(data) -> dict[object, set[str]]:
    found: dict[object, set[str]] = {}
    for split, people in data.splits.items():
        for person in people:
            found.setdefault(person.image, set()).add(split)
    return found


@pytest.mark.parametrize("seed", range(5))
def test_people_of_a_picture_are_in_one_split_and_every_split_has_its_share(file, seed):
    data = open_people(file, split_seed=seed)
    assert all(len(splits) == 1 for splits in splits_of_pictures(data).values())
    assert {split: len(people) for split, people in data.splits.items()} == {"train": 84, "val": 12, "test": 24}
    other = open_people(file, split_seed=seed, shares={"test": 0.0, "val": 0.05})
    assert {split: len(people) for split, people in other.splits.items()} == {"train": 114, "val": 6, "test": 0}


def test_copies_of_a_picture_are_in_one_split(tmp_path):
    images = [{"id": n, "file_name": f"{n}.png"} for n in range(30)]
    for n in range(10):
        first = picture(tmp_path / f"{n}.png", n)
        for copy in (n + 10, n + 20):
            shutil.copy(first, tmp_path / f"{copy}.png")
    file = write_coco(tmp_path / "keypoints.json", [annotation(n, n) for n in range(30)], images)
    for seed in range(4):
        found = splits_of_pictures(open_people(file, split_seed=seed))
        for n in range(10):
            assert len(set.union(*(found[tmp_path / f"{n + more}.png"] for more in (0, 10, 20)))) == 1


def test_an_assignment_is_repeated_and_who_came_later_is_counted(file):
    first = open_people(file, split_seed=1)
    again = open_people(file, split_seed=2, assignment=first.assignment)
    assert again.splits == first.splits and again.assignment == first.assignment
    fewer = {name: split for name, split in first.assignment.items() if name != first.splits["train"][0].name}
    later = open_people(file, assignment=fewer)
    assert later.splits["train"] == first.splits["train"][1:]
    assert later.notes == ("people added since the splits were made, who are in none: 1",)
