"""Few photographs alone: a line says what a trained start would bring, where it would bring something."""

from types import SimpleNamespace

import pytest

from vitrail import api
from vitrail.config.configuration import nested
from vitrail.runtime.observer import Observer
from vitrail.training.run_data import run_data_of
from vitrail.training.runs.setup import resolve_run
from vitrail.weights.published import published

pytestmark = pytest.mark.usefixtures("unreported")


def advice(images: int = 400, recipe: str = "scratch", **settings) -> str | None:
    resolved, _ = resolve_run(recipe, None, nested({"data": "photos", **settings}))
    return run_data_of(resolved).advice(resolved, SimpleNamespace(split=lambda name: [name] * images))


def test_few_photographs_are_told_of_a_trained_start_and_how_to_get_it():
    line = advice()
    assert line.startswith("400 images are few") and "--from ViT-Ti/16" in line and "extra hf" in line and "\n" not in line
    assert published("ViT-Ti/16")
    assert "9,999 images" in advice(9_999)


@pytest.mark.parametrize(
    "others",
    [{"images": 10_000}, {"image_size": 32}, {"task": "mae"}, {"recipe": "digits"}, {"recipe": "cifar10"}],
    ids=lambda others: next(iter(others)),
)
def test_where_it_would_bring_little_nothing_is_said(others):
    assert advice(**others) is None


class Notes(Observer):
    """Keeps what it is told."""

    def __init__(self):
        self.notes = []

    def note(self, text):
        self.notes.append(text)


def test_a_run_says_it_and_a_sweep_says_it_once(pictures, tiny, tmp_path):
    observer = Notes()
    large = {**tiny, "model.image_size": 64, "model.patch_size": 32, "training.epochs": 1}
    api.sweep(pictures, tmp_path / "out", over={"seed": [0, 1]}, observer=observer, **large)
    assert len([note for note in observer.notes if "--from ViT-Ti/16" in note]) == 1
    assert len([note for note in observer.notes if note.startswith("run ")]) == 2
