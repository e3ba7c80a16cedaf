"""The server of a model that finds joints: people in a picture, where their joints' queries look, and what is refused."""

import base64
import io
import json
import random

import numpy as np
import pytest
import torch
from PIL import ExifTags, Image
from server_running import Later, client, noise, png, serving_by

from stick_figures import JOINTS, LIMBS
from tiny_pose import SIZE, tiny_pose
from vitrail.data.images.box_preparation import Box
from vitrail.deploy.server.http.limits import Limits
from vitrail.study.maps.attention import look_of
from vitrail.tasks.pose.metrics import person_score
from vitrail.tasks.pose.predictor import PosePredictor, in_python
from vitrail.tasks.pose.service import ServedPoses
from vitrail.tasks.pose.study.joints import layer_maps

WIDTH, HEIGHT = 60, 48
BOXES = [[10, 5, 20, 40], [30.5, 0, 29.5, 48], [-5, -5, 70, 60]]
LIMITS = Limits(body=500_000, items=8, waiting=16, batch=4, pixels=1_000_000)


@pytest.fixture(scope="module")
def trained():
    return tiny_pose(depth=2)


@pytest.fixture(scope="module")
def server(trained):
    look, why = look_of(trained, layer_maps)
    with serving_by(ServedPoses(in_python(trained), LIMITS, look, why), "joints") as found:
        yield found


@pytest.fixture(scope="module")
def picture():
    return noise(1, (WIDTH, HEIGHT))


def ask(server, content, boxes=None, path="/predict", **options):
    query = {} if boxes is None else {"boxes": boxes if isinstance(boxes, str) else json.dumps(boxes)}
    return server.client.post(path, content=content, params=query, headers={"Content-Type": "image/png"}, **options)


def people(answer):
    assert answer.status_code == 200, answer.text
    return answer.json()["people"]


def expected(trained, content, boxes):
    """Joints (N, K, 3) of people in boxes, one at a time."""
    found, upright = [], trained.preparation.decode(content)
    for box in boxes:
        plan = trained.preparation.plan_of(upright.size, Box(*box))
        places, scores = in_python(trained).joints(torch.from_numpy(plan.pixels(upright))[None])
        outside = np.linalg.inv(plan.matrix) @ np.c_[places[0] + 0.5, np.ones(len(JOINTS))].T
        found.append(np.c_[outside[:2].T - 0.5, scores[0]])
    return np.array(found)


