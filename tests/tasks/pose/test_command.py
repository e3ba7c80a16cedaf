"""What commands answer of people and their joints."""

import json

import numpy as np
import pytest
from PIL import Image

from stick_figures import JOINTS, write_people
from tiny_pose import tiny_pose


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    place = tmp_path_factory.mktemp("pose") / "model"
    tiny_pose().save_pretrained(place)
    return place


@pytest.fixture
def keypoints(tmp_path):
    return write_people(tmp_path, 3, people=2)


def parsed(answer):
    assert answer.code == 0, answer.err
    return json.loads(answer.out)


# predict


def test_predict_answers_as_coco_has_it_with_joints_by_name(vitrail, model, keypoints):
    found = parsed(vitrail("predict", model, keypoints.parent, "--boxes", keypoints, "--json"))
    assert [(one["image"], one["image_id"]) for one in found] == [
        (str(keypoints.parent / f"{n}.png"), n) for n in (1, 1, 2, 2, 3, 3)
    ]
    boxes = [annotation["bbox"] for annotation in json.loads(keypoints.read_text())["annotations"]]
    assert [one["box"] for one in found] == boxes
    for one in found:
        assert one.keys() == {"image", "image_id", "category_id", "box", "keypoints", "score", "joints"}
        assert one["category_id"] == 1 and list(one["joints"]) == list(JOINTS)
        assert one["keypoints"] == [number for joint in one["joints"].values() for number in joint]


def test_smoothing_changes_where_joints_are_read_and_must_be_possible(vitrail, model, keypoints):
    image = keypoints.parent / "1.png"
    plain, sharp = (parsed(vitrail("predict", model, image, "--json", *more))[0] for more in ((), ("--smoothing", 0.8)))
    assert plain["keypoints"] != pytest.approx(sharp["keypoints"], abs=1e-2)
    plain, sharp = (parsed(vitrail("evaluate", model, "--data", keypoints, "--json", *more)) for more in ((), ("--smoothing", 0)))
    assert plain["oks"] != pytest.approx(sharp["oks"], abs=1e-6)
    for words in (("predict", model, image), ("evaluate", model, "--data", keypoints)):
        for wrong in (-1, "nan", 1000):
            answer = vitrail(*words, "--smoothing", wrong)
            assert answer.code == 2 and f"smoothing cannot be {float(wrong)}" in answer.err


def test_pictures_with_skeletons_are_written_whole_or_not_at_all(vitrail, model, keypoints, monkeypatch):
    out = keypoints.parent / "out"
    answer = vitrail("predict", model, keypoints.parent / "1.png", "--boxes", keypoints, "--pictures", out)
    assert answer.code == 0 and "1 images with skeletons" in answer.err
    (file,) = out.iterdir()
    assert file.name == "1.png" and Image.open(file).size == (60, 48)
    assert Image.open(file).tobytes() != Image.open(keypoints.parent / "1.png").convert("RGB").tobytes()
    again = vitrail("predict", model, keypoints.parent / "1.png", "--pictures", out)
    assert again.code == 2 and "--pictures" in again.err
    monkeypatch.setattr("vitrail.tasks.pose.study.skeletons.draw_people", lambda *of: 1 / 0)
    vitrail("predict", model, keypoints.parent / "1.png", "--pictures", keypoints.parent / "other")
    assert not (keypoints.parent / "other").exists() and not list(keypoints.parent.glob(".other*"))


def test_what_cannot_be_read_is_reported_and_left_out(vitrail, model, keypoints):
    (keypoints.parent / "2.png").write_bytes(b"no picture")
    rows = [
        {"image_id": 1, "bbox": [1, 1, 20, 30]},
        {"image_id": 2, "bbox": [1, 1, 9, 9]},
        {"image_id": 3, "bbox": [70, 1, 9, 9]},
    ]
    boxes = keypoints.parent / "boxes.json"
    boxes.write_text(json.dumps(rows))
    answer = vitrail("predict", model, *(keypoints.parent / f"{n}.png" for n in (1, 2, 3)), "--boxes", boxes, "--json")
    assert answer.code == 3 and [one["image_id"] for one in json.loads(answer.out)] == [1]
    assert "cannot read the image" in answer.err and "2.png" in answer.err
    assert "box 1, (70, 1, 9, 9), is outside of the picture" in answer.err and "3.png" in answer.err


