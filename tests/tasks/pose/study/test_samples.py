"""People are pictured with the joints that are marked and in view."""

from dataclasses import replace

import numpy as np
import pytest

from stick_figures import write_people
from vitrail.data.images.augment import Augmentation
from vitrail.data.images.box_preparation import BoxPreparation
from vitrail.tasks.pose.files.sources import open_people
from vitrail.tasks.pose.people.dataset import PersonDataset
from vitrail.tasks.pose.study import samples as pose_samples


@pytest.fixture
def dataset(tmp_path):
    """People whose boxes are too small."""
    data = open_people(write_people(tmp_path, 4))
    boxes = [person.target.box._replace(width=8, height=8) for person in data.split("all")]
    people = [replace(p, target=p.target._replace(box=box)) for p, box in zip(data.split("all"), boxes, strict=True)]
    return PersonDataset(people, BoxPreparation.of_size((64, 48)), data.skeleton, Augmentation(rotation=20))


def test_each_person_has_a_row_as_prepared_and_in_some_epochs(dataset, monkeypatch):
    asked = []
    monkeypatch.setattr(pose_samples, "drawn", lambda data, key: asked.append((data.augmentation, key)) or np.zeros((4, 4)))
    figure = pose_samples.people_sheet(dataset, versions=2)
    unchanged, changed = PersonDataset([], dataset.boxes, dataset.skeleton).augmentation, dataset.augmentation
    assert asked[:3] == [(unchanged, (0, 0)), (changed, (0, 0)), (changed, (1, 0))] and len(asked) == len(figure.axes) == 12
    assert [axes.get_title() for axes in figure.axes[:3]] == ["as prepared", "epoch 1", "epoch 2"]
    assert figure.axes[3].get_ylabel() == dataset.name(1)


def test_only_joints_in_view_that_are_marked_are_drawn(dataset, monkeypatch):
    seen = {}
    monkeypatch.setattr(pose_samples, "draw_people", lambda picture, joints, *_, **__: seen.update(joints=joints[0]) or picture)
    counts = set()
    for epoch in range(6):
        pose_samples.drawn(dataset, (epoch, 0))
        joints = dataset[epoch, 0]["joints"][0].numpy()
        shown = np.isfinite(seen["joints"]).all(axis=1)
        assert (shown == ((joints >= -0.5) & (joints <= [47.5, 63.5])).all(axis=1)).all()
        assert np.allclose(seen["joints"][shown], joints[shown])
        counts.add(int(shown.sum()))
    assert min(counts) < 7
