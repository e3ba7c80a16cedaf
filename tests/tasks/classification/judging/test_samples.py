"""Which images calibrate, which judge, and which are reported on."""

import json
from pathlib import Path

import pytest

import vitrail
from deploy.small import Noting, shade, shade_folder, shades, small_model
from vitrail.deploy.predictor import in_python
from vitrail.errors import DataError
from vitrail.runtime.observer import Observer
from vitrail.tasks.classification.judging.samples import samples_of

pytestmark = pytest.mark.usefixtures("unreported")


def sets_of(folder, model=None, observer=None):
    return samples_of(model or small_model(), in_python(small_model()), folder, observer or Observer())


@pytest.mark.parametrize(
    ("splits", "origins"),
    [
        (("train", "val", "test"), ("train", "val", "test")),
        (("train", "val"), ("train", "half of val", "half of val")),
        (("val", "test"), ("half of val", "half of val", "test")),
        (("test",), ("a third of test",) * 3),
        (("",), ("train", "val", "test")),
    ],
)
def test_no_image_serves_two_purposes(splits, origins, tmp_path):
    observer = Noting()
    sets = sets_of(shade_folder(tmp_path, splits), observer=observer)
    parts = [sets.calibration, sets.judging, sets.reporting]
    assert tuple(part.origin for part in parts) == origins
    assert len(set().union(*map(shades, parts))) == sum(len(part.pixels) for part in parts) == 40 * len(splits)
    assert observer.notes == [str(sets)] and f"judged on {len(sets.judging.pixels)} images ({origins[1]})" in str(sets)
    again = sets_of(tmp_path)
    assert [shades(part) for part in (again.calibration, again.judging, again.reporting)] == [shades(part) for part in parts]


def test_images_without_labels_are_shared_out_too(tmp_path):
    for number in range(10):
        shade(number).save(tmp_path / f"{number}.png")
    sets = sets_of(tmp_path)
    parts = [shades(part) for part in (sets.calibration, sets.judging, sets.reporting)]
    assert [len(part) for part in parts] == [4, 3, 3] and set().union(*parts) == set(range(10))


def test_a_run_is_judged_by_its_own_validation_images(tmp_path):
    data = shade_folder(tmp_path / "data")
    small = {"model": "ViT-Ti/16", "model.depth": 1, "image_size": 32, "epochs": 1, "data.split_seed": 7, "seed": 7}
    run = vitrail.train(data, tmp_path / "run", **small)
    kept = json.loads((run.folder / "splits.json").read_text())
    sets = samples_of(run.folder, in_python(run.trained), None, Observer())
    for samples, split in ((sets.calibration, "train"), (sets.judging, "val"), (sets.reporting, "test")):
        assert shades(samples) == {int(Path(name).stem) for name, place in kept.items() if place == split}
    other = sets_of(data)
    assert shades(other.judging) != shades(sets.judging)


def test_too_few_images_for_three_purposes_are_refused(tmp_path):
    for number in range(2):
        shade(number).save(tmp_path / f"{number}.png")
    with pytest.raises(DataError, match=r"2 images \(all\) cannot be divided") as error:
        sets_of(tmp_path)
    assert error.value.exit_code == 3 and "train, val and test" in error.value.hint
