"""Every engine and precision, side by side."""

from dataclasses import asdict, replace
from functools import partial

import pytest

import vitrail
from deploy.small import GOOD, Noting, shade_folder, shades
from vitrail import api
from vitrail.deploy.bench import bench
from vitrail.errors import ConfigError
from vitrail.tasks.classification.judging import judging
from vitrail.tasks.classification.judging.samples import Samples


def test_more_threads_than_a_system_gives_are_refused_at_once(saved):
    with pytest.raises(ConfigError, match="--threads is 100,000"):
        api.bench(saved, threads=[1, 100_000])


def test_a_bench_has_a_row_for_every_way_and_batch(saved, labelled, tmp_path, monkeypatch):
    weighed = bench._memory  # in a process of its own, so once is enough
    memory = {"torch": weighed, "openvino": lambda way, threads, shape: 1.0}
    monkeypatch.setattr(bench, "_memory", lambda way, threads, shape: memory[way.engine](way, threads, shape))
    found = api.bench(
        saved, labelled, tmp_path / "bench", engines=["torch", "openvino"], precisions=["fp32", "int8"], batch_sizes=[1, 4],
        threads=[1], seconds=0.01, max_drop=100,
    )  # fmt: skip
    rows = found["rows"]
    assert [(row["name"], row["batch"]) for row in rows] == [
        (name, batch) for batch in (1, 4) for name in ("torch fp32", "openvino fp32", "openvino int8")
    ]
    for row in rows:
        assert row["images_per_second"] > 0 and row["latency_p99_ms"] >= row["latency_ms"] > 0 and row["memory_mb"] > 0
        assert 0 <= row["top1"] <= 1 and (row["images"], row["judged"]["images"]) == (8, 4)
    assert found["recommended"] in [{**row, "times": found["recommended"]["times"], "beside": "torch fp32"} for row in rows]
    assert found["recommended"]["images_per_second"] == max(row["images_per_second"] for row in rows)
    assert {path.name for path in (tmp_path / "bench").iterdir()} == {"bench.json", "frontier.png"}


@pytest.fixture
def unweighed(monkeypatch):
    """A bench that measures no memory, for which a process of its own imports torch for each row."""
    monkeypatch.setattr(bench, "_memory", lambda way, threads, shape: 1.0)


def test_an_exported_model_is_measured_as_it_is(exported, unweighed):
    rows = api.bench(exported[0], batch_sizes=[2], seconds=0.01)["rows"]
    assert [row["name"] for row in rows] == ["openvino int8"] and "top1" not in rows[0]


def test_what_loses_too_much_is_not_recommended():
    first = {"name": "torch fp32", "precision": "fp32", "images_per_second": 10.0, "judged": asdict(replace(GOOD, points=0.0))}
    lossy = asdict(replace(GOOD, points=0.9, least=0.6))
    quick = {"name": "openvino int8", "precision": "int8", "images_per_second": 40.0, "judged": lossy}
    told = Noting()

    def recommended(row, max_drop):
        return bench._recommended([first, row], partial(judging.holds, max_drop=max_drop, observer=told))

    assert recommended(quick, 0.5)["name"] == "torch fp32"
    assert recommended(quick | {"precision": "bf16"}, 0.5)["name"] == "torch fp32"
    assert len(told.notes) == 1 and told.notes[0].startswith("openvino int8 is not recommended: int8 loses 0.9 points")
    assert recommended(quick, 0.7)["times"] == 4
    blind = quick | {"judged": asdict(replace(GOOD, answers=1))}
    assert recommended(blind, 0.7)["name"] == "torch fp32" and "cannot be judged" in told.notes[-1]


def test_a_precision_that_needs_images_names_what_is_missing(saved):
    with pytest.raises(ConfigError, match="nothing is left") as error:
        api.bench(saved, precisions=["int8"])
    assert error.value.hint.startswith("give --data")


def test_nothing_to_measure_is_refused(saved):
    with pytest.raises(ConfigError, match="nothing is left"):
        api.bench(saved, engines=["torch"], precisions=["int8"])


def test_a_bench_is_judged_by_validation_images_and_tells_of_test_images(saved, tmp_path, unweighed, monkeypatch):
    data, evaluated = shade_folder(tmp_path / "data", ("train", "val", "test")), []
    monkeypatch.setattr(Samples, "evaluate", lambda self, *args: evaluated.append(shades(self)))

    def judge(self, predictor):
        evaluated.append(shades(self.samples))
        return GOOD

    monkeypatch.setattr(judging.Judge, "__call__", judge)
    monkeypatch.setattr(judging, "accuracy", lambda answers: {"top1": len(evaluated), "certainty": 0.0, "images": 300})
    rows = api.bench(saved, data, engines=["torch"], batch_sizes=[1], seconds=0.01)["rows"]
    assert evaluated == [set(range(80, 120)), set(range(40, 80))] * len(rows)
    assert [row["top1"] for row in rows] == [1, 3][: len(rows)]


def test_a_bench_of_a_run_takes_its_own_images_and_others_say_what_is_missing(saved, tmp_path, unweighed, monkeypatch):
    data, told = shade_folder(tmp_path / "data"), Noting()
    monkeypatch.setattr(judging.Judge, "__call__", lambda self, predictor: GOOD)
    small = {"model": "ViT-Ti/16", "model.depth": 1, "image_size": 32, "epochs": 1}
    run = vitrail.train(data, tmp_path / "run", **small).folder
    options = {"engines": ["torch"], "precisions": ["fp32"], "batch_sizes": [1], "seconds": 0.01, "observer": told}
    rows = api.bench(run, **options)["rows"]
    assert "top1" in rows[0] and any(note.startswith("calibrated on 28 images (train)") for note in told.notes)
    assert any("images are the run's" in note for note in told.notes)
    data.rename(tmp_path / "moved")
    for model in (saved, run):
        told.notes.clear()
        assert "top1" not in api.bench(model, **options)["rows"][0]
        assert [note.startswith("no accuracy is measured, and no int8:") for note in told.notes] == [True]
