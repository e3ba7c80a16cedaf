"""Exported, quantised, measured: from a trained model to a folder that answers like it."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import vitrail
from deploy.small import small_model
from vitrail import benching, shipping
from vitrail.deploy.predict import open_predictor
from vitrail.deploy.predictor import in_python
from vitrail.deploy.problems import ExportError
from vitrail.errors import ConfigError, DataError, ModelFileError
from vitrail.runtime.observer import Observer
from vitrail.tasks.evaluation import Evaluation


@pytest.fixture(scope="module", autouse=True)
def _measured_for_a_moment():
    """Speeds mean nothing here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shipping, "timed", partial(shipping.timed, seconds=0.01))
        yield


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """A folder of labelled images, of classes that the model tells apart as it likes."""
    folder, random = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)
    for label in range(5):
        (folder / f"label {label}").mkdir()
        for number in range(8):
            noise = random.integers(0, 255, (40, 50, 3), dtype=np.uint8)
            Image.fromarray(noise).save(folder / f"label {label}" / f"{number}.png")
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "small"
    small_model().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def exported(model, pictures, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported") / "int8"
    return shipping.export(
        model, folder, to="openvino", precision="int8", calibrate=pictures, merge=(4,), fold=True, force=True
    )  # fmt: skip


def test_an_exported_model_is_taken_like_any_other(model, exported, pictures, tmp_path):
    folder, _ = exported
    assert {path.name for path in folder.iterdir()} == {"model.xml", "model.bin", "export.json", "README.md"}
    scores, split = vitrail.evaluate(folder, pictures)
    assert (scores.scores()["images"], split) == (40, "all")
    images = sorted(pictures.rglob("*.png"))[:10]
    answers = vitrail.predict(folder, images, top=2)
    assert [len(labels) for labels in answers] == [2] * 10
    assert vitrail.predict(folder / "model.xml", images[0], top=2) == [answers[0]]
    whole, _ = shipping.export(model, tmp_path / "fp32", to="onnx")
    for mine, theirs in zip(vitrail.predict(whole, images), vitrail.predict(model, images), strict=True):
        assert [label for label, _ in mine] == [label for label, _ in theirs]
        assert [score for _, score in mine] == pytest.approx([score for _, score in theirs], abs=1e-4)


def test_what_was_measured_is_written_down(exported):
    folder, figures = exported
    assert json.loads((folder / "export.json").read_text()) == json.loads(json.dumps(figures))
    assert figures["verified"]["batches"] == [1, 2, 3, 7, 16]
    assert figures["token_merging"] == (4,) and figures["labelled"] and figures["images"] == 8
    assert figures["samples"] == "calibrated on 28 images (train); judged on 4 images (val); reported on 8 images (test)"
    assert figures["images_per_second"].keys() == {"torch fp32", "openvino int8", "openvino floats"}
    assert figures["points_lost"] == pytest.approx(100 * (figures["top1"]["before"] - figures["top1"]["after"]))
    assert "images per second" in (folder / "README.md").read_text().lower()


def test_torchs_graph_lies_beside_a_model_folder(model, tmp_path):
    folder, _ = shipping.export(model, tmp_path / "torch", to="torch", merge=(3,))
    assert (folder / "model.pt2").is_file()
    opened = vitrail.open_model(folder)
    assert opened.config.merged == (3, 0)
    with pytest.raises(ModelFileError, match="may run code"):
        open_predictor(folder / "model.pt2")


def test_another_image_size_may_be_exported(model, tmp_path):
    folder, _ = shipping.export(model, tmp_path / "larger", to="openvino", image_size="48x64")
    assert open_predictor(folder).preparation.image_size == (48, 64)


def test_images_without_labels_measure_agreement(model, pictures, tmp_path):
    folder = tmp_path / "loose"
    folder.mkdir()
    for number, path in enumerate(sorted(pictures.rglob("*.png"))[:12]):
        (folder / f"{number}.png").write_bytes(path.read_bytes())
    _, figures = shipping.export(model, tmp_path / "out", to="openvino", precision="int8", calibrate=folder, force=True)
    assert not figures["labelled"] and figures["top1"]["before"] == 1
    assert figures["top1"]["after"] == figures["agreement"]


class Noting(Observer):
    """Keeps what it is told."""

    def __init__(self):
        self.notes = []

    def note(self, text):
        self.notes.append(text)


def test_merging_that_is_searched_stays_within_the_drop(model, pictures, tmp_path, monkeypatch):
    observer = Noting()
    _, figures = shipping.export(
        model, tmp_path / "any", to="openvino", calibrate=pictures, merge=None, max_drop=100, observer=observer
    )
    assert max(figures["token_merging"]) == round(0.28 * 16)
    _, figures = shipping.export(
        model, tmp_path / "none", to="openvino", calibrate=pictures, merge=None, max_drop=-100, observer=observer
    )
    assert not any(figures["token_merging"])
    assert observer.notes[-1] == "no merging loses less than -100 points"


@pytest.mark.parametrize(("lost", "kept"), [((0.4, 0.4), True), ((0.4, 0.6), False), ((0.6, 0.4), False)])
def test_merging_may_lose_neither_accuracy_nor_certainty_beyond_the_drop(lost, kept, model, pictures, tmp_path, monkeypatch):
    monkeypatch.setattr(shipping, "points_lost", lambda before, after: lost)
    monkeypatch.setattr(shipping, "surely_lost", lambda *found: 0.0)
    _, figures = shipping.export(model, tmp_path / "out", to="openvino", calibrate=pictures, merge=None, max_drop=0.5)
    assert any(figures["token_merging"]) == kept


def test_less_is_merged_where_the_graph_loses_more_than_the_model_in_python(model, pictures, tmp_path, monkeypatch):
    lost = iter([3.0, 0.6, 0.4])
    monkeypatch.setattr(shipping, "strongest", lambda config, allowed: shipping.weaker(config, (4, 4))[0])
    monkeypatch.setattr(shipping, "surely_lost", lambda *found: next(lost))
    observer = Noting()
    folder, figures = shipping.export(
        model, tmp_path / "out", to="openvino", calibrate=pictures, merge=None, max_drop=0.5, observer=observer
    )
    tried = shipping.weaker(vitrail.open_model(model).config, (4, 4))
    assert figures["token_merging"] == tried[2] and any(tried[2])
    assert [f"{points:.2f}" in note for points, note in zip((3.0, 0.6), observer.notes[1:], strict=True)] == [True, True]
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]


