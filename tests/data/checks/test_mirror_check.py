"""Images that are not to be mirrored are known by their classes' names and by their looks."""

import numpy as np
import pytest
from PIL import Image

import vitrail
from vitrail.data.checks.check import check_data
from vitrail.data.checks.mirror_check import flip_warning, harmful_looks, harmful_names, mirrored_mistakes
from vitrail.runtime.observer import Observer

pytestmark = pytest.mark.usefixtures("unreported")


@pytest.mark.parametrize(
    "classes",
    [
        [str(number) for number in range(10)],
        ["a", "B", "c"],
        ["digit_3", "digit_4", "digit 5", "none"],
        ["left_hand", "right_hand"],
        ["up", "turn-Right", "turn-Left"],
    ],
)
def test_names_of_characters_and_of_sides_tell(classes):
    assert harmful_names(classes)


def test_mistakes_of_the_nearest_other_by_hand():
    features, labels = np.array([[0.0, 0.0], [0.0, 1.0], [9.0, 0.0], [9.0, 1.0]]), np.array([0, 0, 1, 1])
    assert mirrored_mistakes(features, features, labels) == (0.0, 0.0)
    assert mirrored_mistakes(features, features, np.array([0, 1, 0, 1])) == (1.0, 1.0)  # no image is its own neighbour
    mirrored = np.array([[9.0, 0.0], [0.0, 1.0], [9.0, 0.0], [9.0, 1.0]])  # the first looks like the others' class
    assert mirrored_mistakes(features, mirrored, labels) == (0.0, 0.25)


def test_looks_tell_where_mirrored_images_are_like_another_class():
    random = np.random.default_rng(0)
    labels = np.repeat([0, 1], 40)
    arrows = random.normal(size=(80, 2)) * 0.1 + np.where(labels[:, None] == 0, [1, 0], [-1, 0])
    assert "100 % of the mirrored images" in harmful_looks(arrows, arrows * [-1, 1], labels)
    assert harmful_looks(arrows, arrows * [1, -1], labels) is None
    assert harmful_looks(arrows[:41], -arrows[:41], labels[:41]) is None  # the only image of its class has no neighbour
    assert harmful_looks(arrows[:0], arrows[:0], labels[:0]) is None


def arrows(folder, names):
    """Pictures of a class for each name: brighter to the left in the first, to the right in the second, and so on in turn."""
    random = np.random.default_rng(0)
    for place, name in enumerate(names):
        (folder / name).mkdir(parents=True)
        for number in range(20):
            ramp = np.tile(np.linspace(0, 200, 12), (12, 1))[:, :: (-1) ** place]
            pixels = (ramp + random.integers(0, 50, (12, 12))).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    return folder


def test_a_check_tells_by_looks_alone(tmp_path):
    (notice,) = check_data(arrows(tmp_path / "data", ["fro", "to"])).notices
    assert notice.kind == "mirror" and "100 % of the mirrored images are nearest to another class, and 0 %" in notice.what
    assert "--no-flip" in notice.what


def test_training_tells_in_a_line_unless_nothing_is_mirrored(tmp_path):
    data, notes = arrows(tmp_path / "data", ["a", "b", "c"]), []

    class Listening(Observer):
        def note(self, message: str) -> None:
            notes.append(message)

    vitrail.train(data, tmp_path / "run", observer=Listening(), image_size=8, model="ViT-Ti/4", fast_dev_run=True)
    warning = flip_warning(["a", "b", "c"], 0.5)
    assert notes.count(warning) == 1 and warning in (tmp_path / "run" / "train.log").read_text()
    assert flip_warning(["a", "b", "c"], 0) is None and flip_warning(["ant", "bee"], 0.5) is None