def refused(answer, status, *said):
    """A problem with a sentence that says all of these, and with what to do."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert all(each in problem["detail"] for each in said), problem
    assert problem["status"] == status and problem.get("hint")
    return problem


# what it says


def test_joints_are_where_the_model_finds_them_in_each_box(server, trained, picture):
    found = people(ask(server, picture, BOXES))
    wanted = expected(trained, picture, BOXES)
    assert [one["bbox"] for one in found] == BOXES
    assert np.allclose([np.reshape(one["keypoints"], (-1, 3)) for one in found], wanted, atol=1e-3)
    assert [list(one["joints"]) for one in found] == [list(JOINTS)] * 3
    assert np.allclose([list(one["joints"].values()) for one in found], wanted, atol=1e-3)
    assert [one["score"] for one in found] == pytest.approx(person_score(wanted[..., 2]).tolist(), abs=1e-4)


def test_a_picture_without_boxes_is_one_person_from_rim_to_rim(server, trained, picture):
    answer = ask(server, picture)
    (found,) = people(answer)
    assert found["bbox"] == [0, 0, WIDTH, HEIGHT]
    assert np.allclose(found["keypoints"], expected(trained, picture, [(0, 0, WIDTH, HEIGHT)]).ravel(), atol=1e-3)
    assert answer.json()["size"] == [WIDTH, HEIGHT]
    assert answer.json()["limbs"] == [[JOINTS[one], JOINTS[other]] for one, other in LIMBS]


def test_a_form_has_the_boxes_beside_the_picture(server, picture):
    form = server.client.post("/predict", files={"image": ("a.png", picture)}, data={"boxes": json.dumps(BOXES), "x": "y"})
    assert people(form) == people(ask(server, picture, BOXES))


def test_boxes_are_in_the_picture_as_it_is_seen_upright(server, trained, picture):
    turned, exif = io.BytesIO(), Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    Image.open(io.BytesIO(picture)).transpose(Image.Transpose.ROTATE_90).save(turned, "PNG", exif=exif)
    answer = ask(server, turned.getvalue(), BOXES)
    assert answer.json()["size"] == [WIDTH, HEIGHT]
    assert np.allclose(people(answer)[1]["keypoints"], expected(trained, picture, BOXES)[1].ravel(), atol=1e-3)


def test_people_of_many_requests_are_computed_together_and_each_gets_its_own(server, trained, picture):
    boxes = [[[n, 2 * n, 20 + n, 25]] for n in range(8)]

    def call(box):
        def post():
            with client(server.url) as other:
                return other.post("/predict", content=picture, params={"boxes": json.dumps(box)})

        return Later(post)

    answers = [call(box) for box in boxes]
    for box, answer in zip(boxes, answers, strict=True):
        (found,) = people(answer.result)
        assert found["bbox"] == box[0]
        assert np.allclose(found["keypoints"], expected(trained, picture, box).ravel(), atol=1e-3)


def test_the_attention_of_a_person_has_a_map_for_each_layer_and_joint(server, trained, picture):
    answer = ask(server, picture, BOXES[:1], "/attention").json()
    assert answer["joints"] == list(JOINTS)
    upright = trained.preparation.decode(picture)
    plan = trained.preparation.plan_of(upright.size, Box(*BOXES[0]))
    pixels = torch.from_numpy(plan.pixels(upright))[None]
    wanted = layer_maps(trained.model, trained.preparation.normalize(pixels))[0].numpy()
    shape = answer["layers"], len(JOINTS), answer["rows"], answer["columns"]
    found = np.frombuffer(base64.b64decode(answer["maps"]), np.uint8).reshape(shape) / 255
    assert np.allclose(found * np.array(answer["largest"])[..., None, None], wanted, atol=0.003)
    corners = np.linalg.inv(plan.matrix) @ np.array([[0, 0, 1], [SIZE[1], SIZE[0], 1]]).T
    assert answer["seen"] == pytest.approx((corners[:2].T / (WIDTH, HEIGHT)).ravel().tolist())


def test_attention_lies_on_the_picture_however_the_model_has_turned_it():
    upright = tiny_pose(depth=2, upright=True, image_size=(64, 64))
    task = ServedPoses(in_python(upright), LIMITS, *look_of(upright, layer_maps))
    pixels = torch.randint(0, 256, (1, 3, 64, 64), dtype=torch.uint8)
    maps = task.looked(pixels)
    assert maps.shape == (2, len(JOINTS), 8, 8)
    for turns in range(1, 4):
        found = task.looked(torch.rot90(pixels, turns, (-2, -1)))
        torch.testing.assert_close(torch.rot90(found, -turns, (-2, -1)), maps, atol=1e-5, rtol=0)


def test_a_server_that_cannot_see_attention_says_why(trained, picture):
    with serving_by(ServedPoses(in_python(trained), LIMITS, None, "it is a test"), "joints") as blind:
        answer = ask(blind, picture, path="/attention")
        assert answer.status_code == 501 and "it is a test" in answer.json()["detail"]
        assert blind.client.get("/model").json()["attention"] is False


def test_it_describes_its_skeleton_and_its_limits(server, trained):
    told = server.client.get("/model").json()
    assert told["joints"] == list(JOINTS) and told["pairs"] == [list(pair) for pair in trained.skeleton.pairs]
    assert told["limits"] == {"body": 500_000, "people": 8, "pixels": 1_000_000, "deadline": 10.0}
    assert told["preparation"]["box_scale"] == 1.25


def test_metrics_count_people(server, picture):
    def counted():
        text = server.client.get("/metrics").text
        assert "vitrail_people_limit 16.0" in text
        return float(next(line.split()[-1] for line in text.splitlines() if line.startswith("vitrail_batch_people_sum")))

    before = counted()
    people(ask(server, picture, BOXES))
    assert counted() - before == 3


def test_openapi_describes_what_is_asked_and_answered(server):
    described = server.client.get("/openapi.json").json()
    operation = described["paths"]["/predict"]["post"]
    (parameter,) = operation["parameters"]
    assert parameter["name"] == "boxes" and parameter["in"] == "query" and not parameter["required"]
    form = operation["requestBody"]["content"]["multipart/form-data"]["schema"]["properties"]
    assert set(form) == {"image", "boxes"} and "image/png" in operation["requestBody"]["content"]
    answered = operation["responses"]["200"]["content"]["application/json"]["schema"]["$ref"].split("/")[-1]
    assert set(described["components"]["schemas"][answered]["properties"]) == {"size", "people", "limbs"}


# what it refuses


@pytest.mark.parametrize("path", ["/predict", "/attention"])
@pytest.mark.parametrize(
    ("boxes", "said"),
    [
        ("", "no JSON"),
        ("[[1, 2, 3, 4]", "no JSON"),
        ("[" * 2000, "no JSON"),
        ("[[NaN, 2, 3, 4]]", "no JSON"),
        ("[[1, 2, Infinity, 4]]", "no JSON"),
        ("[[1, 2, 3, 1e999]]", "boxes.0.3"),
        (f"[[1, 2, 3, 1{'0' * 400}]]", "boxes.0.3"),
        ("null", "no list"),
        ("7", "no list"),
        ('"[[1, 2, 3, 4]]"', "no list"),
        ('{"boxes": [[1, 2, 3, 4]]}', "no list"),
        ("[]", "empty"),
        ("[1, 2, 3, 4]", "boxes.0"),
        ("[[]]", "boxes.0"),
        ("[[1, 2, 3]]", "boxes.0"),
        ("[[1, 2, 3, 4, 5]]", "boxes.0"),
        ('[[1, 2, "3", 4]]', "boxes.0.2"),
        ("[[1, 2, true, 4]]", "boxes.0.2"),
        ("[[1, 2, null, 4]]", "boxes.0.2"),
        ("[[[1], 2, 3, 4]]", "boxes.0.0"),
        ('[{"left": 1}]', "boxes.0"),
        ("[[1, 2, 0, 4]]", "less than a pixel"),
        ("[[1, 2, 30, -4]]", "less than a pixel"),
        ("[[1, 2, 1e-300, 4]]", "less than a pixel"),
        ("[[60, 2, 30, 30]]", "outside of the picture"),
        ("[[-31, 2, 30, 30]]", "outside of the picture"),
        ("[[1, 48, 30, 30]]", "outside of the picture"),
        ("[[1e308, 1e308, 1e308, 1e308]]", "outside of the picture"),
        ("[[-1e308, -1e308, 1.7e308, 1.7e308]]", "reaches far beyond"),
        ("[[1, 2, 1e9, 30]]", "reaches far beyond"),
        ("[[-61, 2, 100, 30]]", "reaches far beyond"),
    ],
)
def test_boxes_that_are_none_are_refused_with_a_sentence(server, picture, boxes, said, path):
    assert "a box is left, top, width and height" in refused(ask(server, picture, boxes, path), 422, said)["hint"]
    if boxes:
        form = {"files": {"image": ("a.png", picture)}, "data": {"boxes": boxes}}
        refused(server.client.post(path, **form), 422, said)


def test_the_wrong_one_of_many_boxes_is_named(server, picture):
    refused(ask(server, picture, [*BOXES, [100, 100, 5, 5]]), 422, "box 4, (100, 100, 5, 5), is outside")
    problem = refused(ask(server, picture, [["a"] * 4] * 8), 422, "31 more mistakes")
    assert len(problem["errors"]) == 20


def test_more_people_than_at_a_time_are_too_many(server, picture):
    refused(ask(server, picture, [BOXES[0]] * 9), 413, "9 boxes", "the most at a time is 8")
    refused(ask(server, picture, BOXES, "/attention"), 413, "3 boxes", "the most at a time is 1")
    form = {"files": {"image": ("a.png", picture)}, "data": {"boxes": json.dumps([[1, 2, 3, 4]] * 4000)}}
    refused(server.client.post("/predict", **form), 413, "4,000 boxes")
    form["data"] = {"boxes": json.dumps([[1, 2, 3, 4]] * 20_000)}
    refused(server.client.post("/predict", **form), 413, "boxes is longer than 65,536 bytes")


def test_boxes_that_come_twice_are_refused(server, picture):
    form = {"files": {"image": ("a.png", picture)}, "data": {"boxes": "[[1, 2, 30, 40]]"}}
    refused(server.client.post("/predict", params={"boxes": "[[1, 2, 3, 4]]"}, **form), 422, "twice")
    form["data"] = {"boxes": ["[[1, 2, 30, 40]]"] * 2}
    refused(server.client.post("/predict", **form), 422, "boxes twice")


def test_only_one_picture_goes_at_a_time(server, picture):
    files = [("image", ("a.png", picture)), ("image", ("b.png", picture))]
    refused(server.client.post("/predict", files=files), 413, "more than 1 image")


@pytest.mark.parametrize("damage", ["cut", "empty", "text", "head"])
def test_damaged_pictures_are_refused_with_a_sentence(server, picture, damage):
    content = {"cut": picture[:500], "empty": b"", "text": b"a picture of me", "head": picture[:24]}[damage]
    for path in ("/predict", "/attention"):
        refused(ask(server, content, BOXES[:1], path), 422)


def test_a_picture_that_is_too_large_is_refused_by_its_head(server):
    refused(ask(server, png(Image.new("L", (1001, 1000)))), 422)


def test_whatever_is_sent_as_boxes_gets_an_answer_or_a_sentence(server, picture):
    random.seed(0)
    values = [0, 1, -1, 30, 47.9, 1e-9, 1e300, -1e300, 2**63, "1", None, True, [], {}, "\x00", "é", [1, 2, 3, 4]]
    for _ in range(150):
        boxes = [random.choices(values, k=random.choice((4, 4, 4, 3, 5))) for _ in range(random.choice((1, 1, 2)))]
        if random.random() < 0.3:
            boxes = [[random.uniform(-100, 100) for _ in range(4)]]
        answer = ask(server, picture, boxes)
        assert answer.status_code in (200, 422), (boxes, answer.text)
        if answer.status_code == 200:
            assert all(np.isfinite(one["keypoints"]).all() for one in answer.json()["people"])
        else:
            refused(answer, 422)


def test_a_full_queue_refuses_all_people_of_a_picture(trained, picture):
    with serving_by(ServedPoses(in_python(trained), Limits(items=8, waiting=4, batch=4)), "joints") as small:
        assert len(people(ask(small, picture, [BOXES[0]] * 4))) == 4
        answer = ask(small, picture, [BOXES[0]] * 5)
        assert answer.status_code == 429 and int(answer.headers["retry-after"]) >= 1
        assert len(people(ask(small, picture, [BOXES[0]] * 4))) == 4


def test_a_model_that_fails_is_a_problem_and_the_next_request_is_answered(trained, picture):
    own, fails = in_python(trained), []

    def heatmaps(pixels):
        found = own.heatmaps(pixels)
        return found * float("nan") if fails and fails.pop() else found

    predictor = PosePredictor("test", own.skeleton, own.preparation, heatmaps)
    with serving_by(ServedPoses(predictor, LIMITS), "joints") as server:
        fails.append(True)
        answer = ask(server, picture)
        assert answer.status_code == 500 and answer.json()["detail"] == "the model failed"
        assert len(people(ask(server, picture))) == 1
