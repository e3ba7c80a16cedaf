"""Joints found in pictures, in Python and behind engines."""

import json
import shutil

import numpy as np
import onnx
import pytest
import torch
from PIL import Image

import vitrail
from stick_figures import JOINTS, write_people
from tiny_pose import HEATMAP, SIZE, SKELETON, tiny_pose
from vitrail import api
from vitrail.data.images.box_preparation import BoxPreparation
from vitrail.deploy.export.artefact import Description, graph_of
from vitrail.deploy.export.graph_files import description_in
from vitrail.deploy.predict import open_predictor
from vitrail.deploy.predictor import predict_each
from vitrail.errors import ConfigError, DataError, ModelFileError
from vitrail.runtime.observer import Observer
from vitrail.tasks.pose.files.sources import open_people
from vitrail.tasks.pose.heatmaps import encode
from vitrail.tasks.pose.metrics import SCORES, average_precision
from vitrail.tasks.pose.people.cut_out import Framed
from vitrail.tasks.pose.predictor import PosePredictor
from vitrail.tasks.pose.weights import TrainedPose

BOXES = [[4, 3, 22, 40], [30, 2, 25, 44, 0.5], [-5, 10, 30, 30]]


@pytest.fixture(scope="module")
def trained():
    return tiny_pose()


@pytest.fixture(scope="module")
def folder(trained, tmp_path_factory):
    """Of the model."""
    place = tmp_path_factory.mktemp("pose") / "model"
    trained.save_pretrained(place)
    return place


@pytest.fixture(scope="module")
def graphs(folder, tmp_path_factory):
    """The model for each engine, and what was measured."""
    place = tmp_path_factory.mktemp("exported")
    return {to: api.export(folder, place / to, to=to) for to in ("onnx", "openvino", "torch")}


@pytest.fixture(scope="module")
def keypoints(tmp_path_factory):
    return write_people(tmp_path_factory.mktemp("people"), 6, people=2)


@pytest.fixture(scope="module")
def files(keypoints):
    return [keypoints.parent / f"{number}.png" for number in range(1, 7)]


def bright(pixels):
    """Heatmaps that are the brightness of the pixels, one for each joint."""
    return pixels.float().mean(dim=1, keepdim=True).expand(-1, len(JOINTS), -1, -1) / 255


SEEING = PosePredictor("bright", SKELETON, BoxPreparation.of_size(SIZE), bright)
"""Finds every joint at the brightest place."""


def dotted(x, y, size=(90, 70)):
    """A black picture with a soft dot around the centre of a pixel."""
    across, down = np.meshgrid(np.arange(size[0]), np.arange(size[1]))
    light = 255 * np.exp(-((across - x) ** 2 + (down - y) ** 2) / (2 * 3.0**2))
    return np.repeat(light.round().astype(np.uint8)[..., None], 3, axis=2)


def same(found, expected, tolerance=1e-3):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.box == other.box and one.score == pytest.approx(other.score, abs=tolerance)
        np.testing.assert_allclose(one.joints, other.joints, atol=tolerance)
        np.testing.assert_allclose(one.scores, other.scores, atol=tolerance)


# places


@pytest.mark.parametrize("box", [(20, 10, 40, 50), (25.5, 0, 20, 69), (0, 0, 90, 70), (30, 20, 60, 30), (35, 20, 12, 20)])
def test_a_joint_is_found_where_it_is_in_the_picture_whatever_the_box(box):
    ((person,),) = vitrail.predict_poses(SEEING, dotted(40, 30), [box])
    assert person.box == box
    np.testing.assert_allclose(person.joints, [[40, 30]] * len(JOINTS), atol=0.25 * max(1, box[2] / 40, box[3] / 50))


# batches


def test_people_are_found_alone_as_among_others_and_every_picture_is_decoded_once(trained, files, monkeypatch):
    decoded, decode, sizes = [], BoxPreparation.decode, []
    boxes = [BOXES, BOXES[:1], [], BOXES[:2], BOXES, BOXES[1:]]
    predictor = open_predictor(trained)
    singly = [
        [vitrail.predict_poses(predictor, file, [box])[0][0] for box in own] for file, own in zip(files, boxes, strict=True)
    ]
    monkeypatch.setattr(BoxPreparation, "decode", lambda self, source: decoded.append(source) or decode(self, source))
    counted = PosePredictor(
        "counted", SKELETON, trained.preparation, lambda pixels: sizes.append(len(pixels)) or predictor.heatmaps(pixels)
    )
    for size, batches in ((4, [4, 2, 3, 2]), (2, [2, 1, 1, 2, 2, 1, 2]), (100, [11])):
        decoded.clear(), sizes.clear()
        together = vitrail.predict_poses(counted, files, boxes, batch_size=size)
        assert sorted(decoded) == files and sizes == batches
        for found, expected in zip(together, singly, strict=True):
            same(found, expected)


