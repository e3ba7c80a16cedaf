"""``vitrail data check`` and ``vitrail data show`` of people."""

import json

import pytest
from PIL import Image

from data.people import annotation, write_coco, write_many
from stick_figures import JOINTS, write_people


@pytest.fixture
def file(tmp_path):
    """Twelve drawn people in six pictures."""
    return write_people(tmp_path, 6, people=2)


def test_sound_people_give_a_summary_and_0(vitrail, file):
    answer = vitrail("data", "check", file, "--task", "pose")
    rows = [line.split() for line in answer.out.splitlines() if line]
    assert answer.code == 0 and rows[-1] == ["no", "faults"] and answer.err == ""
    assert ["all", "12", "people", "in", "6", "images"] in rows and [JOINTS[1], "marked", "100%"] in rows
    assert any(row[:2] == ["boxes", "width×height"] for row in rows)


def test_faults_have_a_line_of_kind_path_and_what_and_the_code_is_3(vitrail, tmp_path):
    rows = [
        annotation(1),
        annotation(2, keypoints=[1, 2, 2, 0, 0, 0, 0, 0, 0]),
        annotation(3, bbox="x"),
        annotation(4, iscrowd=1),
    ]
    file = write_coco(tmp_path / "keypoints.json", rows)
    answer = vitrail("data", "check", file)
    assert answer.code == 3 and answer.out.endswith("\n1 fault\n") and "note     left out: 1 annotations of crowds" in answer.out
    assert f"bad-annotation  {file}  annotation 3 in 1.png: its bbox 'x' is not left" in answer.out
    assert f"note: few-joints  {tmp_path}/1.png#2  marked of 3 joints: nose" in answer.out


def test_the_document_says_the_same(vitrail, file):
    answer = vitrail("data", "check", file, "--json")
    document = json.loads(answer.out)
    assert answer.code == 0 and document["splits"] == {"all": {"people": 12, "images": 6}} and document["faults"] == []
    values = json.loads(file.read_text())
    values["annotations"][3]["image_id"] = 77
    file.write_text(json.dumps(values))
    answer = vitrail("data", "check", file, "--json")
    (fault,) = json.loads(answer.out)["faults"]
    assert answer.code == 3 and fault["path"] == str(file) and "there is no image 77" in fault["what"]


@pytest.mark.parametrize("by_file", [True, False])
def test_a_skeleton_of_ones_own_is_taken_as_in_training(vitrail, file, tmp_path, by_file):
    values = json.loads(file.read_text())
    values["categories"][0]["keypoints"] = list("abcdefg")
    file.write_text(json.dumps(values))
    config = tmp_path / "skeleton.yaml"
    config.write_text("task: {name: pose, skeleton: {joints: [a, b, c, d, e, f, g], pairs: [[b, c], [d, e]]}}\nstart: nothing\n")
    flags = ("--task.skeleton.joints", "[a, b, c, d, e, f, g]", "--task.skeleton.pairs", "[[b, c], [d, e]]")
    assert "no joint is on one side of the body" in vitrail("data", "check", file).out
    answer = vitrail("data", "check", file, *(("--config", config) if by_file else flags))
    assert answer.code == 0 and "another pair beside it: b (12), d (12)" in answer.out


def test_people_are_told_from_other_data_by_json_or_by_columns_of_joints(vitrail, tmp_path, pictures):
    write_many(tmp_path, 2, 1)
    table = tmp_path / "people.csv"
    table.write_text("image,nose_x,nose_y,hip_x,hip_y,knee_x,knee_y\n0.png,1,2,3,4,5,6\n")
    for source in (table, tmp_path / "keypoints.json"):
        assert "people in" in vitrail("data", "check", source).out
    table.write_text("image,label\n0.png,cat\n1.png,dog\n")
    for source in (table, pictures):
        assert "classes" in vitrail("data", "check", source).out
    assert "2 people in 2 images" in vitrail("data", "check", tmp_path, "--task", "pose").out  # a folder is not told from others