# which images choose, and which are reported on


def shade(number):
    """A picture of one grey, by which it is known again among prepared pixels."""
    return Image.new("RGB", (40, 40), (number,) * 3)


def shades(samples):
    return {int(pixels[0, 0, 0]) for pixels in samples.pixels}


def shade_folder(folder, splits=("",)):
    """Two classes of 20 shades in every split."""
    places = [folder / split / f"label {label}" for split in splits for label in range(2)]
    for number, place in enumerate(place for place in places for _ in range(20)):
        place.mkdir(parents=True, exist_ok=True)
        shade(number).save(place / f"{number}.png")
    return folder


def sets_of(folder, model=None, observer=None):
    return shipping.samples_of(model or small_model(), in_python(small_model()), folder, observer or Observer())


def test_validation_images_choose_and_test_images_are_reported_on(model, tmp_path, monkeypatch):
    data = shade_folder(tmp_path / "data", ("train", "val", "test"))
    ranges, chose, reported = [], [], []
    told = chose
    asked, export_graph = shipping.Samples.asked, shipping.export_graph

    def noting_asked(self, *args):
        told.append(shades(self))
        return asked(self, *args)

    def noting_export(*args):
        ranges.extend(int(image[0, 0, 0]) for image in args[-1])
        return export_graph(*args)

    def worth(loss, speed):
        nonlocal told
        assert loss["images"] == 40
        told = reported

    monkeypatch.setattr(shipping.Samples, "asked", noting_asked)
    monkeypatch.setattr(shipping, "export_graph", noting_export)
    monkeypatch.setattr(shipping, "_require_worth", worth)
    _, figures = shipping.export(
        model, tmp_path / "out", to="openvino", precision="int8", calibrate=data, merge=None, max_drop=100
    )
    train, val, test = (set(range(first, first + 40)) for first in (0, 40, 80))
    assert set(ranges) == train
    assert len(chose) > 4 and all(images == val for images in chose)  # the search, the graph, and whether int8 is worth it
    assert reported and all(images == test for images in reported)
    assert figures["images"] == 40


def test_a_bench_is_judged_by_validation_images_and_tells_of_test_images(model, tmp_path, monkeypatch):
    data, told = shade_folder(tmp_path / "data", ("train", "val", "test")), []
    monkeypatch.setattr(shipping.Samples, "asked", lambda self, *args: told.append(shades(self)))
    monkeypatch.setattr(benching, "_accuracy", lambda answers: {"top1": len(told), "certainty": 0.0, "images": 300})
    rows = benching.bench(model, data, engines=["torch"], batch_sizes=[1], seconds=0.01)["rows"]
    assert told == [set(range(80, 120)), set(range(40, 80))] * len(rows)
    assert [(row["top1"], row["judged"]["top1"]) for row in rows] == [(1, 2), (3, 4)][: len(rows)]


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
    sets = shipping.samples_of(run.folder, in_python(run.trained), None, Observer())
    for samples, split in ((sets.calibration, "train"), (sets.judging, "val"), (sets.reporting, "test")):
        assert shades(samples) == {int(Path(name).stem) for name, place in kept.items() if place == split}
    dealt = sets_of(data)
    assert shades(dealt.judging) != shades(sets.judging)