def test_pictures_that_cannot_be_read_and_boxes_outside_are_told_in_their_place(files, tmp_path):
    (tmp_path / "broken.png").write_bytes(b"no picture")
    boxes = [vitrail.tasks.pose.files.detections.Detection.of(box) for box in BOXES]
    outside = [vitrail.tasks.pose.files.detections.Detection.of((60, 0, 10, 10))]
    given = [(files[0], boxes), (tmp_path / "broken.png", boxes), (files[1], [*boxes, *outside]), (files[2], boxes)]
    framed = [Framed(*one) for one in given]
    found = [answer for answers in predict_each(SEEING, framed, batch_size=4) for answer in answers]
    assert [answer.where if isinstance(answer, DataError) else len(answer.people) for answer in found] == [
        3, tmp_path / "broken.png", files[1], 3,
    ]  # fmt: skip
    assert found[2].what == "box 4, (60, 0, 10, 10), is outside of the picture"
    assert "60 wide and 48 high" in found[2].hint
    with pytest.raises(DataError, match="is outside of the picture"):
        vitrail.predict_poses(SEEING, files[1], [(0, -9, 10, 9)])
    with pytest.raises(DataError, match="is empty"):
        vitrail.predict_poses(SEEING, files[1], [(0, 0, 10, 0)])
    with pytest.raises(DataError, match="less than a pixel"):
        vitrail.predict_poses(SEEING, files[1], [(0, 0, 10, 0.5)])
    with pytest.raises(DataError, match="far beyond"):
        vitrail.predict_poses(SEEING, files[1], [(0, 0, 10, 97)])


def test_boxes_are_of_as_many_pictures_as_there_are(files):
    with pytest.raises(ConfigError, match="there are boxes for 1 images, and 2 images"):
        vitrail.predict_poses(SEEING, files[:2], [BOXES])
    for wrong in ([1, 2, 30, 40], "boxes.json", files[0]):
        with pytest.raises(ConfigError, match="boxes must be a list"):
            vitrail.predict_poses(SEEING, files[0], wrong)
    assert vitrail.predict_poses(SEEING, files[:1], [[]]) == vitrail.predict_poses(SEEING, files[:1], []) == [[]]
    assert len(vitrail.predict_poses(SEEING, files[0], np.array(BOXES[:1]))[0]) == 1


# engines


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_an_exported_model_finds_what_it_finds_in_python(trained, graphs, files, engine):
    folder, figures = graphs["onnx" if engine == "onnxruntime" else "openvino"]
    assert figures["gives"] == "heatmaps" and figures["verified"]["largest_difference"] < 1e-4 < figures["verified"]["spread"]
    predictor = open_predictor(folder, engine=engine)
    assert predictor.skeleton == SKELETON and predictor.preparation == trained.preparation
    for mirror in (False, True):
        found = vitrail.predict_poses(predictor, files[0], BOXES, mirror=mirror)[0]
        same(found, vitrail.predict_poses(trained, files[0], BOXES, mirror=mirror)[0], 1e-2)


def test_a_graph_tells_what_it_gives_and_whose_joints(graphs):
    graph = onnx.load(graphs["onnx"][0] / "model.onnx").graph
    assert [value.name for value in graph.output] == ["heatmaps"] and [value.name for value in graph.input] == ["images"]
    about = description_in(graph_of(graphs["onnx"][0]))
    assert about.skeleton == SKELETON and isinstance(about.preparation, BoxPreparation)
    assert Description.of(about.to_json(), where=graphs["onnx"][0]) == about
    assert "gives `heatmaps`, (batch, 7, height, width)" in (graphs["onnx"][0] / "README.md").read_text()
    again = vitrail.open_model(graphs["torch"][0])  # a .pt2 lies beside a whole model folder
    assert again.skeleton == SKELETON