def test_an_empty_box_and_boxes_of_other_pictures_are_refused(vitrail, model, keypoints):
    boxes = keypoints.parent / "boxes.json"
    for rows, what in (
        ([{"image": "1.png", "bbox": [1, 1, 20, 0]}], "box 1 of the list, in 1.png: the box (1, 1, 20, 0) is empty"),
        ([{"image": "other.png", "bbox": [1, 1, 20, 20]}], "none of the boxes is in any of the images"),
    ):
        boxes.write_text(json.dumps(rows))
        answer = vitrail("predict", model, keypoints.parent / "1.png", "--boxes", boxes)
        assert answer.code == 3 and what in answer.err and not answer.out
    answer = vitrail("predict", model, keypoints.parent / "1.png", "--boxes", keypoints.parent / "none.json")
    assert answer.code == 3 and "none.json cannot be read" in answer.err


def test_csv_has_a_row_for_each_person_that_is_found(vitrail, model, keypoints):
    table, images = keypoints.parent / "found.csv", [keypoints.parent / f"{number}.png" for number in (2, 1)]
    found = parsed(vitrail("predict", model, *images, "--boxes", keypoints, "--csv", table, "--json"))
    head, *rows = [line.split(",") for line in table.read_text(encoding="utf-8-sig").splitlines()]
    assert head[:7] == ["image", "person", "left", "top", "width", "height", "score"]
    assert head[7:] == [f"{joint}_{column}" for joint in JOINTS for column in ("x", "y", "score")]
    assert [row[:2] for row in rows] == [[str(image), number] for image in images for number in "12"]
    for row, one in zip(rows, found, strict=True):
        assert [float(cell) for cell in row[2:]] == pytest.approx([*one["box"], one["score"], *one["keypoints"]], abs=0.01)
    again = vitrail("predict", model, images[0], "--csv", table)
    assert again.code == 2 and "--csv" in again.err


def test_a_box_outside_of_its_picture_is_left_out_and_told_of_and_the_others_are_answered(vitrail, model, keypoints):
    rows = [{"image_id": 1, "bbox": [1, 1, 20, 30]}, {"image_id": 1, "bbox": [70, 1, 9, 9]}]
    boxes = keypoints.parent / "boxes.json"
    boxes.write_text(json.dumps(rows))
    asked = ("predict", model, keypoints.parent / "1.png", "--boxes", boxes, "--json")
    answer = vitrail(*asked)
    assert [one["box"] for one in parsed(answer)] == [[1, 1, 20, 30]]
    assert "left out: 1 (1.png: box 2, (70, 1, 9, 9), is outside of the picture)" in answer.err
    boxes.write_text(json.dumps(rows[1:]))
    answer = vitrail(*asked)
    assert answer.code == 3 and "1.png: box 1, (70, 1, 9, 9), is outside of the picture" in answer.err


# evaluate


def test_evaluate_tells_every_score_and_each_joint(vitrail, model, keypoints):
    scores = parsed(vitrail("evaluate", model, "--data", keypoints, "--json"))
    assert {"oks", "ap", "ap50", "ar", "loss", "people", "joints", "split"} <= scores.keys()
    assert scores["people"] == 6 and scores["split"] == "all" and list(scores["joints"]) == list(JOINTS)
    assert all(0 <= share <= 1 for share in scores["joints"].values())
    assert (scores["pck_by"], scores["pck_left_out"]) == ("torso", 0)
    text = vitrail("evaluate", model, "--data", keypoints).out
    assert "people  6" in text and all(f"\n{joint} " in text for joint in JOINTS)


def test_evaluate_with_boxes_of_a_detector_and_without_mirror_images(vitrail, model, keypoints):
    table = keypoints.parent / "found.csv"
    words = ("evaluate", model, "--data", keypoints, "--boxes", keypoints, "--csv", table, "--json")
    scores = parsed(vitrail(*words))
    assert scores["boxes"] == scores["people"] == 6 and "joints" not in scores and "loss" not in scores
    assert len(table.read_text(encoding="utf-8-sig").splitlines()) == 7
    again = vitrail(*words)
    assert again.code == 2 and "--csv" in again.err
    plain, mirrored = (
        parsed(vitrail("evaluate", model, "--data", keypoints, "--json", f"--{more}mirror"))["oks"] for more in ("no-", "")
    )
    assert plain != pytest.approx(mirrored, abs=1e-6)