@pytest.mark.parametrize(("words", "code", "message"), [
    (("check", "FILE", "--task", "poses"), 2, "poses"),
    (("check", "FILE", "--task", "translate"), 2, "one language of two"),
    (("check", "FILE", "--task", "pose", "--source", "en"), 2, "has no languages"),
    (("check", "FILE", "--out", "page"), 2, "people are checked without a model"),
    (("check", "nowhere", "--task", "pose"), 3, "no data at 'nowhere'"),
    (("check", "FILE", "--task.boxes", "joints"), 2, "uses only the skeleton"),
    (("check", "FILE", "--task.skeletn", "1"), 2, "did you mean 'skeleton'"),
    (("check", "FILE", "--jsn"), 2, "did you mean 'json'"),
    (("check", "digits", "--config", "skeleton.yaml"), 2, "only people and masks have such settings"),
    (("check", "digits", "--task.skeleton.joints", "[a]"), 2, "only people and masks have such settings"),
    (("check", "FILE", "--task.skeleton.joints", "[nose]"), 3, "the skeleton nose"),
    (("show", "FILE", "--augmentation.mixup", "0.5"), 2, "augmentation.mixup"),
    (("show", "FILE", "--augmentation.rotatoin", "5"), 2, "did you mean 'rotation'"),
    (("show", "FILE", "--model", "ViT-Ti/16"), 2, "gives no heatmaps"),
])  # fmt: skip
def test_what_cannot_be_is_refused(vitrail, file, monkeypatch, words, code, message):
    monkeypatch.chdir(file.parent)
    before = sorted(file.parent.iterdir())
    answer = vitrail("data", *(file if word == "FILE" else word for word in words))
    assert answer.code == code and message in answer.err and answer.out == ""
    assert sorted(file.parent.iterdir()) == before


@pytest.fixture
def pictured(vitrail, file, tmp_path, monkeypatch):
    """The data set that a command line pictures; nothing is drawn."""

    def pictured(*words):
        seen = []

        def note_down(dataset):
            seen.append(dataset)
            raise RuntimeError("seen enough")

        monkeypatch.setattr("vitrail.tasks.pose.study.samples.people_sheet", note_down)
        answer = vitrail("data", "show", file, "--out", tmp_path / "x.png", *words)
        assert "seen enough" in answer.err, answer.err
        return seen[0]

    return pictured


def test_people_are_pictured_as_the_recipe_and_the_settings_say(pictured):
    dataset = pictured()
    assert (dataset.augmentation.rotation, dataset.augmentation.scale) == (45, 0.35) and len(dataset) == 6
    assert dataset.preparation.image_size == (224, 224) and dataset.skeleton.joints == JOINTS
    words = [
        "--augmentation.rotation",
        "5",
        "--augmentation.half-body",
        "0.3",
        "--image-size",
        "64x48",
        "--count",
        "2",
        "--seed",
        "9",
    ]
    dataset = pictured("--task", "pose", *words)
    assert (dataset.augmentation.rotation, dataset.augmentation.half_body, dataset.seed) == (5, 0.3, 9) and len(dataset) == 2
    assert dataset.preparation.image_size == (64, 48)
    assert len(pictured("--split", "all", "--count", "40")) == 12
    assert len(pictured("--split", "test", "--count", "40", "--data.test-share", "0.2")) == 2


def test_it_writes_a_picture_with_joints_drawn_and_says_where(vitrail, file, tmp_path):
    shown = tmp_path / "shown.png"
    answer = vitrail("data", "show", file, "--count", 2, "--out", shown, "--image-size", "64x48")
    assert (answer.code, answer.out, answer.err) == (0, f"{shown}\n", "")
    with Image.open(shown) as image:
        assert image.format == "PNG" and min(image.size) > 200


def test_a_skeleton_without_sides_is_told_of(vitrail, tmp_path):
    (tmp_path / "people.csv").write_text("image,nose_x,nose_y,hip_x,hip_y\n" + "".join(f"{n}.png,1,2,3,4\n" for n in range(4)))
    write_many(tmp_path, 4)
    answer = vitrail("data", "show", tmp_path / "people.csv", "--out", tmp_path / "x.png", "--count", 1, "--image-size", "64x48")
    assert answer.code == 0 and "no joint is on one side" in answer.err