@pytest.mark.parametrize(("to", "precision"), [("openvino", "bf16"), pytest.param("onnx", "fp16", marks=pytest.mark.soak)])
def test_a_model_is_exported_in_half_precision(folder, tmp_path, files, to, precision):
    place, figures = api.export(folder, tmp_path / "half", to=to, precision=precision, fold=True)
    assert figures["verified"]["largest_difference"] > 0
    assert len(vitrail.predict_poses(place, files[0], BOXES)[0]) == 3


@pytest.mark.parametrize("wrong", [{"precision": "int8"}, {"merge": 2}, {"image_size": "any"}, {"calibrate": "pictures"}])
def test_what_labels_would_judge_is_refused(folder, tmp_path, wrong):
    with pytest.raises(ConfigError, match="is exported in floats"):
        api.export(folder, tmp_path / "out", **wrong)
    assert not (tmp_path / "out").exists()


def test_boxes_a_second_are_measured(folder, graphs, files, monkeypatch):
    monkeypatch.setattr("vitrail.deploy.bench.bench._memory", lambda *of: 0.0)  # in a process of its own, which takes seconds
    found = api.bench(folder, engines=["torch", "onnxruntime"], precisions=["fp32"], batch_sizes=[1], seconds=0.01)
    assert {row["engine"] for row in found["rows"]} == {"torch", "onnxruntime"}
    for model in (folder, graphs["onnx"][0]):
        with pytest.raises(ConfigError, match="vitrail evaluate measures"):
            api.bench(model, files[0].parent)


# models of another kind


def test_joints_are_not_asked_of_classes_nor_classes_of_joints(trained, graphs, run, files):
    for model in (run.folder, run.trained):
        with pytest.raises(ModelFileError, match="the model finds no joints"):
            vitrail.predict_poses(model, files[0])
        with pytest.raises(ModelFileError, match="the model finds no joints"):
            vitrail.evaluate(model, boxes=files[0])
    for model in (trained, graphs["openvino"][0]):
        with pytest.raises(ModelFileError, match="heatmaps, not classes"):
            vitrail.predict(model, files[0])


def test_a_model_with_values_that_are_not_finite_is_refused(files):
    broken = PosePredictor("broken", SKELETON, SEEING.preparation, lambda pixels: bright(pixels) * float("nan"))
    with pytest.raises(ModelFileError, match="not finite"):
        vitrail.predict_poses(broken, files[0])


# evaluation


@pytest.fixture(scope="module")
def python(folder, keypoints):
    """Scores of the model in Python."""
    metrics, split = vitrail.evaluate(folder, keypoints)
    assert split == "all"
    return metrics.details()


def test_an_exported_model_has_the_scores_of_the_model(python, graphs, keypoints):
    for to in ("onnx", "openvino"):
        found = vitrail.evaluate(graphs[to][0], keypoints)[0].scores()
        assert {"pck", "oks", "ap", "loss"} < found.keys() and "joints" not in found
        assert found == pytest.approx({name: python[name] for name in found}, abs=1e-3)


class Noting(Observer):
    """Keeps the notes it gets in a list."""

    def __init__(self, notes):
        self.note = notes.append


class Knowing:
    """Answers with joints near those that are marked, by the pixels of each person."""

    def __init__(self, people, preparation):
        self.heatmaps = {}
        random = np.random.default_rng(0)
        for person in people:
            cut = preparation.plan_of(Image.open(person.image).size, person.target.box)
            pixels = cut.pixels(preparation.decode(person.image))
            near = person.joints[:, :2] + random.normal(0, 1.5, (len(JOINTS), 2))
            places = torch.from_numpy(cut.points(near + 0.5) - 0.5)
            height = torch.from_numpy(random.uniform(0.3, 1, (len(JOINTS), 1, 1)))
            self.heatmaps[pixels.tobytes()] = (height * encode(places, SIZE, HEATMAP)[0]).float()

    def __call__(self, pixels):
        return torch.stack([self.heatmaps[own.numpy().tobytes()] for own in pixels])


@pytest.fixture(scope="module")
def knowing(keypoints):
    """What knows these people, and nobody else."""
    data = open_people(keypoints)
    return PosePredictor("knowing", data.skeleton, SEEING.preparation, Knowing(data.split("all"), SEEING.preparation))