def test_too_few_images_for_three_purposes_are_refused(tmp_path):
    for number in range(2):
        shade(number).save(tmp_path / f"{number}.png")
    with pytest.raises(DataError, match=r"2 images \(all\) cannot be shared") as error:
        sets_of(tmp_path)
    assert error.value.exit_code == 3 and "train, val and test" in error.value.hint


# what is refused, and leaves nothing


LOSS = {"points_lost": 0.0, "certainty_lost": 0.0, "images": 500, "labelled": True}
SPEED = {"images_per_second": {"torch fp32": 50, "openvino int8": 150, "openvino floats": 101}, "beside": "openvino floats"}


@pytest.mark.parametrize(
    ("loss", "speed", "message"),
    [
        ({"points_lost": 1.2}, {}, "loses 1.2 points of accuracy on 500 images"),
        ({"points_lost": 1.2, "labelled": False}, {}, "loses 1.2 points of agreement with the model"),
        ({"points_lost": 4.0, "certainty_lost": 1.5, "images": 50}, {}, "loses 1.5 points"),
        ({}, {"openvino int8": 99, "openvino floats": 101}, "slower than openvino floats: 99"),
    ],
)
def test_int8_that_is_not_worth_it_is_refused(loss, speed, message):
    shipping._require_worth(LOSS, SPEED)
    with pytest.raises(ExportError, match=message) as error:
        shipping._require_worth(LOSS | loss, SPEED | ({"images_per_second": speed} if speed else {}))
    assert error.value.exit_code == 1 and "--force" in error.value.hint


def test_what_is_refused_leaves_nothing_unless_it_is_forced(model, pictures, tmp_path, monkeypatch):
    lost = {**LOSS, "points_lost": 3.0, "top1": {"before": 0.9, "after": 0.87}}
    monkeypatch.setattr(shipping, "_loss", lambda *args: lost)
    with pytest.raises(ExportError, match=r"loses 3\.0 points"):
        shipping.export(model, tmp_path / "out", to="openvino", precision="int8", calibrate=pictures)
    assert list(tmp_path.iterdir()) == []
    shipping.export(model, tmp_path / "out", to="openvino", precision="int8", calibrate=pictures, force=True)


def test_one_image_of_a_few_is_not_held_against_int8():
    assert shipping.surely_lost(2.0, 0.3, 50) == 0.3 and shipping.surely_lost(2.0, 0.3, 200) == 2.0


def test_points_lost_are_those_of_accuracy_and_of_the_right_labels_probability():
    labels = torch.tensor([0, 1])
    before = Evaluation(torch.tensor([[9.0, 0], [0, 9]]), labels)
    after = Evaluation(torch.tensor([[9.0, 0], [0.1, 0]]), labels)
    points, certain = shipping.points_lost(before, after)
    right = [torch.sigmoid(torch.tensor(x)).item() for x in (9.0, -0.1)]
    assert points == 50 and certain == pytest.approx(50 * (right[0] - right[1]), abs=1e-3)


def test_what_is_there_already_and_what_is_exported_already_are_refused(model, exported, tmp_path):
    with pytest.raises(ConfigError):
        shipping.export(model, exported[0])
    with pytest.raises(ConfigError, match="exported already"):
        shipping.export(exported[0], tmp_path / "again")
    with pytest.raises(ConfigError, match="no data given"):
        shipping.export(model, tmp_path / "int8", precision="int8")


def test_engines_and_precisions_that_do_not_go_with_a_model_are_refused(model, exported):
    with pytest.raises(ConfigError, match="in Python"):
        open_predictor(model, engine="openvino")
    with pytest.raises(ConfigError, match="precision of its own"):
        open_predictor(exported[0], "bf16")
    with pytest.raises(ConfigError, match="onnxruntime does not read"):
        open_predictor(exported[0], engine="onnxruntime")


# bench


def test_a_bench_has_a_row_for_every_way_and_batch(model, pictures, tmp_path):
    found = benching.bench(
        model, pictures, tmp_path / "bench", engines=["torch", "openvino"], precisions=["fp32", "int8"], batch_sizes=[1, 4],
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


def test_an_exported_model_is_measured_as_it_is(exported):
    rows = benching.bench(exported[0], batch_sizes=[2], seconds=0.01)["rows"]
    assert [row["name"] for row in rows] == ["openvino int8"] and "top1" not in rows[0]


def test_what_loses_too_much_is_not_recommended():
    judged = {"top1": 0.9, "certainty": 0.8, "images": 500}
    first = {"name": "torch fp32", "images_per_second": 10.0, "top1": 0.9, "judged": judged}
    quick = {"name": "openvino int8", "images_per_second": 40.0, "top1": 0.9, "judged": judged | {"top1": 0.894}}
    assert benching._recommended([first, quick], 0.5)["name"] == "torch fp32"
    assert benching._recommended([first, quick], 0.7)["times"] == 4


def test_nothing_to_measure_is_refused(model):
    with pytest.raises(ConfigError, match="nothing is left"):
        benching.bench(model, engines=["torch"], precisions=["int8"])
