"""What a benchmark measures on has chosen nothing, and its error counts photographs, not their views."""

import importlib
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

import vitrail


@pytest.fixture
def deployed(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    monkeypatch.setattr("peers.declare_operators", lambda: None)  # conftest has done it, and torch lets it be done once
    return importlib.import_module("deployed")


@pytest.fixture
def table(deployed, tmp_path):
    """Views of twelve photographs, each of one grey."""
    for number in range(12):
        (tmp_path / "photos" / str(number % 3)).mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 30), (number,) * 3).save(tmp_path / "photos" / str(number % 3) / f"{number}.png")
    return deployed.write_views(vitrail.open_data(tmp_path / "photos"), tmp_path / "views")


def photographs(items):
    return [int(np.asarray(Image.open(item.image))[0, 0, 0]) for item in items]


def test_a_photograph_is_seen_whole_corners_centre_and_mirrored(deployed):
    picture = Image.fromarray(np.arange(40 * 80, dtype=np.uint16).reshape(40, 80).astype(np.uint8))
    found = list(deployed.views(picture))
    assert len(found) == deployed.VIEWS
    assert [view.size for view in found] == [(70, 35)] * 10 + [(60, 30)] * 10
    assert len({view.tobytes() for view in found}) == deployed.VIEWS
    assert np.array_equal(found[0], np.asarray(picture)[:35, :70]) and np.array_equal(found[1], np.asarray(found[0])[:, ::-1])
    assert np.array_equal(found[6], np.asarray(picture)[5:, 10:])


def test_no_photograph_has_views_in_two_splits(deployed, table):
    data = vitrail.open_data(table)
    seen = {split: photographs(items) for split, items in data.splits.items()}
    assert {split: len(set(own)) for split, own in seen.items()} == {"train": 3, "val": 3, "test": 6}
    assert len(set().union(*seen.values())) == 12
    assert [item.target for item in data.split("all")] == [number % 3 for number in photographs(data.split("all"))]
    for own in seen.values():  # the views of a photograph stand beside each other, and are counted together
        assert all(len(set(own[i : i + deployed.VIEWS])) == 1 for i in range(0, len(own), deployed.VIEWS))


def test_the_difference_is_paired_and_its_error_that_of_photographs(deployed, monkeypatch):
    labels, first = torch.zeros(6, dtype=torch.long), torch.tensor([0, 0, 0, 0, 1, 1])
    answers = {"timm fp32": first, "ours": torch.tensor([0, 1, 0, 0, 0, 0])}

    def evaluated(way, *args, **kw):
        return SimpleNamespace(logits=torch.eye(2)[answers[way]], labels=labels), "test"

    monkeypatch.setattr(vitrail.api, "evaluate", evaluated)
    found = deployed.accuracies({name: name for name in answers}, "photographs", 2)
    points = [-50.0, 0.0, 100.0]  # of the three photographs, two views each
    error = np.std(points, ddof=1) / math.sqrt(3)
    assert found["timm fp32"] == ["66.67 %", "+0.00 ± 0.00"]
    assert found["ours"] == ["83.33 %", f"{np.mean(points):+.2f} ± {error:.2f}"]