def by_pycocotools(values, results, folder):
    """COCO's scores of results, of the sizes that there are, by a file of COCO's with these values."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    for annotation in values["annotations"]:
        annotation["num_keypoints"] = sum(seen > 0 for seen in annotation["keypoints"][2::3])
    (folder / "truth.json").write_text(json.dumps(values))
    truth = COCO(str(folder / "truth.json"))
    judge = COCOeval(truth, truth.loadRes(json.loads(json.dumps(results))), "keypoints")
    judge.params.kpt_oks_sigmas = np.array(SKELETON.sigmas)
    judge.evaluate(), judge.accumulate(), judge.summarize()
    return {name: score for name, score in zip(SCORES, judge.stats, strict=True) if score >= 0}


def of_coco(found):
    """What `by_pycocotools` gives."""
    return {name: found[name] for name in SCORES if name in found}


def test_people_in_the_boxes_of_annotations_are_judged_as_pycocotools_does(keypoints, knowing, tmp_path, capfd):
    own = vitrail.evaluate(knowing, keypoints, split="all", mirror=False)[0].scores()
    metrics, _ = vitrail.evaluate(knowing, keypoints, split="all", mirror=False, boxes=keypoints, table=tmp_path / "found.csv")
    found = metrics.scores()
    assert found.pop("boxes") == found["people"] == 12 and "loss" not in found
    assert found == pytest.approx({name: own[name] for name in found}, abs=1e-9)  # the same boxes
    expected = by_pycocotools(json.loads(keypoints.read_text()), metrics.results, tmp_path)
    assert 0 < found["ap"] < 1 and of_coco(found) == pytest.approx(expected, abs=1e-9)
    rows = (tmp_path / "found.csv").read_text(encoding="utf-8-sig").splitlines()
    assert len(rows) == 13 and rows[0].startswith("image,person,left,top,width,height,score,head_x,head_y,head_score,")


def test_crowds_and_people_without_joints_are_no_mistakes_and_somebody_in_an_empty_picture_is(
    keypoints, knowing, tmp_path, capfd
):
    shutil.copytree(keypoints.parent, tmp_path / "data")
    values = json.loads(keypoints.read_text())
    values["annotations"][1]["iscrowd"] = 1
    values["annotations"][2] |= {"iscrowd": 1, "keypoints": [0] * 3 * len(JOINTS)}
    values["annotations"][5]["keypoints"] = [0] * 3 * len(JOINTS)
    values["annotations"] = [one for one in values["annotations"] if one["image_id"] != 6]
    (tmp_path / "data" / "keypoints.json").write_text(json.dumps(values))
    options = {"split": "all", "mirror": False, "boxes": keypoints}
    metrics, _ = vitrail.evaluate(knowing, tmp_path / "data" / "keypoints.json", **options)
    found = metrics.scores()
    assert found["boxes"] == 12 and found["people"] == 7
    assert of_coco(found) == pytest.approx(by_pycocotools(values, metrics.results, tmp_path), abs=1e-9)
    without = average_precision(metrics.results, metrics.people, SKELETON)
    inside = [one for one in metrics.results if one["image_id"] != 6]
    assert without["ap"] < found["ap"] < average_precision(inside, metrics.people, SKELETON, ignored=metrics.ignored)["ap"]


def test_a_row_for_each_person_is_written(folder, keypoints, tmp_path):
    vitrail.evaluate(folder, keypoints, table=tmp_path / "people.csv")
    head, *rows = (line.split(",") for line in (tmp_path / "people.csv").read_text(encoding="utf-8-sig").splitlines())
    assert len(rows) == 12 and {len(row) for row in rows} == {len(head)} == {6 + 3 * len(JOINTS) + 1 + len(JOINTS)}
    assert rows[0][0].startswith("1.png#") and head[-1] == "right_hand_distance"


# people who are turned upright


@pytest.fixture(scope="module", params=[(), (0.75,)], ids=["one size", "two sizes"])
def turning(request):
    """A model that has learned from people who were turned upright, and looks at them in one size or in two."""
    return tiny_pose(upright=True, smaller_sizes=request.param, image_size=(64, 64))


@pytest.mark.parametrize("mirror", [True, False])
def test_joints_turn_with_the_picture(mirror):
    """A model that sees a dot the better, the higher it is."""
    higher = torch.linspace(1, 0.5, 64)[:, None]
    predictor = PosePredictor(
        "bright", SKELETON, BoxPreparation.of_size((64, 64), upright=True), lambda pixels: bright(pixels) * higher
    )
    picture = dotted(12, 7, (40, 40))
    for turns in range(4):
        ((found,),) = vitrail.predict_poses(predictor, np.rot90(picture, turns).copy(), [[0, 0, 39, 39]], mirror=mirror)
        back = found.joints
        for _ in range(turns):  # against the clock, (x, y) came to (y, 39 - x)
            back = np.stack([39 - back[:, 1], back[:, 0]], axis=1)
        np.testing.assert_allclose(back, np.tile([12, 7], (len(JOINTS), 1)), atol=0.3)
        assert 0.8 < found.scores.min() < 0.9  # a mean, in which the turn where it stands the highest weighs the most


def test_a_graph_turns_people_as_the_model_does_in_its_one_size(turning, files, tmp_path):
    notes, observer = [], Observer()
    observer.note = notes.append
    folder, _ = api.export(turning, tmp_path / "graph", to="onnx", observer=observer)
    found = vitrail.predict_poses(folder, files[0], BOXES)[0]
    alone = TrainedPose(turning.model, SKELETON, turning.preparation.changed(smaller_sizes=()))
    same(found, vitrail.predict_poses(alone, files[0], BOXES)[0], 1e-2)
    assert any("in that size alone" in note for note in notes) is bool(turning.preparation.smaller_sizes)


def test_pictures_of_nobody_that_are_not_there_are_told_of_and_left_out(keypoints, knowing, tmp_path):
    shutil.copytree(keypoints.parent, tmp_path / "data")
    values = json.loads(keypoints.read_text())
    values["annotations"] = [one for one in values["annotations"] if one["image_id"] != 6]
    (tmp_path / "data" / "keypoints.json").write_text(json.dumps(values))
    (tmp_path / "data" / "6.png").unlink()
    notes: list[str] = []
    options = {"mirror": False, "boxes": keypoints, "observer": Noting(notes)}
    assert vitrail.evaluate(knowing, tmp_path / "data" / "keypoints.json", **options)[0].scores()["boxes"] == 10
    assert any("1 pictures in which nobody is marked are not there" in note for note in notes)


def test_where_no_picture_keeps_a_box_nobody_is_found_and_the_table_has_its_head_alone(keypoints, knowing, tmp_path):
    """All boxes are in a picture of nobody, which is not there."""
    shutil.copytree(keypoints.parent, tmp_path / "data")
    values, boxes = json.loads(keypoints.read_text()), tmp_path / "boxes.json"
    values["annotations"] = [one for one in values["annotations"] if one["image_id"] != 6]
    (tmp_path / "data" / "keypoints.json").write_text(json.dumps(values))
    (tmp_path / "data" / "6.png").unlink()
    boxes.write_text(json.dumps([{"image_id": 6, "bbox": [0, 0, 20, 20], "category_id": 1, "score": 0.9}]))
    options = {"mirror": False, "boxes": boxes, "table": tmp_path / "found.csv"}
    scores = vitrail.evaluate(knowing, tmp_path / "data" / "keypoints.json", **options)[0].scores()
    assert scores["boxes"] == scores["ap"] == 0 and scores["people"] == 10
    assert len((tmp_path / "found.csv").read_text(encoding="utf-8-sig").splitlines()) == 1


def test_boxes_that_are_none_or_outside_are_left_out_of_an_evaluation_and_told_of(keypoints, knowing, tmp_path):
    notes: list[str] = []
    rows = [{"image_id": one["image_id"], "bbox": one["bbox"]} for one in json.loads(keypoints.read_text())["annotations"]]
    wrong = [{"image_id": 1, "bbox": [5, 5, 0, 12]}, {"image_id": 1, "bbox": [900, 5, 9, 9]}]
    (tmp_path / "boxes.json").write_text(json.dumps([*rows, *wrong]))
    options = {"split": "all", "mirror": False, "observer": Noting(notes)}
    found = vitrail.evaluate(knowing, keypoints, boxes=tmp_path / "boxes.json", **options)[0].scores()
    own = vitrail.evaluate(knowing, keypoints, boxes=keypoints, **options)[0].scores()
    assert found["boxes"] == 12 and found == pytest.approx(own, abs=1e-9) and len(notes) == 2
    assert "the box (5, 5, 0, 12) is empty" in notes[0] and "1.png: box" in notes[1] and "outside" in notes[1]


def test_boxes_go_to_pictures_of_the_same_number_in_several_files(keypoints, knowing, tmp_path):
    values = json.loads(keypoints.read_text())
    for split, numbers in {"train": (1, 2, 3), "val": (4, 5, 6)}.items():  # both number their pictures from 1
        kept = {number: number - numbers[0] + 1 for number in numbers}
        images = [{**one, "id": kept[one["id"]]} for one in values["images"] if one["id"] in kept]
        people = [{**one, "image_id": kept[one["image_id"]]} for one in values["annotations"] if one["image_id"] in kept]
        (tmp_path / split).mkdir()
        for one in images:
            shutil.copy(keypoints.parent / one["file_name"], tmp_path / split / one["file_name"])
        (tmp_path / f"{split}.json").write_text(json.dumps({**values, "images": images, "annotations": people}))
    expected = vitrail.evaluate(knowing, keypoints, split="all", mirror=False)[0].scores()
    found = vitrail.evaluate(knowing, tmp_path, split="all", mirror=False)[0].scores()
    assert of_coco(found) == pytest.approx(of_coco(expected), abs=1e-9)
    named = [{"image": f"{one['image_id']}.png", "bbox": one["bbox"]} for one in values["annotations"]]
    numbered = json.loads((tmp_path / "val.json").read_text())["annotations"]
    for split, boxes in {"all": named, "val": numbered}.items():
        (tmp_path / "boxes.txt").write_text(json.dumps(boxes))
        found = vitrail.evaluate(knowing, tmp_path, split=split, mirror=False, boxes=tmp_path / "boxes.txt")[0].scores()
        own = vitrail.evaluate(knowing, tmp_path, split=split, mirror=False)[0].scores()
        assert found["boxes"] == own["people"] and of_coco(found) == pytest.approx(of_coco(own), abs=1e-9)


def test_who_is_in_no_box_counts_as_missed(keypoints, knowing, tmp_path):
    values = json.loads(keypoints.read_text())
    half = [{"image_id": a["image_id"], "bbox": a["bbox"], "score": 0.9} for a in values["annotations"][::2]]
    (tmp_path / "half.json").write_text(json.dumps(half))
    found = vitrail.evaluate(knowing, keypoints, mirror=False, boxes=tmp_path / "half.json")[0].scores()
    assert found["boxes"] == 6 and found["people"] == 12 and found["ar50"] == pytest.approx(0.5)


def test_results_give_every_score_of_cocos_where_boxes_and_joints_are_of_other_sizes(tmp_path, capfd):
    keypoints = write_people(tmp_path, 12, size=(120, 96), people=2)  # around 32², from which on people are of medium size
    data = open_people(keypoints)
    predictor = PosePredictor("knowing", data.skeleton, SEEING.preparation, Knowing(data.split("all"), SEEING.preparation))
    metrics, _ = vitrail.evaluate(predictor, keypoints, mirror=False, boxes=keypoints)
    found = of_coco(metrics.scores())
    assert {"ap_medium", "ar_medium"} <= found.keys() and found["ap_medium"] != found["ap"]
    assert found == pytest.approx(by_pycocotools(json.loads(keypoints.read_text()), metrics.results, tmp_path), abs=1e-9)


def test_each_of_several_people_is_turned_by_itself(turning, files):
    boxes = [[4, 3, 22, 40], [30, 2, 25, 44], [5, 10, 30, 30]]
    (together,) = vitrail.predict_poses(turning, files[:1], [boxes])
    singly = [vitrail.predict_poses(turning, files[0], [box])[0][0] for box in boxes]
    same(together, singly)


def test_places_in_heatmaps_go_through_the_box_as_udp_has_it():
    places = torch.tensor([[[0.0, 0.0], [47.0, 63.0], [23.5, 31.5], [10.0, 40.0], [20.0, 12.0], [30.0, 30.0], [40.0, 9.0]]])
    shown = encode(places.double(), SIZE, HEATMAP)[0].float()
    ((person,),) = vitrail.predict_poses(
        PosePredictor("made", SKELETON, BoxPreparation.of_size(SIZE), lambda pixels: shown), dotted(0, 0), [(10, 20, 30, 40)]
    )
    width, height = 1.25 * 30, 1.25 * 40  # the box has the shape of the input
    expected = [(25 + (x - 23.5) * width / 47, 40 + (y - 31.5) * height / 63) for x, y in places[0].tolist()]
    np.testing.assert_allclose(person.joints, expected, atol=0.05)
