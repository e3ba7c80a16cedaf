"""A run that cannot fit into memory is refused with numbers, and none that fits is."""

import json
import shutil

import pytest
from soak_runs import PROCESSES

from measured import measure_step
from vitrail import api
from vitrail.config.configuration import nested, resolve
from vitrail.errors import ConfigError
from vitrail.models.cost import totals
from vitrail.models.registry import model_config
from vitrail.runtime.observer import Observer
from vitrail.training.loop import memory_check as fitting
from vitrail.training.loop.memory_check import least_memory, require_memory
from vitrail.training.runs.run_folder import RunFolder


def settings(**values):
    return resolve({}, {}, nested({"data": "digits", "model": "ViT-Ti/16", **values}))


def test_the_weights_and_what_is_kept_of_each_are_counted():
    parameters = totals(model_config("ViT-Ti/16"))[0]
    assert least_memory(settings(batch_size="auto"))[0] == 4 * 4 * parameters  # weight, gradient, two averages of AdamW
    assert least_memory(settings(batch_size="auto", **{"training.ema": 0.9}))[0] == 5 * 4 * parameters
    assert least_memory(settings(start="model", **{"training.frozen_share": 0.3})) == (
        4 * parameters,
        0,
    )  # how much less is not estimated
    assert least_memory(settings(batch_size=64))[1] == 2 * least_memory(settings(batch_size=32))[1] > 0


@pytest.mark.parametrize(
    "model", ["ViT-Ti/16", pytest.param("ResNet-18", marks=pytest.mark.soak), pytest.param("Mixer-S/32", marks=pytest.mark.soak)]
)
def test_the_estimate_is_less_than_what_training_takes(model, tmp_path):
    asked = {"data": "digits", "model": model, "batch_size": 8, "image_size": 224}
    process = PROCESSES.Process(target=measure_step, args=(asked, tmp_path / "found.json"))
    process.start()
    process.join()
    least, taken = json.loads((tmp_path / "found.json").read_text())
    assert 0.2 * taken < least < taken


def test_what_cannot_fit_is_refused_with_numbers_and_what_helps(monkeypatch, tmp_path, pictures):
    monkeypatch.setattr(fitting, "available_memory", lambda: 2.0**30)
    with pytest.raises(ConfigError, match=r"at least .* 1\.0 GiB are free") as error:
        api.train(pictures, tmp_path / "run", model="ViT-L/16")
    assert "a smaller model" in error.value.hint and not (tmp_path / "run").exists()
    with pytest.raises(ConfigError) as error:
        require_memory(settings(batch_size=4096))
    assert "--batch-size auto" in error.value.hint and "--training.recompute" in error.value.hint
    require_memory(settings(batch_size=16))
    require_memory(settings(batch_size=4096, **{"training.recompute": True}))  # of which less is kept
    monkeypatch.setattr(fitting, "available_memory", lambda: None)
    require_memory(settings(batch_size=4096))


@pytest.mark.usefixtures("unreported")
def test_a_run_that_does_not_fit_any_more_is_not_resumed_and_stays_as_it_was(monkeypatch, tmp_path, run):
    copy = shutil.copytree(run.folder, tmp_path / "run")
    before = {file: file.read_bytes() for file in copy.rglob("*") if file.is_file()}
    monkeypatch.setattr(fitting, "available_memory", lambda: 1000.0)
    with pytest.raises(ConfigError, match=r"training needs .* GiB are free"):
        api.resume(copy, epochs=9)
    assert {file: file.read_bytes() for file in copy.rglob("*") if file.is_file()} == before


@pytest.mark.usefixtures("unreported")
def test_a_run_of_fewer_images_than_a_batch_is_resumed_where_it_fits(monkeypatch, tmp_path, pictures, tiny):
    class Stopping(Observer):
        def epoch(self, row):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        api.train(pictures, tmp_path / "run", observer=Stopping(), **{**tiny, "training.batch_size": 100_000})
    begun = RunFolder(tmp_path / "run").settings
    free = sum(least_memory(begun, images=24))
    assert sum(least_memory(begun)) > free
    monkeypatch.setattr(fitting, "available_memory", lambda: free)
    assert api.resume(tmp_path / "run").scores["images"] > 0


def test_images_that_stay_smaller_to_the_end_count_as_they_are():
    whole, half = (least_memory(settings(**more))[1] for more in ({}, {"schedule.last_image_size": 0.5}))
    assert half == pytest.approx(whole / 4)


def test_a_batch_has_no_more_images_than_there_are():
    few, all_of_them = (least_memory(settings(batch_size=1024), images=images)[1] for images in (64, 5000))
    assert few == pytest.approx(least_memory(settings(batch_size=64))[1])
    assert all_of_them == least_memory(settings(batch_size=1024))[1]
    repeated = least_memory(settings(batch_size=1024, **{"augmentation.repeats": 3}), images=64)[1]
    assert repeated == pytest.approx(3 * few)