def test_evaluate_draws_who_was_found_worst_whole_or_not_at_all(vitrail, model, keypoints, monkeypatch):
    out, words = keypoints.parent / "worst", ("evaluate", model, "--data", keypoints)
    answer = vitrail(*words, "--pictures", out)
    assert answer.code == 0 and f"the worst answers and the joints as pictures: {out}" in answer.err
    assert {file.name for file in out.iterdir()} == {"joints.png", "worst.png"}
    worst = np.asarray(Image.open(out / "worst.png").convert("RGB"))
    assert min(worst.shape[:2]) > 300 and (worst < 40).all(axis=2).mean() > 0.05  # black photographs stand in it
    for more, where in (((), "--pictures"), (("--csv", out / "table.csv"), "--pictures")):
        again = vitrail(*words, "--pictures", out, *more)
        assert again.code == 2 and where in again.err
    inside = vitrail(*words, "--pictures", keypoints.parent / "new", "--csv", keypoints.parent / "new" / "table.csv")
    assert inside.code == 2 and "which will be created" in inside.err
    monkeypatch.setattr("vitrail.tasks.pose.report.worst_sheet", lambda *of: 1 / 0)
    assert vitrail(*words, "--pictures", keypoints.parent / "other").code == 1
    assert not (keypoints.parent / "other").exists() and not list(keypoints.parent.glob(".other*"))


def test_worst_answers_are_not_drawn_of_other_models_nor_of_boxes_without_owners(
    vitrail, model, run, translated_run, keypoints, tmp_path
):
    answer = vitrail("evaluate", translated_run.folder, "--pictures", tmp_path / "out")
    assert answer.code == 2 and "has no such option" in answer.err and "--pictures" in answer.err
    answer = vitrail("evaluate", run.folder, "--pictures", tmp_path / "out")
    assert answer.code == 2 and "an option of another task" in answer.err and "--pictures" in answer.err
    answer = vitrail("evaluate", model, "--data", keypoints, "--boxes", keypoints, "--pictures", tmp_path / "out")
    assert answer.code == 2 and "not matched with those who are marked" in answer.err and "--pictures" in answer.err
    assert not (tmp_path / "out").exists()


def test_evaluate_refuses_other_joints_and_other_models(vitrail, model, run, keypoints):
    values = json.loads(keypoints.read_text())
    values["categories"][0]["keypoints"] = [f"other {joint}" for joint in JOINTS]
    keypoints.write_text(json.dumps(values))
    answer = vitrail("evaluate", model, "--data", keypoints)
    assert answer.code == 3 and "the data has the joints other head" in answer.err
    answer = vitrail("evaluate", model)
    assert answer.code == 2 and "no data given" in answer.err
    for words in (("--boxes", keypoints), ("--smoothing", 0)):
        answer = vitrail("evaluate", run.folder, *words)
        assert answer.code == 4 and "the model finds no joints" in answer.err


# export


@pytest.mark.parametrize("option", ["--labels", "--classes"])
def test_the_joints_of_a_model_are_not_renamed_or_left_out_when_it_is_converted(vitrail, model, tmp_path, option):
    (tmp_path / "names.txt").write_text("a\nb\n")
    answer = vitrail("convert", model, tmp_path / "other", option, tmp_path / "names.txt")
    assert answer.code == 2 and "has its skeleton's" in answer.err and not (tmp_path / "other").exists()


def test_convert_tells_by_which_number_transformers_is_told_the_expert(vitrail, tmp_path):
    experts = {"patch_padding": 2, "shared_position": True, "decoder": "simple", "experts": 3, "expert_dim": 4, "expert": 2}
    tiny_pose(**experts).save_pretrained(tmp_path / "model", layout="vitrail")
    answer = vitrail("convert", tmp_path / "model", tmp_path / "out", "--layout", "vitpose")
    assert answer.code == 0 and "expert 2 of 3 answers" in answer.err and "give dataset_index 2" in answer.err
    told = json.loads((tmp_path / "out" / "config.json").read_text())
    assert told["architectures"] == ["VitPoseForPoseEstimation"] and told["backbone_config"]["expert"] == 2
